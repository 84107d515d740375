//===- ScanGradient.h - the gradient of a loop is a loop --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_TRAINING_SCANGRADIENT_H
#define MEMOPT_LIB_TRANSFORMS_TRAINING_SCANGRADIENT_H

#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

/// Builds, at `builder`, the loop that goes through the iterations of `scan` from the last to the
/// first, and what is made of its results. `scan` is replaced by one that also stacks what the
/// gradient needs of each iteration; that one is returned. `needed` and `operandGradients` go by
/// the operands of `scan`.
FailureOr<ScanOp> differentiateScan(OpBuilder &builder, ScanOp scan,
                                    ArrayRef<Value> resultGradients, ArrayRef<bool> needed,
                                    MutableArrayRef<Value> operandGradients);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_TRAINING_SCANGRADIENT_H
