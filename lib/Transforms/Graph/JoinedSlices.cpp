//===- JoinedSlices.cpp - concatenations of slices that lie together -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "JoinedSlices.h"

#include "memopt/Dialect/Memopt.h"
#include "memopt/Dialect/ViewBuilders.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

/// The single slice along the leading dimension that `value` is, in another shape.
static std::optional<std::pair<Value, int64_t>> getLeadingSlice(Value value) {
  while (isReshape(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice || !slice.hasUnitStride() || ShapedType::isDynamicShape(slice.getStaticOffsets()) ||
      slice.getResultType().getRank() != slice.getSourceType().getRank() ||
      slice.getResultType().getRank() == 0)
    return std::nullopt;
  ArrayRef<int64_t> from = slice.getSourceType().getShape(), to = slice.getResultType().getShape();
  if (to.front() != 1 || from.drop_front() != to.drop_front())
    return std::nullopt;
  return std::pair(slice.getSource(), slice.getStaticOffsets().front());
}

SmallVector<SliceRun> memopt::findSliceRuns(ValueRange pieces) {
  SmallVector<SliceRun> runs;
  for (Value piece : pieces) {
    std::optional<std::pair<Value, int64_t>> slice = getLeadingSlice(piece);
    ArrayRef<int64_t> shape = tensorType(piece).getShape();
    if (slice && !runs.empty() && runs.back().whole == slice->first &&
        runs.back().first + runs.back().count == slice->second && runs.back().shape == shape) {
      ++runs.back().count;
      continue;
    }
    auto [whole, first] = slice.value_or(std::pair<Value, int64_t>());
    runs.push_back({piece, whole, first, 1, SmallVector<int64_t>(shape)});
  }
  return runs;
}

/// All pieces of a run, one behind the other along `dim`.
static Value joinRun(OpBuilder &builder, Location location, const SliceRun &run, int64_t dim) {
  if (run.count == 1)
    return reshapeTo(builder, location, run.piece, run.shape);
  // [count, shape], then count at its place, then both dimensions there as one.
  SmallVector<int64_t> shape{run.count}, joined(run.shape);
  llvm::append_range(shape, run.shape);
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(1, shape.size()));
  order.insert(order.begin() + dim, 0);
  joined[dim] *= run.count;
  Value slices = takeLeading(builder, location, run.whole, run.first, run.count);
  slices = reshapeTo(builder, location, slices, shape);
  return reshapeTo(builder, location, transposeTo(builder, location, slices, order), joined);
}

Value memopt::joinRuns(OpBuilder &builder, Location location, ArrayRef<SliceRun> runs,
                       int64_t dim) {
  SmallVector<Value> parts = llvm::map_to_vector(
      runs, [&](const SliceRun &run) { return joinRun(builder, location, run, dim); });
  return parts.size() == 1 ? parts.front()
                           : tensor::ConcatOp::create(builder, location, dim, parts).getResult();
}
