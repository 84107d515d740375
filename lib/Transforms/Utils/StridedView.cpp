//===- StridedView.cpp - views of buffers as strides --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Utils/StridedView.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mlir::memopt;

bool StridedView::isPacked() const {
  if (offset != 0 || ShapedType::getNumElements(shape) != tensorType(buffer).getNumElements())
    return false;
  for (auto [size, stride, packed] : llvm::zip_equal(shape, strides, computeStrides(shape)))
    if (size != 1 && stride != packed)
      return false;
  return true;
}

StridedView mlir::memopt::getPackedView(Value value) {
  ArrayRef<int64_t> shape = tensorType(value).getShape();
  return {value, 0, SmallVector<int64_t>(shape), computeStrides(shape)};
}

/// The strides of `to`, a reshape of `source`. From the last dimension on, sizes of both are
/// matched; dimensions of `source` that meet in one group must continue each other.
static std::optional<SmallVector<int64_t>> reshapeStrides(const StridedView &source,
                                                          ArrayRef<int64_t> to) {
  SmallVector<int64_t> strides(to.size(), 1);
  size_t next = source.shape.size();
  int64_t step = 1, open = 1; // the stride at hand, and elements behind it that are not matched yet
  for (size_t dim = to.size(); dim-- > 0;) {
    while (open % to[dim] != 0) {
      if (next-- == 0)
        return std::nullopt;
      if (source.shape[next] == 1) // has no say
        continue;
      if (open == 1)
        step = source.strides[next];
      else if (source.strides[next] != step * open)
        return std::nullopt;
      open *= source.shape[next];
    }
    strides[dim] = step;
    step *= to[dim];
    open /= to[dim];
  }
  return strides;
}

/// `source` through a map that is affine in the indices of `shape`.
static std::optional<StridedView> mapStrides(const StridedView &source, AffineMap map,
                                             ArrayRef<int64_t> shape) {
  StridedView view{source.buffer, source.offset, SmallVector<int64_t>(shape),
                   SmallVector<int64_t>(shape.size(), 0)};
  for (auto [expr, stride] : llvm::zip_equal(map.getResults(), source.strides)) {
    SmallVector<int64_t> factors; // of dimensions, of what is not affine, and the constant
    if (failed(getFlattenedAffineExpr(expr, map.getNumDims(), 0, &factors)) ||
        factors.size() != shape.size() + 1)
      return std::nullopt;
    view.offset += factors.back() * stride;
    for (size_t dim = 0; dim < shape.size(); ++dim)
      view.strides[dim] += factors[dim] * stride;
  }
  return view;
}

/// `source` seen through `op`.
static std::optional<StridedView> apply(ViewOpInterface op, StridedView source) {
  ArrayRef<int64_t> shape = tensorType(op->getResult(0)).getShape();
  if (op.getViewKind() == ViewKind::Strided)
    return mapStrides(source, op.getViewParts().front().map, shape);
  std::optional<SmallVector<int64_t>> strides = reshapeStrides(source, shape);
  if (!strides)
    return std::nullopt;
  return StridedView{source.buffer, source.offset, SmallVector<int64_t>(shape), *strides};
}

StridedView mlir::memopt::getStridedView(Value value) {
  auto op = value.getDefiningOp<ViewOpInterface>();
  if (!op || op.getViewKind() == ViewKind::Assembled)
    return getPackedView(value);
  std::optional<StridedView> view = apply(op, getStridedView(op->getOperand(0)));
  return view ? *view : getPackedView(value);
}
