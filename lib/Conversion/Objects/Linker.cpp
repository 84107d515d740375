//===- Linker.cpp - object files to a shared object -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Linker.h"

#include "lld/Common/Driver.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>

using namespace llvm;

LLD_HAS_DRIVER(elf)

std::string mlir::memopt::linkSharedObject(ArrayRef<StringRef> objects, StringRef path) {
  SmallVector<std::string> words{"ld.lld", "-shared", "--build-id=none", "--threads=1", "-z",
                                 "now",    "-o",      path.str()};
  for (StringRef object : objects)
    words.push_back(object.str());
  SmallVector<const char *> arguments;
  for (const std::string &word : words)
    arguments.push_back(word.c_str());
  // lld keeps its state in globals.
  static std::mutex mutex;
  static bool canRun = true;
  std::lock_guard<std::mutex> lock(mutex);
  if (!canRun)
    return "the linker failed before and cannot run again";
  std::string said;
  raw_string_ostream out(said);
  lld::Result result = lld::lldMain(arguments, out, out, {{lld::Gnu, &lld::elf::link}});
  canRun = result.canRunAgain;
  if (result.retCode == 0)
    return "";
  return "the linker answered " + std::to_string(result.retCode) + ": " +
         StringRef(said).trim().str();
}
