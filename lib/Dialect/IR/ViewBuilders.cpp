//===- ViewBuilders.cpp - reshapes, transposes and slices of values -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/ViewBuilders.h"
#include "Verification.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

static RankedTensorType withShape(Value value, ArrayRef<int64_t> shape) {
  return cast<RankedTensorType>(value.getType()).clone(shape);
}

namespace {
/// Two shapes of one number of elements cut into the shortest runs of dimensions with equal
/// products.
struct CommonFactors {
  SmallVector<int64_t> coarse;
  SmallVector<ReassociationIndices> from, to;
};
} // namespace

/// Needs at least one element. Trailing ones join the last run; shapes without dimensions have no
/// run.
static CommonFactors factor(ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  CommonFactors result;
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    ReassociationIndices left{int64_t(i)}, right{int64_t(j)};
    int64_t a = from[i++], b = to[j++];
    while (a != b) {
      if (a < b) {
        left.push_back(i);
        a *= from[i++];
      } else {
        right.push_back(j);
        b *= to[j++];
      }
    }
    result.coarse.push_back(a);
    result.from.push_back(std::move(left));
    result.to.push_back(std::move(right));
  }
  for (; i < from.size() && !result.from.empty(); ++i)
    result.from.back().push_back(i);
  for (; j < to.size() && !result.to.empty(); ++j)
    result.to.back().push_back(j);
  return result;
}

/// What a chain of reshapes began with.
static Value skipReshapes(Value value) {
  while (isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

Value memopt::reshapeTo(OpBuilder &builder, Location location, Value value,
                        ArrayRef<int64_t> sizes) {
  if (shapeOf(value) == sizes)
    return value;
  value = skipReshapes(value);
  ArrayRef<int64_t> from = shapeOf(value);
  if (from == sizes)
    return value;
  CommonFactors factors = factor(from, sizes);
  if (ArrayRef(factors.coarse) != from)
    value = tensor::CollapseShapeOp::create(builder, location, withShape(value, factors.coarse),
                                            value, factors.from);
  if (ArrayRef(factors.coarse) != sizes)
    value = tensor::ExpandShapeOp::create(builder, location, withShape(value, sizes), value,
                                          factors.to);
  return value;
}

Value memopt::transposeTo(OpBuilder &builder, Location location, Value value,
                          ArrayRef<int64_t> permutation) {
  if (llvm::is_sorted(permutation))
    return value;
  SmallVector<int64_t> sizes;
  bool movesElements = false;
  int64_t last = -1;
  for (int64_t dim : permutation) {
    sizes.push_back(shapeOf(value)[dim]);
    if (sizes.back() == 1)
      continue;
    movesElements |= dim < last;
    last = dim;
  }
  if (!movesElements) // only dimensions of size 1 change places
    return reshapeTo(builder, location, value, sizes);
  return TransposeOp::create(builder, location, withShape(value, sizes), value, permutation);
}

Value memopt::takeLeading(OpBuilder &builder, Location location, Value value, int64_t first,
                          int64_t count) {
  SmallVector<int64_t> sizes(shapeOf(value)), offsets(sizes.size(), 0);
  if (sizes.front() == count)
    return value;
  offsets.front() = first;
  sizes.front() = count;
  auto asIndices = [&](ArrayRef<int64_t> numbers) {
    return getAsIndexOpFoldResult(builder.getContext(), numbers);
  };
  return tensor::ExtractSliceOp::create(builder, location, withShape(value, sizes), value,
                                        asIndices(offsets), asIndices(sizes),
                                        asIndices(SmallVector<int64_t>(sizes.size(), 1)));
}
