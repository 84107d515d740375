//===- KernelBody.h - kernels that compute the same -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_KERNELS_KERNELBODY_H
#define MEMOPT_DIALECT_KERNELS_KERNELBODY_H

#include "memopt/Dialect/Memopt.h"

#include "llvm/ADT/Hashing.h"

namespace mlir::memopt {

/// Whether the bodies of two kernels are the same ops on the same arguments, wherever they are from.
/// The order of operands counts, also for commutative ops: which NaN a sum gives depends on it.
/// Attributes count as a whole, and so does the phase of an op.
bool haveEqualBodies(KernelOp a, KernelOp b);

/// Of kernels with equal bodies, one number.
llvm::hash_code hashBody(KernelOp kernel);

} // namespace mlir::memopt

#endif
