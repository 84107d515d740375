//===- Nccl.cpp - NCCL, found at run time ---------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/Nccl.h"
#include "memopt-runtime/base/DynamicLibrary.h"

using namespace memopt;
using namespace memopt::cuda;

/// As ncclGetVersion gives it: the first that registers memory, 2.19.
static constexpr int kLeastNccl = 21900;

static std::string nameNcclVersion(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100);
}

StatusOr<std::unique_ptr<Nccl>> Nccl::load(const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(void *library, openLibrary(path, "NCCL"));
  auto nccl = std::make_unique<Nccl>();
  int version = 0;
  if (!findSymbol(library, nccl->getVersion, "ncclGetVersion") ||
      nccl->getVersion(&version) != nccl::SUCCESS || version < kLeastNccl)
    return environmentError("NCCL is of version " + nameNcclVersion(version) + ", memopt needs " +
                            nameNcclVersion(kLeastNccl) + " or newer");
#define MEMOPT_NCCL_FUNCTION(field, symbol, parameters)                                            \
  if (!findSymbol(library, nccl->field, #symbol))                                                  \
    return environmentError("NCCL lacks " #symbol);
#include "memopt-runtime/device/cuda/Nccl.def"
  findSymbol(library, nccl->getMemory, "ncclCommMemStats");
  findSymbol(library, nccl->errorString, "ncclGetErrorString");
  return nccl;
}

Status Nccl::explain(int result, const char *symbol) const {
  if (result == nccl::SUCCESS || result == nccl::IN_PROGRESS)
    return Status::ok();
  std::string text = errorString ? errorString(result) : "no reason given";
  return environmentError(std::string(symbol) + ": " + text + " (result " + std::to_string(result) +
                          ")");
}
