//===- ViewBuilders.h - reshapes, transposes and slices of values -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tensors here have a static shape. What would not move an element makes no op.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_VIEWBUILDERS_H
#define MEMOPT_DIALECT_VIEWBUILDERS_H

#include "mlir/IR/Builders.h"

namespace mlir::memopt {

/// `value` with another shape of as many elements, at least one. A chain of reshapes in front is
/// looked through.
Value reshapeTo(OpBuilder &builder, Location location, Value value, ArrayRef<int64_t> shape);

/// Dimension `i` of the result is dimension `permutation[i]` of `value`.
Value transposeTo(OpBuilder &builder, Location location, Value value,
                  ArrayRef<int64_t> permutation);

/// `count` slices of the leading dimension, from `first` on.
Value takeLeading(OpBuilder &builder, Location location, Value value, int64_t first, int64_t count);

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_VIEWBUILDERS_H
