//===- ApartOps.h - ops that few files know ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions that the user gives in C, and rows of which some count: declared apart from the others,
// so that what changes here builds few files again.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_APARTOPS_H
#define MEMOPT_DIALECT_APARTOPS_H

#include "memopt/Dialect/Memopt.h"

#define GET_OP_CLASSES
#include "memopt/Dialect/ForeignOps.h.inc"

#define GET_OP_CLASSES
#include "memopt/Dialect/LinearAlgebraOps.h.inc"

#define GET_OP_CLASSES
#include "memopt/Dialect/RowOps.h.inc"

namespace mlir::memopt {

/// On the declaration of a function in the module of a program: the C source that has it.
constexpr llvm::StringLiteral kSourceAttr = "memopt.source";

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_APARTOPS_H
