//===- GradientSums.h - what several uses contribute ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_TRAINING_GRADIENTSUMS_H
#define MEMOPT_LIB_TRANSFORMS_TRAINING_GRADIENTSUMS_H

#include "mlir/IR/Builders.h"

namespace mlir::memopt {

/// Whether a gradient may flow to `value`.
bool holdsRealNumbers(Value value);

bool isZeroGradient(Value value);

/// The sum of `contributions` to the gradient of a value of `type`, in this order; null when there
/// are none. Zeros are left out unless nothing else is there. `isOfParameter`: what is summed
/// becomes, but for casts, the gradient of a parameter.
Value addUp(OpBuilder &builder, Location loc, Type type, ArrayRef<Value> contributions,
            bool isOfParameter = false);

/// Gradients of parameters are wide: a product that was rounded, for the type of its operand, and
/// widened again is taken as it was.
Value stripRounding(Value value);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_TRAINING_GRADIENTSUMS_H
