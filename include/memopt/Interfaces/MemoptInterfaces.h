//===- MemoptInterfaces.h - contracts between ops and passes ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_INTERFACES_MEMOPTINTERFACES_H
#define MEMOPT_INTERFACES_MEMOPTINTERFACES_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::memopt {
/// Bytes of a statically shaped tensor as it lies in memory: packed, row-major, i1 as one byte.
int64_t getTensorBytes(Type type);
/// Sum of the bytes of all tensor operands and results of `op`.
int64_t getOperandAndResultBytes(Operation *op);
} // namespace mlir::memopt

#include "memopt/Interfaces/MemoptInterfaces.h.inc"

#endif // MEMOPT_INTERFACES_MEMOPTINTERFACES_H
