//===- EntryPoints.h - symbols of a program ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_HOST_ENTRYPOINTS_H
#define MEMOPT_LIB_CONVERSION_HOST_ENTRYPOINTS_H

#include "llvm/ADT/StringRef.h"

namespace mlir::memopt {

/// From the list that the runtime shares.
struct EntryPoints {
#define MEMOPT_ENTRY_POINT(NAME, SYMBOL) static constexpr llvm::StringLiteral k##NAME = SYMBOL;
#include "memopt-runtime/interface/ProgramEntryPoints.def"
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_HOST_ENTRYPOINTS_H
