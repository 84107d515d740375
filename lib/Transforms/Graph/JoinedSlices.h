//===- JoinedSlices.h - concatenations of slices that lie together ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_GRAPH_JOINEDSLICES_H
#define MEMOPT_LIB_TRANSFORMS_GRAPH_JOINEDSLICES_H

#include "mlir/IR/Builders.h"

namespace mlir::memopt {

/// Values that follow each other: slices `first`, `first + 1`, ... of the leading dimension of
/// `whole`, each reshaped to `shape`; or one value that is no such slice, where `whole` is null.
struct SliceRun {
  Value piece; ///< the first one
  Value whole;
  int64_t first = 0, count = 1;
  SmallVector<int64_t> shape;
};

/// `pieces` as runs of slices.
SmallVector<SliceRun> findSliceRuns(ValueRange pieces);

/// What a concatenation of the runs' pieces along `dim` is; a run of several is cut out of its whole.
Value joinRuns(OpBuilder &builder, Location location, ArrayRef<SliceRun> runs, int64_t dim);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_GRAPH_JOINEDSLICES_H
