//===- TensorBuilders.h - small tensors and casts that passes make -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_TENSORBUILDERS_H
#define MEMOPT_TRANSFORMS_UTILS_TENSORBUILDERS_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace mlir::memopt {

/// A constant whose elements are all `number`, rounded to floats, cut to integers.
Value createSplat(OpBuilder &builder, Location location, RankedTensorType type, double number);

/// `value`, of floats, as `elementType`: widened, narrowed, or as it is.
Value convertFloats(OpBuilder &builder, Location location, Value value, Type elementType);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_TENSORBUILDERS_H
