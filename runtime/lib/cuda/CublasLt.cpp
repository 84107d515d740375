//===- CublasLt.cpp - cuBLASLt, found at run time -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CublasLt.h"
#include <dlfcn.h>

using namespace memopt;
using namespace memopt::cuda;

template <typename Function>
static bool findSymbol(void *library, Function &function, const char *symbol) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  return function != nullptr;
}

StatusOr<std::unique_ptr<CublasLt>> CublasLt::load(const std::string &path) {
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = ::dlerror();
    return environmentError("cuBLASLt cannot be loaded (" +
                            std::string(reason ? reason : "no reason given") + ")");
  }
  auto cublas = std::make_unique<CublasLt>();
#define MEMOPT_CUBLASLT_FUNCTION(field, symbol, parameters)                                        \
  if (!findSymbol(library, cublas->field, #symbol))                                                \
    return environmentError("cuBLASLt lacks " #symbol);
#include "memopt-runtime/CublasLt.def"
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
