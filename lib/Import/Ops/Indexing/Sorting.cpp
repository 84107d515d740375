//===- Sorting.cpp - orders of elements, and what they pick -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// memopt.argsort gives positions; elements are gathered by them, which is what has a gradient.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"
#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using mlir::memopt::ReduceKind;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

/// Positions of the first `count` elements along `dim`, which the tensor has.
static Expected<Tensor> argsort(OpContext &op, const Tensor &self, int64_t dim, bool descending,
                                int64_t count) {
  if (self.getNumElements() == 0 || count < 1 || count > self.sizes[dim])
    return op.error("expected from 1 to " + Twine(self.sizes[dim]) + " elements, found " +
                    Twine(count));
  DType compared = getArithmeticType(self.dtype);
  Shape sizes(self.sizes);
  sizes[dim] = count;
  Value positions = mlir::memopt::ArgsortOp::create(
      op.b, op.tensorType(DType::I64, sizes), op.get(castTo(op, self, compared)), dim, descending);
  return op.wrap(DType::I64, positions);
}

/// Sets results 0 and 1, elements and positions, with the sizes that the file claims.
static Error setPair(OpContext &op, const Tensor &values, const Tensor &positions) {
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  ASSIGN_OR_RETURN(Tensor shaped, reshape(op, values, op.resultMeta(0).sizes));
  op.setResult(0, shaped);
  ASSIGN_OR_RETURN(shaped, reshape(op, positions, op.resultMeta(1).sizes));
  op.setResult(1, shaped);
  return Error::success();
}

static Error sort(OpContext &op, int64_t given, bool descending, bool withValues) {
  ASSIGN_OR_RETURN(Tensor self, withDimension(op, op.tensor("self")));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", given, self.rank()));
  ASSIGN_OR_RETURN(Tensor order, argsort(op, self, dim, descending, self.sizes[dim]));
  if (!withValues)
    return setResult(op, reshape(op, order, op.resultMeta(0).sizes));
  ASSIGN_OR_RETURN(Tensor values, gatherAlong(op, self, order, dim));
  return setPair(op, values, order);
}

template <bool withValues> static Error lowerSort(OpContext &op) {
  return sort(op, op.integer("dim"), op.flag("descending"), withValues);
}

static Error lowerMsort(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withDimension(op, op.tensor("self")));
  ASSIGN_OR_RETURN(Tensor order, argsort(op, self, 0, false, self.sizes[0]));
  ASSIGN_OR_RETURN(Tensor values, gatherAlong(op, self, order, 0));
  return setResult(op, reshape(op, values, op.resultMeta(0).sizes));
}

static Error lowerTopk(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withDimension(op, op.tensor("self")));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  ASSIGN_OR_RETURN(Tensor order, argsort(op, self, dim, op.flag("largest"), op.integer("k")));
  ASSIGN_OR_RETURN(Tensor values, gatherAlong(op, self, order, dim));
  return setPair(op, values, order);
}

static Error lowerKthValue(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withDimension(op, op.tensor("self")));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  int64_t k = op.integer("k");
  ASSIGN_OR_RETURN(Tensor order, argsort(op, self, dim, false, k));
  ASSIGN_OR_RETURN(Tensor place, slice(op, order, dim, k - 1, 1, 1));
  ASSIGN_OR_RETURN(Tensor value, gatherAlong(op, self, op.copy(place), dim));
  return setPair(op, value, op.copy(place));
}

//===----------------------------------------------------------------------===//
// Medians and quantiles
//===----------------------------------------------------------------------===//

/// How many elements along `dim` are numbers, as integers of size 1 there.
static Value countNumbers(OpContext &op, const Tensor &self, int64_t dim) {
  Value value = op.get(self);
  auto type = cast<RankedTensorType>(value.getType()).clone(op.b.getI64Type());
  if (!isFloat(self.dtype))
    return splat(op.b,
                 op.tensorType(DType::I64,
                               [&] {
                                 Shape sizes(self.sizes);
                                 sizes[dim] = 1;
                                 return sizes;
                               }()),
                 double(self.sizes[dim]));
  Value isNumber = arith::CmpFOp::create(op.b, arith::CmpFPredicate::ORD, value, value);
  Value ones = arith::ExtUIOp::create(op.b, type, isNumber);
  return reduceValue(op.b, ones, ReduceKind::Add, dim, /*keep=*/true);
}

namespace {
/// A tensor's elements along `dim` with their order, NaN last, and the number of those before NaN.
struct Sorted {
  Tensor self, order;
  int64_t dim;
  Value numbers;

  static Expected<Sorted> of(OpContext &op, const Tensor &self, int64_t dim) {
    ASSIGN_OR_RETURN(Tensor order, argsort(op, self, dim, false, self.sizes[dim]));
    return Sorted{self, order, dim, countNumbers(op, self, dim)};
  }
  /// Where the elements at `places`, integers with any size along `dim`, are in the tensor.
  Expected<Tensor> positionsAt(OpContext &op, Value places) const {
    return gatherAlong(op, order, op.wrap(DType::I64, places), dim);
  }
  Value number(OpContext &op, double value) const { return splat(op.b, numbers.getType(), value); }
};
} // namespace

/// The lower of two middle elements; NaN if there is one, unless they are to be ignored.
static Expected<Tensor> findMedian(OpContext &op, const Sorted &sorted, bool ignoresNan) {
  Builder &b = op.b;
  Value one = sorted.number(op, 1), two = sorted.number(op, 2), zero = sorted.number(op, 0);
  Value last = arith::SubIOp::create(b, sorted.numbers, one);
  Value middle = arith::DivSIOp::create(b, arith::MaxSIOp::create(b, last, zero), two);
  if (ignoresNan)
    return sorted.positionsAt(op, middle);
  Value all = sorted.number(op, double(sorted.self.sizes[sorted.dim]));
  Value hasNan = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, sorted.numbers, all);
  return sorted.positionsAt(op, arith::SelectOp::create(b, hasNan, sorted.numbers, middle));
}

template <bool ignoresNan> static Error lowerMedianDim(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withDimension(op, op.tensor("self")));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  ASSIGN_OR_RETURN(Sorted sorted, Sorted::of(op, self, dim));
  ASSIGN_OR_RETURN(Tensor position, findMedian(op, sorted, ignoresNan));
  ASSIGN_OR_RETURN(Tensor value, gatherAlong(op, self, position, dim));
  return setPair(op, value, position);
}

/// Of all elements; those that are equal to the median share its gradient.
template <bool ignoresNan> static Error lowerMedianAll(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(Tensor flat, reshape(op, self, self.getNumElements()));
  ASSIGN_OR_RETURN(Sorted sorted, Sorted::of(op, flat, 0));
  ASSIGN_OR_RETURN(Tensor position, findMedian(op, sorted, ignoresNan));
  ASSIGN_OR_RETURN(Tensor picked, gatherAlong(op, flat, position, 0));
  ASSIGN_OR_RETURN(Tensor scalar, reshape(op, picked, Shape()));
  if (!isFloat(self.dtype))
    return setResult(op, op.copy(scalar));
  Builder &b = op.b;
  Value median = op.get(scalar), all = op.get(flat);
  Value incoming = mlir::memopt::IncomingGradientOp::create(b, median, b.getI64IntegerAttr(0));
  auto spread = [&](Value value) {
    return broadcastValue(b, reshapeValue(b, value, 1), flat.sizes);
  };
  // NaN is the median of what holds NaN.
  Value equal = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, all, spread(median));
  Value bothNan = arith::AndIOp::create(
      b, arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, all, all),
      arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, spread(median), spread(median)));
  Value wins = arith::OrIOp::create(b, equal, bothNan);
  Value count = reduceValue(b, convert(b, wins, DType::Bool, self.dtype), ReduceKind::Add, 0);
  Value share = arith::DivFOp::create(b, incoming, count);
  Value gradient = arith::SelectOp::create(b, wins, spread(share), splat(b, all.getType(), 0.0));
  auto marked = mlir::memopt::CustomGradientOp::create(b, mlir::TypeRange(median.getType()), median,
                                                       incoming, all, gradient);
  return setResult(op, op.wrap(self.dtype, marked.getResults().front()));
}

namespace {
/// Between which sorted elements a quantile lies.
enum class Between { Linear, Lower, Higher, Nearest, Midpoint };
} // namespace

static Expected<Between> getInterpolation(OpContext &op) {
  StringRef name = op.text("interpolation");
  constexpr StringLiteral names[] = {"linear", "lower", "higher", "nearest", "midpoint"};
  for (auto [i, known] : enumerate(names))
    if (name == known)
      return Between(i);
  return op.error("argument 'interpolation': expected linear, lower, higher, nearest or midpoint, "
                  "found '" +
                  name + "'");
}

/// `ranks` (floats, any size along the sorted dimension) are places between sorted elements.
static Expected<Tensor> interpolate(OpContext &op, const Sorted &sorted, Value ranks, Between how) {
  Builder &b = op.b;
  DType type = sorted.self.dtype;
  auto pick = [&](Value places) -> Expected<Tensor> {
    Value whole = convert(b, places, type, DType::I64);
    ASSIGN_OR_RETURN(Tensor positions, sorted.positionsAt(op, whole));
    return gatherAlong(op, sorted.self, positions, sorted.dim);
  };
  if (how == Between::Lower)
    return pick(mlir::math::FloorOp::create(b, ranks));
  if (how == Between::Higher)
    return pick(mlir::math::CeilOp::create(b, ranks));
  if (how == Between::Nearest)
    return pick(mlir::math::RoundEvenOp::create(b, ranks));
  Value below = mlir::math::FloorOp::create(b, ranks);
  ASSIGN_OR_RETURN(Tensor low, pick(below));
  ASSIGN_OR_RETURN(Tensor high, pick(mlir::math::CeilOp::create(b, ranks)));
  Value lowValue = op.get(low), highValue = op.get(high);
  auto number = [&](double value) { return splat(b, ranks.getType(), value); };
  Value weight =
      how == Between::Midpoint ? number(0.5) : arith::SubFOp::create(b, ranks, below).getResult();
  // As PyTorch's lerp, from the end that is nearer.
  Value step = arith::SubFOp::create(b, highValue, lowValue);
  Value up = arith::AddFOp::create(b, lowValue, arith::MulFOp::create(b, weight, step));
  Value rest = arith::SubFOp::create(b, number(1), weight);
  Value down = arith::SubFOp::create(b, highValue, arith::MulFOp::create(b, step, rest));
  Value isLow = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, weight, number(0.5));
  return op.wrap(type, arith::SelectOp::create(b, isLow, up, down));
}

/// quantile: the quantiles' dimension comes first; the reduced one stays with size 1 or vanishes.
template <bool ignoresNan> static Error lowerQuantile(OpContext &op) {
  Builder &b = op.b;
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(Between how, getInterpolation(op));
  if (!op.has("dim") || self.rank() == 0) {
    ASSIGN_OR_RETURN(self, reshape(op, self, self.getNumElements()));
  }
  ASSIGN_OR_RETURN(int64_t dim,
                   op.has("dim") ? op.dimension("dim", self.rank()) : Expected<int64_t>(0));
  Operand q = op.operand("q");
  Tensor wanted;
  if (auto *scalar = std::get_if<Scalar>(&q))
    wanted = op.wrap(self.dtype, splat(b, op.tensorType(self.dtype, 1), *scalar));
  else
    wanted = castTo(op, std::get<Tensor>(q), self.dtype);
  int64_t count = wanted.getNumElements();
  if (!isFloat(self.dtype) || wanted.rank() > 1 || count == 0 || self.getNumElements() == 0)
    return op.error("expected floating-point elements and quantiles of rank 1 at most");
  ASSIGN_OR_RETURN(Sorted sorted, Sorted::of(op, self, dim));
  Shape sizes(self.sizes);
  sizes[dim] = count;
  Value numbers = broadcastValue(b, sorted.numbers, sizes);
  Value last = convert(b, arith::SubIOp::create(b, numbers, splat(b, numbers.getType(), 1.0)),
                       DType::I64, self.dtype);
  ASSIGN_OR_RETURN(wanted, withDimension(op, wanted));
  ASSIGN_OR_RETURN(Tensor along, placeAt(op, wanted, self.rank(), dim));
  Value ranks = arith::MulFOp::create(
      b, broadcastValue(b, op.get(along), sizes),
      ignoresNan ? last : splat(b, last.getType(), double(self.sizes[dim] - 1)));
  Value zero = splat(b, ranks.getType(), 0.0);
  if (ignoresNan) {
    ranks = arith::MaximumFOp::create(b, ranks, zero);
  } else {
    // Where there is a NaN, it is the quantile, and lies at the end.
    Value end = splat(b, ranks.getType(), double(self.sizes[dim] - 1));
    Value hasNan = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, last, end);
    ranks = arith::SelectOp::create(b, hasNan, end, ranks);
  }
  ASSIGN_OR_RETURN(Tensor result, interpolate(op, sorted, ranks, how));
  Shape order{dim};
  for (int64_t other = 0; other != self.rank(); ++other)
    if (other != dim)
      order.push_back(other);
  return setResult(op, reshape(op, permute(op, result, order), op.resultMeta(0).sizes));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerSorting(OpTable &table) {
  table.add("aten.sort.default", "Tensor self, int dim=-1, bool descending=False", lowerSort<true>);
  table.add("aten.sort.stable", "Tensor self, ignored stable, int dim=-1, bool descending=False",
            lowerSort<true>);
  table.add("aten.argsort.default", "Tensor self, int dim=-1, bool descending=False",
            lowerSort<false>);
  table.add("aten.argsort.stable", "Tensor self, ignored stable, int dim=-1, bool descending=False",
            lowerSort<false>);
  table.add("aten.msort.default", "Tensor self", lowerMsort);
  table.add("aten.topk.default",
            "Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True", lowerTopk);
  table.add("aten.kthvalue.default", "Tensor self, int k, int dim=-1, bool keepdim=False",
            lowerKthValue);
  table.add("aten.median.default", "Tensor self", lowerMedianAll<false>);
  table.add("aten.median.dim", "Tensor self, int dim, bool keepdim=False", lowerMedianDim<false>);
  table.add("aten.nanmedian.default", "Tensor self", lowerMedianAll<true>);
  table.add("aten.nanmedian.dim", "Tensor self, int dim, bool keepdim=False", lowerMedianDim<true>);
  constexpr StringLiteral byTensor =
      "Tensor self, Tensor q, int? dim=None, bool keepdim=False, str interpolation='linear'";
  constexpr StringLiteral byNumber =
      "Tensor self, Scalar q, int? dim=None, bool keepdim=False, str interpolation='linear'";
  table.add("aten.quantile.default", byTensor, lowerQuantile<false>);
  table.add("aten.quantile.scalar", byNumber, lowerQuantile<false>);
  table.add("aten.nanquantile.default", byTensor, lowerQuantile<true>);
  table.add("aten.nanquantile.scalar", byNumber, lowerQuantile<true>);
}
