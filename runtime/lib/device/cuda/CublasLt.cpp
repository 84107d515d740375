//===- CublasLt.cpp - cuBLASLt, found at run time -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CublasLt.h"
#include "memopt-runtime/base/DynamicLibrary.h"

using namespace memopt;
using namespace memopt::cuda;

StatusOr<std::unique_ptr<CublasLt>> CublasLt::load(const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(void *library, openLibrary(path, "cuBLASLt"));
  auto cublas = std::make_unique<CublasLt>();
#define MEMOPT_CUBLASLT_FUNCTION(field, symbol, parameters)                                        \
  if (!findSymbol(library, cublas->field, #symbol))                                                \
    return environmentError("cuBLASLt lacks " #symbol);
#include "memopt-runtime/device/cuda/CublasLt.def"
  findSymbol(library, cublas->statusString, "cublasLtGetStatusString");
  return cublas;
}

Status CublasLt::explain(int status, const char *symbol) const {
  if (status == 0)
    return Status::ok();
  std::string text = statusString ? statusString(status) : "no reason given";
  return environmentError(std::string(symbol) + ": " + text + " (status " + std::to_string(status) +
                          ")");
}
