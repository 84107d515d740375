//===- LibraryQuery.cpp - what the runtime would run ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LibraryQuery.h"

#include "memopt-runtime/descriptors/LibraryCalls.h"
#include <nlohmann/json.hpp>

mlir::memopt::LibraryAnswer mlir::memopt::queryLibrary(const std::string &json, int threads) {
  auto descriptor = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  LibraryAnswer answer;
  if (descriptor.is_discarded()) {
    answer.error = "the description is no JSON";
    return answer;
  }
  auto call = ::memopt::LibraryCall::create(descriptor, threads);
  if (!call.isOk()) {
    answer.error = call.getMessage();
    return answer;
  }
  answer.implementation = (*call)->implementation();
  answer.workspaceBytes = (*call)->workspaceBytes();
  answer.slowdown = (*call)->getSlowdown();
  answer.packedWeightBytes = (*call)->packedWeightBytes();
  return answer;
}
