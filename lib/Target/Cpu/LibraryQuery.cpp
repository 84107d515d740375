//===- LibraryQuery.cpp - what the runtime would run ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LibraryQuery.h"

#include "memopt-runtime/LibraryCalls.h"
#include <nlohmann/json.hpp>

mlir::memopt::LibraryAnswer mlir::memopt::queryLibrary(const std::string &json, int threads) {
  auto descriptor = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (descriptor.is_discarded())
    return {"", 0, 1, "the description is no JSON"};
  auto call = ::memopt::LibraryCall::create(descriptor, threads);
  if (!call.isOk())
    return {"", 0, 1, call.getMessage()};
  return {(*call)->implementation(), (*call)->workspaceBytes(), (*call)->getSlowdown(), ""};
}
