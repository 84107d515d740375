//===- Shapes.cpp - reshape, transpose, broadcast, slice -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/ViewBuilders.h"
#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::ReassociationIndices;
using mlir::Value;

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

static RankedTensorType withShape(Value value, ArrayRef<int64_t> sizes) {
  return RankedTensorType::get(sizes, cast<RankedTensorType>(value.getType()).getElementType());
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

Value memopt::pt2::reshapeValue(mlir::ImplicitLocOpBuilder &b, Value value,
                                ArrayRef<int64_t> sizes) {
  return mlir::memopt::reshapeTo(b, b.getLoc(), value, sizes);
}

Value memopt::pt2::transposeValue(mlir::ImplicitLocOpBuilder &b, Value value,
                                  ArrayRef<int64_t> permutation) {
  return mlir::memopt::transposeTo(b, b.getLoc(), value, permutation);
}

Value memopt::pt2::broadcastValue(mlir::ImplicitLocOpBuilder &b, Value value,
                                  ArrayRef<int64_t> sizes) {
  if (shapeOf(value) == sizes)
    return value;
  mlir::SplatElementsAttr splat;
  if (matchPattern(value, mlir::m_Constant(&splat)))
    return mlir::arith::ConstantOp::create(b, splat.resizeSplat(withShape(value, sizes)));
  int64_t rank = shapeOf(value).size(), offset = int64_t(sizes.size()) - rank;
  auto dims = to_vector(seq<int64_t>(offset, offset + rank));
  return mlir::memopt::BroadcastOp::create(b, withShape(value, sizes), value, dims);
}

Value memopt::pt2::broadcastAlong(mlir::ImplicitLocOpBuilder &b, Value value, int64_t dim,
                                  ArrayRef<int64_t> sizes) {
  if (sizes.size() == 1)
    return value;
  return mlir::memopt::BroadcastOp::create(b, withShape(value, sizes), value, ArrayRef(dim));
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// The result shares memory with `from` but is not the same tensor.
static Tensor viewOf(OpContext &op, const Tensor &from, ArrayRef<int64_t> sizes, Value value,
                     Constant constant) {
  Tensor result = from;
  result.sizes.assign(sizes.begin(), sizes.end());
  result.value = value;
  result.constant = std::move(constant);
  result.view = op.importer.newIdentity();
  return result;
}

Expected<int64_t> memopt::pt2::countElements(OpContext &op, ArrayRef<int64_t> sizes) {
  int64_t count = 1;
  if (sizes.size() > limits::rank)
    return op.error("shape " + toString(sizes) + " has more than " + Twine(limits::rank) +
                    " dimensions");
  for (int64_t size : sizes) {
    if (size < 0)
      return op.error("shape " + toString(sizes) + " has a negative size");
    if (size && count > limits::elements / size)
      return op.error("shape " + toString(sizes) + " has too many elements");
    count *= size;
  }
  return count;
}

Error memopt::pt2::checkFoldable(OpContext &op, ArrayRef<int64_t> sizes) {
  ASSIGN_OR_RETURN(int64_t count, countElements(op, sizes));
  if (count > limits::foldedElements)
    return op.error("index arithmetic on " + Twine(count) + " elements; the limit is " +
                    Twine(limits::foldedElements));
  return Error::success();
}

/// Where only dimensions of size 1 come or go, a value that waits for its broadcast can go on
/// waiting.
static std::optional<Shape> reshapeExtents(const Tensor &from, ArrayRef<int64_t> sizes) {
  Shape result(sizes.size(), 1);
  size_t source = 0;
  for (auto [dim, size] : enumerate(sizes)) {
    if (size == 1)
      continue;
    while (source < from.sizes.size() && from.sizes[source] == 1)
      ++source;
    if (source == from.sizes.size() || from.sizes[source] != size)
      return std::nullopt;
    result[dim] = from.extents()[source++];
  }
  return result;
}

Tensor memopt::pt2::makeEmpty(OpContext &op, DType dtype, ArrayRef<int64_t> sizes) {
  return op.wrap(ConstantTensor::splat(dtype, sizes, 0));
}

Expected<Tensor> memopt::pt2::withDimension(OpContext &op, const Tensor &tensor) {
  return tensor.rank() ? tensor : reshape(op, tensor, 1);
}

Expected<Tensor> memopt::pt2::reshape(OpContext &op, const Tensor &from, ArrayRef<int64_t> sizes) {
  if (ArrayRef(from.sizes) == sizes)
    return viewOf(op, from, sizes, from.value, from.constant);
  ASSIGN_OR_RETURN(int64_t count, countElements(op, sizes));
  if (count != from.getNumElements())
    return op.error("cannot give " + Twine(from.getNumElements()) + " elements of shape " +
                    toString(from.sizes) + " the shape " + toString(sizes));
  if (count == 0)
    return makeEmpty(op, from.dtype, sizes);
  if (from.constant) {
    if (!from.constant->getSplat())
      RETURN_IF_ERROR(checkFoldable(op, sizes));
    return viewOf(op, from, sizes, nullptr, ConstantTensor::reshape(from.constant, sizes));
  }
  if (auto extents = reshapeExtents(from, sizes))
    return viewOf(op, from, sizes, reshapeValue(op.b, from.value, *extents), nullptr);
  return viewOf(op, from, sizes, reshapeValue(op.b, op.get(from), sizes), nullptr);
}

Tensor memopt::pt2::permute(OpContext &op, const Tensor &from, ArrayRef<int64_t> permutation) {
  Shape sizes;
  for (int64_t dim : permutation)
    sizes.push_back(from.sizes[dim]);
  if (from.constant)
    return viewOf(op, from, sizes, nullptr, ConstantTensor::permute(from.constant, permutation));
  return viewOf(op, from, sizes, transposeValue(op.b, from.value, permutation), nullptr);
}

Expected<Tensor> memopt::pt2::expand(OpContext &op, const Tensor &from, ArrayRef<int64_t> sizes) {
  int64_t offset = int64_t(sizes.size()) - from.rank();
  if (offset < 0)
    return op.error("cannot expand shape " + toString(from.sizes) + " to " + toString(sizes));
  Shape target(sizes), padded(offset, 1);
  append_range(padded, from.sizes);
  for (auto [dim, size] : enumerate(target)) {
    if (size == -1 && int64_t(dim) >= offset)
      size = padded[dim];
    if (size < 0 || (padded[dim] != 1 && padded[dim] != size))
      return op.error("cannot expand shape " + toString(from.sizes) + " to " + toString(sizes));
  }
  RETURN_IF_ERROR(countElements(op, target).takeError());
  ASSIGN_OR_RETURN(Tensor result, reshape(op, from, padded));
  if (result.constant)
    result.constant = ConstantTensor::expand(result.constant, target);
  result.sizes = target;
  return result;
}

/// The tensor that holds all of a slice, and where the slice begins in it: one of those that were
/// joined. So the last step of a recurrent layer needs none of the others.
static std::pair<Value, int64_t> findJoinedPart(Value value, int64_t dim, int64_t begin,
                                                int64_t end) {
  auto concat = value.getDefiningOp<mlir::tensor::ConcatOp>();
  if (!concat || int64_t(concat.getDim()) != dim)
    return {value, begin};
  int64_t first = 0;
  for (Value part : concat.getInputs()) {
    int64_t size = cast<RankedTensorType>(part.getType()).getDimSize(dim);
    if (begin >= first && end <= first + size)
      return findJoinedPart(part, dim, begin - first, end - first);
    first += size;
  }
  return {value, begin};
}

/// Slice `begin`, ... of dimension `dim`. What was joined and then permuted is cut before it is
/// permuted.
static Value cutSlice(OpContext &op, Value value, int64_t dim, int64_t begin, int64_t step,
                      int64_t count) {
  auto transpose = value.getDefiningOp<mlir::memopt::TransposeOp>();
  if (transpose && transpose.getInput().getDefiningOp<mlir::tensor::ConcatOp>()) {
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    Value cut = cutSlice(op, transpose.getInput(), permutation[dim], begin, step, count);
    return transposeValue(op.b, cut, permutation);
  }
  auto [part, first] = findJoinedPart(value, dim, begin, begin + (count - 1) * step + 1);
  Shape extents(cast<RankedTensorType>(part.getType()).getShape());
  if (first == 0 && step == 1 && count == extents[dim])
    return part;
  extents[dim] = count;
  SmallVector<mlir::OpFoldResult> offsets(extents.size(), op.b.getIndexAttr(0)), counts,
      strides(extents.size(), op.b.getIndexAttr(1));
  for (int64_t extent : extents)
    counts.push_back(op.b.getIndexAttr(extent));
  offsets[dim] = op.b.getIndexAttr(first);
  strides[dim] = op.b.getIndexAttr(step);
  return mlir::tensor::ExtractSliceOp::create(op.b, withShape(part, extents), part, offsets, counts,
                                              strides);
}

Expected<Tensor> memopt::pt2::slice(OpContext &op, const Tensor &from, int64_t dim, int64_t begin,
                                    int64_t step, int64_t count) {
  Shape sizes(from.sizes);
  sizes[dim] = count;
  if (begin == 0 && step == 1 && count == from.sizes[dim])
    return viewOf(op, from, sizes, from.value, from.constant);
  if (is_contained(sizes, 0))
    return makeEmpty(op, from.dtype, sizes);
  if (from.constant) {
    RETURN_IF_ERROR(checkFoldable(op, from.constant->getExtents()));
    return viewOf(op, from, sizes, nullptr,
                  ConstantTensor::slice(from.constant, dim, begin, step, count));
  }
  Shape extents(from.extents());
  if (extents[dim] == 1 && from.sizes[dim] != 1)
    return viewOf(op, from, sizes, from.value, nullptr);
  Value value = cutSlice(op, from.value, dim, begin, step, count);
  return viewOf(op, from, sizes, value, nullptr);
}

Tensor memopt::pt2::flip(OpContext &op, const Tensor &from, ArrayRef<int64_t> dims) {
  SmallVector<int64_t> turned;
  for (int64_t dim : dims)
    if (from.extents()[dim] != 1)
      turned.push_back(dim);
  if (turned.empty())
    return op.copy(from);
  if (!from.constant)
    return op.wrap(from.dtype, from.sizes,
                   mlir::memopt::ReverseOp::create(op.b, from.value, turned));
  Constant result = ConstantTensor::generate(from.dtype, from.constant->getExtents(),
                                             [&](ArrayRef<int64_t> position) {
                                               Shape source(position);
                                               for (int64_t dim : turned)
                                                 source[dim] = from.sizes[dim] - 1 - source[dim];
                                               return from.constant->at(source);
                                             });
  return op.wrap(ConstantTensor::expand(result, from.sizes));
}

Expected<Shape> memopt::pt2::broadcastShapes(OpContext &op, ArrayRef<int64_t> a,
                                             ArrayRef<int64_t> b) {
  Shape result(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i != result.size(); ++i) {
    int64_t left = i < a.size() ? a[a.size() - 1 - i] : 1;
    int64_t right = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (left != right && left != 1 && right != 1)
      return op.error("shapes " + toString(a) + " and " + toString(b) + " do not broadcast");
    int64_t size = left == 1 ? right : left;
    result[result.size() - 1 - i] = size;
  }
  RETURN_IF_ERROR(countElements(op, result).takeError());
  return result;
}
