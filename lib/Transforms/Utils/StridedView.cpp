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

//===----------------------------------------------------------------------===//
// Dimensions of runs
//===----------------------------------------------------------------------===//

namespace {
/// Elements, or runs of them, at equal distances.
struct Run {
  int64_t count, stride;
};

/// The runs of a dimension, the outermost first. Two of them cannot be said by one stride: a reshape
/// has joined dimensions that do not continue each other. The next one may take them apart again, as
/// where heads of all samples are made of transposed tokens. None: the dimension is 1.
using Runs = SmallVector<Run, 2>;

struct NestedView {
  Value buffer;
  int64_t offset = 0;
  SmallVector<int64_t> shape;
  SmallVector<Runs> dims;
};
} // namespace

static NestedView nest(Value buffer) {
  NestedView view{buffer, 0, SmallVector<int64_t>(tensorType(buffer).getShape()), {}};
  for (auto [size, stride] : llvm::zip_equal(view.shape, computeStrides(view.shape)))
    view.dims.push_back(size == 1 ? Runs() : Runs({{size, stride}}));
  return view;
}

/// All runs, those as one that continue each other.
static Runs join(ArrayRef<Runs> dims) {
  Runs joined;
  for (const Runs &dim : dims)
    for (Run run : dim)
      if (!joined.empty() && joined.back().stride == run.count * run.stride)
        joined.back() = {joined.back().count * run.count, run.stride};
      else
        joined.push_back(run);
  return joined;
}

/// Nothing where a dimension would end within a run whose count it does not divide.
static std::optional<NestedView> reshape(const NestedView &source, ArrayRef<int64_t> to) {
  NestedView view{source.buffer, source.offset, SmallVector<int64_t>(to),
                  SmallVector<Runs>(to.size())};
  Runs left = join(source.dims);
  for (size_t dim = to.size(); dim-- > 0;)
    for (int64_t open = to[dim]; open != 1;) {
      if (open == 0 || left.empty())
        return std::nullopt;
      Run &inner = left.back();
      int64_t taken = std::min(inner.count, open);
      if (open % taken != 0 || inner.count % taken != 0)
        return std::nullopt;
      view.dims[dim].insert(view.dims[dim].begin(), {taken, inner.stride});
      open /= taken;
      if (taken == inner.count)
        left.pop_back();
      else
        inner = {inner.count / taken, inner.stride * taken};
    }
  return view;
}

/// `source` through a map that is affine in the indices of `shape`. A dimension of several runs goes
/// through as a whole.
static std::optional<NestedView> mapStrides(const NestedView &source, AffineMap map,
                                            ArrayRef<int64_t> shape) {
  size_t rank = shape.size();
  NestedView view{source.buffer, source.offset, SmallVector<int64_t>(shape),
                  SmallVector<Runs>(rank)};
  SmallVector<int64_t> strides(rank, 0), readers(rank, 0);
  for (auto [expr, runs, size] : llvm::zip_equal(map.getResults(), source.dims, source.shape)) {
    SmallVector<int64_t> factors; // of dimensions, of what is not affine, and the constant
    if (failed(getFlattenedAffineExpr(expr, map.getNumDims(), 0, &factors)) ||
        factors.size() != rank + 1)
      return std::nullopt;
    auto dim = dyn_cast<AffineDimExpr>(expr);
    for (size_t i = 0; i < rank; ++i)
      readers[i] += factors[i] != 0;
    if (runs.size() > 1) {
      if (!dim || shape[dim.getPosition()] != size)
        return std::nullopt;
      view.dims[dim.getPosition()] = runs;
      continue;
    }
    int64_t stride = runs.empty() ? 0 : runs.front().stride;
    view.offset += factors.back() * stride;
    for (size_t i = 0; i < rank; ++i)
      strides[i] += factors[i] * stride;
  }
  for (size_t i = 0; i < rank; ++i) {
    if (view.dims[i].size() > 1 && readers[i] > 1)
      return std::nullopt;
    if (view.dims[i].empty() && shape[i] != 1)
      view.dims[i] = {{shape[i], strides[i]}};
  }
  return view;
}

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

/// `source` seen through `op`.
static std::optional<NestedView> apply(ViewOpInterface op, const NestedView &source) {
  ArrayRef<int64_t> shape = tensorType(op->getResult(0)).getShape();
  if (op.getViewKind() == ViewKind::Strided)
    return mapStrides(source, op.getViewParts().front().map, shape);
  return reshape(source, shape);
}

/// Nothing where a dimension has several runs. A dimension of 1 goes on behind the next one.
static std::optional<StridedView> flatten(const NestedView &nested) {
  StridedView view{nested.buffer, nested.offset, nested.shape,
                   SmallVector<int64_t>(nested.shape.size())};
  int64_t behind = 1;
  for (size_t dim = view.shape.size(); dim-- > 0;) {
    Runs runs = join(nested.dims[dim]);
    if (runs.size() > 1)
      return std::nullopt;
    view.strides[dim] = runs.empty() ? behind : runs.front().stride;
    behind = view.strides[dim] * view.shape[dim];
  }
  return view;
}

/// `value` as a view of `buffer`, through these ops, the last one first.
static std::optional<StridedView> viewThrough(ArrayRef<ViewOpInterface> ops, Value buffer) {
  NestedView view = nest(buffer);
  for (ViewOpInterface op : llvm::reverse(ops)) {
    std::optional<NestedView> next = apply(op, view);
    if (!next)
      return std::nullopt;
    view = std::move(*next);
  }
  return flatten(view);
}

StridedView mlir::memopt::getStridedView(Value value) {
  SmallVector<ViewOpInterface> ops;
  for (auto op = value.getDefiningOp<ViewOpInterface>();
       op && op.getViewKind() != ViewKind::Assembled;
       op = op->getOperand(0).getDefiningOp<ViewOpInterface>())
    ops.push_back(op);
  for (; !ops.empty(); ops.pop_back())
    if (std::optional<StridedView> view = viewThrough(ops, ops.back()->getOperand(0)))
      return *view;
  return getPackedView(value);
}
