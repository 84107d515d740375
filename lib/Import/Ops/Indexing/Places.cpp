//===- Places.cpp - gathers and scatters of tensors -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

Places Places::identity(ArrayRef<int64_t> sizes) {
  Places places;
  places.sizes.assign(sizes.begin(), sizes.end());
  places.indices.resize(sizes.size());
  append_range(places.positions, seq<int64_t>(0, sizes.size()));
  return places;
}

//===----------------------------------------------------------------------===//
// Index tensors
//===----------------------------------------------------------------------===//

Expected<Tensor> memopt::pt2::prepareIndex(OpContext &op, const Tensor &index, int64_t size,
                                           bool mayBeNegative) {
  if (isFloat(index.dtype) || index.dtype == DType::Bool)
    return op.error("expected integers as indices, found " + getName(index.dtype));
  Tensor wide = index.dtype == DType::I32 ? index : castTo(op, index, DType::I64);
  int64_t least = mayBeNegative ? -size : 0;
  if (wide.constant) {
    for (int64_t i = 0, n = wide.constant->getNumStored(); i != n; ++i)
      if (int64_t at = wide.constant->getStored(i); at < least || at >= size)
        return op.error("index " + Twine(at) + " lies outside a dimension of size " + Twine(size));
    Tensor counted = index;
    counted.dtype = DType::I64;
    counted.constant = ConstantTensor::map(DType::I64, {index.constant}, [&](ArrayRef<int64_t> v) {
      return v[0] < 0 ? v[0] + size : v[0];
    });
    return counted;
  }
  if (!mayBeNegative)
    return wide;
  Scalar zero, length;
  length.integer = size;
  return elementwise(
      op, {wide, zero, length}, wide.dtype, wide.dtype, [](Builder &b, ValueRange v) -> Value {
        Value isBelow = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, v[0], v[1]);
        Value fromEnd = arith::AddIOp::create(b, v[0], v[2]);
        return arith::SelectOp::create(b, isBelow, fromEnd, v[0]);
      });
}

Expected<Tensor> memopt::pt2::placeAt(OpContext &op, const Tensor &tensor, int64_t rank,
                                      ArrayRef<int64_t> dims) {
  Shape sizes(rank, 1);
  for (auto [dim, size] : zip_equal(dims, tensor.sizes))
    sizes[dim] = size;
  return reshape(op, tensor, sizes);
}

namespace {
/// Known indices that vary along one dimension of the walk at most, and count up along it.
struct Progression {
  int64_t begin = 0, step = 1, count = 1;
  std::optional<int64_t> dimension; ///< none when all indices are equal
};
} // namespace

static std::optional<Progression> getProgression(const ConstantTensor &indices) {
  Progression result;
  for (auto [dim, extent] : enumerate(indices.getExtents())) {
    if (extent == 1)
      continue;
    if (result.dimension || extent == 0)
      return std::nullopt;
    result.dimension = dim;
    result.count = extent;
  }
  result.begin = indices.getStored(0);
  if (result.count > 1)
    result.step = indices.getStored(1) - result.begin;
  for (int64_t i = 0; i != result.count; ++i)
    if (indices.getStored(i) != result.begin + i * result.step)
      return std::nullopt;
  return result.step >= 1 ? std::optional(result) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Gather
//===----------------------------------------------------------------------===//

/// Everything known: element by element. Dimensions along which nothing varies are not walked.
static Expected<Tensor> gatherKnown(OpContext &op, const Tensor &source, const Places &places) {
  Shape walked(places.sizes.size(), 1);
  for (auto [dim, index] : enumerate(places.indices)) {
    if (!index) {
      int64_t place = places.positions[dim];
      if (source.extents()[dim] != 1)
        walked[place] = places.sizes[place];
      continue;
    }
    for (auto [place, extent] : enumerate(index->constant->getExtents()))
      if (extent != 1)
        walked[place] = places.sizes[place];
  }
  RETURN_IF_ERROR(checkFoldable(op, walked));
  Constant picked = ConstantTensor::generate(source.dtype, walked, [&](ArrayRef<int64_t> position) {
    Shape at;
    for (auto [dim, index] : enumerate(places.indices)) {
      if (!index) {
        at.push_back(position[places.positions[dim]]);
        continue;
      }
      Shape read(position);
      for (auto [coordinate, size] : zip_equal(read, index->sizes))
        if (size == 1)
          coordinate = 0;
      at.push_back(index->constant->at(read));
    }
    return source.constant->at(at);
  });
  return op.wrap(ConstantTensor::expand(picked, places.sizes));
}

static bool isPosition(const Places &places, int64_t place) {
  for (auto [index, position] : zip_equal(places.indices, places.positions))
    if (!index && position == place)
      return true;
  return false;
}

/// Cuts the source to slices for known indices that count up along a coordinate of their own, or
/// are all equal; the latter's dimensions are dropped.
static Error takeSlices(OpContext &op, Tensor &source, Places &places) {
  for (size_t dim = 0; dim < places.indices.size(); ++dim) {
    const std::optional<Tensor> &index = places.indices[dim];
    if (!index || !index->constant)
      continue;
    std::optional<Progression> found = getProgression(*index->constant);
    if (!found || (found->dimension && isPosition(places, *found->dimension)))
      continue;
    ASSIGN_OR_RETURN(source, slice(op, source, dim, found->begin, found->step, found->count));
    places.indices[dim].reset();
    if (found->dimension) {
      places.positions[dim] = *found->dimension;
      continue;
    }
    Shape without(source.sizes);
    without.erase(without.begin() + dim);
    ASSIGN_OR_RETURN(source, reshape(op, source, without));
    places.indices.erase(places.indices.begin() + dim);
    places.positions.erase(places.positions.begin() + dim);
    --dim;
  }
  return Error::success();
}

/// No indices: dimensions change places, those of the walk that none goes to are repeats.
static Expected<Tensor> rearrange(OpContext &op, Tensor source, const Places &places) {
  SmallVector<std::pair<int64_t, int64_t>> order; // of the walk, of the source
  Shape narrow(places.sizes.size(), 1), permutation;
  for (auto [dim, place] : enumerate(places.positions)) {
    ASSIGN_OR_RETURN(source, slice(op, source, dim, 0, 1, places.sizes[place]));
    narrow[place] = places.sizes[place];
    order.emplace_back(place, dim);
  }
  llvm::sort(order);
  for (auto [place, dim] : order)
    permutation.push_back(dim);
  ASSIGN_OR_RETURN(Tensor result, reshape(op, permute(op, source, permutation), narrow));
  ASSIGN_OR_RETURN(result, expand(op, result, places.sizes));
  return op.copy(result);
}

namespace {
/// The operands and attributes that gather and scatter share.
struct PlaceOperands {
  SmallVector<Value> indices;
  SmallVector<int64_t> indexed, positions;

  PlaceOperands(OpContext &op, const Places &places) {
    for (auto [dim, index] : enumerate(places.indices))
      if (index) {
        indices.push_back(op.getCompact(*index));
        indexed.push_back(dim);
      } else {
        positions.push_back(places.positions[dim]);
      }
  }
};
} // namespace

Expected<Tensor> memopt::pt2::gather(OpContext &op, const Tensor &from, Places places) {
  RETURN_IF_ERROR(countElements(op, places.sizes).takeError());
  if (from.getNumElements() == 0 || is_contained(places.sizes, 0))
    return op.error("tensors without elements are not supported");
  bool isKnown = from.constant && all_of(places.indices, [](const std::optional<Tensor> &index) {
                   return !index || index->constant;
                 });
  if (isKnown)
    return gatherKnown(op, from, places);
  Tensor source = from;
  RETURN_IF_ERROR(takeSlices(op, source, places));
  if (none_of(places.indices, [](const std::optional<Tensor> &index) { return index.has_value(); }))
    return rearrange(op, source, places);
  PlaceOperands operands(op, places);
  return op.wrap(source.dtype, mlir::memopt::GatherOp::create(
                                   op.b, op.tensorType(source.dtype, places.sizes), op.get(source),
                                   operands.indices, operands.indexed, operands.positions));
}

Expected<Tensor> memopt::pt2::gatherAlong(OpContext &op, const Tensor &source, const Tensor &index,
                                          int64_t dim) {
  Places places = Places::identity(index.sizes);
  ASSIGN_OR_RETURN(places.indices[dim], prepareIndex(op, index, source.sizes[dim], false));
  return gather(op, source, std::move(places));
}

Expected<Tensor> memopt::pt2::selectAlong(OpContext &op, const Tensor &source, const Tensor &index,
                                          int64_t dim, bool mayBeNegative) {
  Shape sizes(source.sizes);
  sizes[dim] = index.getNumElements();
  Places places = Places::identity(sizes);
  ASSIGN_OR_RETURN(Tensor prepared, prepareIndex(op, index, source.sizes[dim], mayBeNegative));
  ASSIGN_OR_RETURN(places.indices[dim], placeAt(op, prepared, source.rank(), dim));
  return gather(op, source, std::move(places));
}

//===----------------------------------------------------------------------===//
// Scatter
//===----------------------------------------------------------------------===//

/// An index that counts from zero along a coordinate of its own is that coordinate; then updates
/// along it never meet.
static Places simplify(const Places &from) {
  Places places = from;
  for (auto [dim, index] : enumerate(places.indices)) {
    if (!index || !index->constant)
      continue;
    std::optional<Progression> found = getProgression(*index->constant);
    bool isCoordinate = found && found->begin == 0 && found->step == 1 && found->dimension &&
                        !isPosition(places, *found->dimension);
    if (!isCoordinate)
      continue;
    places.positions[dim] = *found->dimension;
    index.reset();
  }
  return places;
}

/// Sums and products of booleans are "or" and "and": the extremes of 0 and 1, in a type in which
/// true is the larger.
static Expected<Tensor> scatterBooleans(OpContext &op, mlir::memopt::ScatterKind kind,
                                        const Tensor &input, const Tensor &updates,
                                        const Places &places) {
  using mlir::memopt::ScatterKind;
  bool isOr = kind == ScatterKind::Add || kind == ScatterKind::Max;
  ASSIGN_OR_RETURN(Tensor extremes,
                   scatter(op, isOr ? ScatterKind::Max : ScatterKind::Min,
                           castTo(op, input, DType::I32), castTo(op, updates, DType::I32), places));
  return castTo(op, extremes, DType::Bool);
}

Expected<Tensor> memopt::pt2::scatter(OpContext &op, mlir::memopt::ScatterKind kind,
                                      const Tensor &input, const Tensor &updates,
                                      const Places &places) {
  if (input.getNumElements() == 0 || updates.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  if (updates.sizes != places.sizes || updates.dtype != input.dtype)
    return op.error("cannot put " + getName(updates.dtype) + toString(updates.sizes) + " into " +
                    getName(input.dtype) + toString(input.sizes));
  if (input.dtype == DType::Bool && kind != mlir::memopt::ScatterKind::Set)
    return scatterBooleans(op, kind, input, updates, places);
  PlaceOperands operands(op, simplify(places));
  return op.wrap(input.dtype,
                 mlir::memopt::ScatterOp::create(op.b, op.tensorType(input.dtype, input.sizes),
                                                 op.get(input), op.get(updates), operands.indices,
                                                 kind, operands.indexed, operands.positions));
}
