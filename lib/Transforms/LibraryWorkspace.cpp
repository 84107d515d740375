//===- LibraryWorkspace.cpp - asking libraries for their scratch --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LibraryWorkspace.h"

#include "memopt-runtime/LibraryCalls.h"
#include <nlohmann/json.hpp>

int64_t mlir::memopt::queryLibraryWorkspace(const std::string &json, int threads,
                                            std::string &error) {
  auto descriptor = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (descriptor.is_discarded()) {
    error = "the descriptor is no JSON";
    return -1;
  }
  auto call = ::memopt::LibraryCall::create(descriptor, threads);
  if (!call.isOk()) {
    error = call.getMessage();
    return -1;
  }
  return (*call)->workspaceBytes();
}
