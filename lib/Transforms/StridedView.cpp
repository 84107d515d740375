//===- StridedView.cpp - views of buffers as strides --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StridedView.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

static RankedTensorType getTensorType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

SmallVector<int64_t> memopt::getPackedStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

bool StridedView::isPacked() const {
  if (offset != 0 || ShapedType::getNumElements(shape) != getTensorType(buffer).getNumElements())
    return false;
  for (auto [size, stride, packed] : llvm::zip_equal(shape, strides, getPackedStrides(shape)))
    if (size != 1 && stride != packed)
      return false;
  return true;
}

StridedView memopt::getPackedView(Value value) {
  ArrayRef<int64_t> shape = getTensorType(value).getShape();
  return {value, 0, SmallVector<int64_t>(shape), getPackedStrides(shape)};
}

/// Strides of `groups[i]` dimensions of `to` glued into dimension i of `from`, or the reverse cut.
static std::optional<SmallVector<int64_t>> expandStrides(const StridedView &source,
                                                         ArrayRef<ReassociationIndices> groups,
                                                         ArrayRef<int64_t> to) {
  SmallVector<int64_t> strides(to.size(), 1);
  for (auto [stride, group] : llvm::zip_equal(source.strides, groups)) {
    int64_t step = stride;
    for (int64_t dim : llvm::reverse(group)) {
      strides[dim] = step;
      step *= to[dim];
    }
  }
  return strides;
}

static std::optional<SmallVector<int64_t>> collapseStrides(const StridedView &source,
                                                           ArrayRef<ReassociationIndices> groups) {
  SmallVector<int64_t> strides;
  for (const ReassociationIndices &group : groups) {
    // Dimensions of one element have no say; the others must continue each other.
    int64_t innermost = 1, expected = -1;
    for (int64_t dim : llvm::reverse(group)) {
      if (source.shape[dim] == 1)
        continue;
      if (expected < 0)
        innermost = source.strides[dim];
      else if (source.strides[dim] != expected)
        return std::nullopt;
      expected = source.strides[dim] * source.shape[dim];
    }
    strides.push_back(innermost);
  }
  return strides;
}

/// `source` seen through the view `op`.
static std::optional<StridedView> apply(Operation *op, const StridedView &source) {
  StridedView view{source.buffer,
                   source.offset,
                   SmallVector<int64_t>(getTensorType(op->getResult(0)).getShape()),
                   {}};
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    for (int64_t from : transpose.getPermutation())
      view.strides.push_back(source.strides[from]);
    return view;
  }
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    view.strides.assign(view.shape.size(), 0);
    for (auto [dim, into] : llvm::enumerate(broadcast.getDimensions()))
      if (source.shape[dim] == view.shape[into])
        view.strides[into] = source.strides[dim];
    return view;
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    if (!slice.hasUnitStride() && llvm::any_of(slice.getStaticStrides(), ShapedType::isDynamic))
      return std::nullopt;
    if (slice.getSourceType().getRank() != slice.getType().getRank() ||
        llvm::any_of(slice.getStaticOffsets(), ShapedType::isDynamic))
      return std::nullopt;
    for (auto [offset, step, stride] :
         llvm::zip_equal(slice.getStaticOffsets(), slice.getStaticStrides(), source.strides)) {
      view.offset += offset * stride;
      view.strides.push_back(step * stride);
    }
    return view;
  }
  std::optional<SmallVector<int64_t>> strides;
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    strides = expandStrides(source, expand.getReassociationIndices(), view.shape);
  else if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op))
    strides = collapseStrides(source, collapse.getReassociationIndices());
  if (!strides)
    return std::nullopt;
  view.strides = std::move(*strides);
  return view;
}

StridedView memopt::getStridedView(Value value) {
  Operation *op = value.getDefiningOp();
  if (!isa_and_nonnull<TransposeOp, BroadcastOp, tensor::ExtractSliceOp, tensor::ExpandShapeOp,
                       tensor::CollapseShapeOp>(op))
    return getPackedView(value);
  std::optional<StridedView> view = apply(op, getStridedView(op->getOperand(0)));
  return view ? *view : getPackedView(value);
}
