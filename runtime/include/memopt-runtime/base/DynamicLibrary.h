//===- DynamicLibrary.h - NVIDIA's libraries, loaded ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The driver, cuDNN and cuBLASLt are loaded when they are needed, and stay: a library that is
// unloaded takes its threads with it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_BASE_DYNAMICLIBRARY_H
#define MEMOPT_RUNTIME_BASE_DYNAMICLIBRARY_H

#include "memopt-runtime/base/Status.h"
#include <dlfcn.h>
#include <string>

namespace memopt::cuda {

/// Loads the file `path`, or what the loader finds under that name. An Environment error calls it
/// `name`, and ends in `advice`.
inline StatusOr<void *> openLibrary(const std::string &path, const std::string &name,
                                    const std::string &advice = "") {
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library)
    return library;
  const char *reason = ::dlerror();
  return environmentError(name + " cannot be loaded (" +
                          std::string(reason ? reason : "no reason given") + ")" + advice);
}

/// Whether the library has the function, which is null otherwise.
template <typename Function>
bool findSymbol(void *library, Function &function, const char *symbol) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  return function != nullptr;
}

} // namespace memopt::cuda

#endif // MEMOPT_RUNTIME_BASE_DYNAMICLIBRARY_H
