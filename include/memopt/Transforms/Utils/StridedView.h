//===- StridedView.h - views of buffers as strides --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a library call reads: a buffer, an element to begin at, and a stride for each dimension.
// Views that strides can say (transposes, slices, reshapes that do not cut a strided dimension,
// repeats) fold into it; any other view ends the walk and must be stored.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_STRIDEDVIEW_H
#define MEMOPT_TRANSFORMS_UTILS_STRIDEDVIEW_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::memopt {

struct StridedView {
  Value buffer;
  int64_t offset = 0;
  /// One per dimension of the viewed value; in elements.
  SmallVector<int64_t> shape, strides;

  /// Whether it is the whole buffer in row-major order.
  bool isPacked() const;
};

/// The furthest buffer of which `value` is a strided view; at worst `value` itself.
StridedView getStridedView(Value value);

/// `value` itself as a packed buffer.
StridedView getPackedView(Value value);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_STRIDEDVIEW_H
