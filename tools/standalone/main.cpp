//===- main.cpp - the compiler's tools in one program -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include <string_view>

int compileMain(int argc, char **argv);
int optMain(int argc, char **argv);
int planMain(int argc, char **argv);

int main(int argc, char **argv) {
  std::string_view name = argc ? argv[0] : "";
  name.remove_prefix(name.rfind('/') + 1); // none: npos + 1 is 0
  if (name == "memopt-opt")
    return optMain(argc, argv);
  return name == "memopt-plan" ? planMain(argc, argv) : compileMain(argc, argv);
}
