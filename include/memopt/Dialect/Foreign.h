//===- Foreign.h - functions that the user gives in C -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_FOREIGN_H
#define MEMOPT_DIALECT_FOREIGN_H

#include "memopt/Dialect/Memopt.h"

#define GET_OP_CLASSES
#include "memopt/Dialect/ForeignOps.h.inc"

namespace mlir::memopt {

/// On the declaration of a function in the module of a program: the C source that has it.
constexpr llvm::StringLiteral kSourceAttr = "memopt.source";

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_FOREIGN_H
