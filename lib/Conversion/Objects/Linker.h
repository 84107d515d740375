//===- Linker.h - object files to a shared object ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_OBJECTS_LINKER_H
#define MEMOPT_LIB_CONVERSION_OBJECTS_LINKER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace mlir::memopt {

/// Links object files to the shared object `path`, in this process: a machine that compiles models
/// needs no linker. Returns what failed, or nothing.
std::string linkSharedObject(llvm::ArrayRef<llvm::StringRef> objects, llvm::StringRef path);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_OBJECTS_LINKER_H
