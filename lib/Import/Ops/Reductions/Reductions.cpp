//===- Reductions.cpp - sums, means, variances, truth -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Reductions/Reductions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
namespace arith = mlir::arith;

using mlir::memopt::ReduceKind;

//===----------------------------------------------------------------------===//
// What reducing operators share
//===----------------------------------------------------------------------===//

Expected<Reduction> memopt::pt2::getReduction(OpContext &op, StringRef dimensions, DType type) {
  Tensor self = op.tensor("self");
  if (self.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  Reduction result;
  if (dimensions.empty()) {
    append_range(result.dimensions, seq<int64_t>(0, self.rank()));
  } else {
    ASSIGN_OR_RETURN(result.dimensions, op.dimensions(dimensions, self.rank()));
    result.keep = op.hasParameter("keepdim") && op.flag("keepdim");
  }
  result.value = op.get(castTo(op, self, type));
  return result;
}

Value memopt::pt2::reduce(OpContext &op, const Reduction &reduction, Value value, ReduceKind kind) {
  return reduceValue(op.b, value, kind, reduction.dimensions, reduction.keep);
}

Value memopt::pt2::reduceKeeping(OpContext &op, const Reduction &reduction, Value value,
                                 ReduceKind kind) {
  return reduceValue(op.b, value, kind, reduction.dimensions, /*keep=*/true);
}

Element memopt::pt2::spread(OpContext &op, const Reduction &reduction, Value kept) {
  return {op.b, broadcastValue(op.b, kept, reduction.sizes())};
}

Value memopt::pt2::dropKept(OpContext &op, const Reduction &reduction, Value kept) {
  Shape sizes;
  for (auto [dim, size] : enumerate(cast<RankedTensorType>(kept.getType()).getShape()))
    if (reduction.keep || !is_contained(reduction.dimensions, int64_t(dim)))
      sizes.push_back(size);
  return reshapeValue(op.b, kept, sizes);
}

Value memopt::pt2::countOf(OpContext &op, const Reduction &reduction, Value like) {
  auto type = cast<RankedTensorType>(like.getType());
  Value count =
      mlir::memopt::CountOp::create(op.b, RankedTensorType::get({}, type.getElementType()),
                                    reduction.value, reduction.dimensions);
  return broadcastValue(op.b, count, type.getShape());
}

Value memopt::pt2::meanOf(OpContext &op, const Reduction &reduction, Value value) {
  Value sum = reduce(op, reduction, value, ReduceKind::Add);
  return arith::DivFOp::create(op.b, sum, countOf(op, reduction, sum));
}

/// Sums and products of bytes wrap around by themselves, extremes need the sign.
static Error setReduced(OpContext &op, const Reduction &reduction, ReduceKind kind,
                        DType computed) {
  Value result = reduce(op, reduction, reduction.value, kind);
  DType type = op.resultMeta(0).dtype;
  return setResult(op, op.wrap(type, convert(op.b, result, computed, type)));
}

//===----------------------------------------------------------------------===//
// Sums, products and means
//===----------------------------------------------------------------------===//

static Error lowerTotal(OpContext &op, StringRef dimensions, ReduceKind kind) {
  DType type = op.resultMeta(0).dtype, compute = type == DType::Bool ? DType::I64 : type;
  // Sums of booleans as such do not exist: their type is i64.
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, compute));
  return setReduced(op, reduction, kind, compute);
}

static Error lowerSumAll(OpContext &op) { return lowerTotal(op, "", ReduceKind::Add); }
static Error lowerSumDim(OpContext &op) { return lowerTotal(op, "dim", ReduceKind::Add); }
static Error lowerProductAll(OpContext &op) { return lowerTotal(op, "", ReduceKind::Mul); }
static Error lowerProductDim(OpContext &op) { return lowerTotal(op, "dim", ReduceKind::Mul); }

static Error lowerMean(OpContext &op, StringRef dimensions) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, type));
  return setResult(op, op.wrap(type, meanOf(op, reduction, reduction.value)));
}
static Error lowerMeanAll(OpContext &op) { return lowerMean(op, ""); }
static Error lowerMeanDim(OpContext &op) { return lowerMean(op, "dim"); }

/// Elements that are numbers count, NaNs are left out.
template <bool isMean> static Error lowerNanTotal(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return lowerTotal(op, "dim", ReduceKind::Add);
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, "dim", type));
  Element x(op.b, reduction.value), hole = isNaN(x);
  Element sum(op.b, reduce(op, reduction, select(hole, 0.0, x), ReduceKind::Add));
  if (!isMean)
    return setResult(op, op.wrap(type, sum));
  Element counted = select(hole, x.like(0), x.like(1));
  Element count(op.b, reduce(op, reduction, counted, ReduceKind::Add));
  return setResult(op, op.wrap(type, sum / count));
}

static Error lowerCountNonzero(OpContext &op) {
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, "dim", DType::Bool));
  reduction.value = convert(op.b, reduction.value, DType::Bool, DType::I64);
  return setReduced(op, reduction, ReduceKind::Add, DType::I64);
}

/// Sums what broadcasting to these sizes would repeat. Small integers become i64 where they are
/// summed.
static Error lowerSumToSize(OpContext &op) {
  Tensor self = castTo(op, op.tensor("self"), op.resultMeta(0).dtype);
  Shape sizes(op.integers("size"));
  int64_t extra = self.rank() - int64_t(sizes.size());
  Shape dimensions;
  for (int64_t dim = 0; dim < self.rank(); ++dim)
    if (dim < extra || (sizes[dim - extra] == 1 && self.sizes[dim] != 1))
      dimensions.push_back(dim);
  if (extra < 0 || self.getNumElements() == 0)
    return op.error("cannot sum " + toString(self.sizes) + " to " + toString(sizes));
  Value sum = reduceValue(op.b, op.get(self), ReduceKind::Add, dimensions);
  ASSIGN_OR_RETURN(Tensor shaped, reshape(op, op.wrap(self.dtype, sum), sizes));
  return setResult(op, op.copy(shaped));
}

//===----------------------------------------------------------------------===//
// Variances
//===----------------------------------------------------------------------===//

namespace {
struct Moments {
  Value mean, variance;
};
} // namespace

/// Two passes: the mean, then squared distances from it, which f64 holds without overflow; the
/// variance has that type. Its derivative by the mean is the sum of the distances, which is zero.
static Expected<Moments> getMoments(OpContext &op, StringRef dimensions, double correction) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, type));
  Element x(op.b, reduction.value);
  Element sum(op.b, reduceKeeping(op, reduction, x, ReduceKind::Add));
  Element mean = sum / Element(op.b, countOf(op, reduction, sum));
  Element distance = x - spread(op, reduction, withoutGradient(mean));
  Element wide(op.b, convert(op.b, distance, type, DType::F64));
  Element squares(op.b, reduce(op, reduction, wide * wide, ReduceKind::Add));
  Element count(op.b, countOf(op, reduction, squares));
  if (correction != 0)
    count = largerOf(count - correction, count.like(0));
  return Moments{dropKept(op, reduction, mean), squares / count};
}

/// The three spellings of these overloads: everything, dimensions with a flag, dimensions with a
/// number.
enum class Spread { Default, Dim, Correction };
template <Spread spread> static Expected<Moments> getMoments(OpContext &op) {
  if (spread == Spread::Correction)
    return getMoments(op, "dim", op.has("correction") ? op.number("correction") : 1);
  return getMoments(op, spread == Spread::Dim ? "dim" : "", op.flag("unbiased") ? 1 : 0);
}

template <bool isRoot> static Value spreadOf(OpContext &op, const Moments &moments) {
  Element variance(op.b, moments.variance);
  return convert(op.b, isRoot ? distanceRoot(variance) : variance, DType::F64,
                 op.resultMeta(0).dtype);
}

template <Spread spread, bool isRoot> static Error lowerSpread(OpContext &op) {
  ASSIGN_OR_RETURN(Moments moments, getMoments<spread>(op));
  return setResult(op, op.wrap(op.resultMeta(0).dtype, spreadOf<isRoot>(op, moments)));
}

template <Spread spread, bool isRoot> static Error lowerSpreadAndMean(OpContext &op) {
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  ASSIGN_OR_RETURN(Moments moments, getMoments<spread>(op));
  op.setResult(0, spreadOf<isRoot>(op, moments));
  op.setResult(1, moments.mean);
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Log-sum-exp, truth
//===----------------------------------------------------------------------===//

/// m + log(sum(exp(x - m))), m the largest element, or 0 where that is -inf. Where it is inf, so is
/// the result, and the largest finite m keeps the gradient of finite elements at 0, not inf / inf.
/// No gradient passes through m: it cancels.
static Error lowerLogSumExp(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, "dim", type));
  Element largest(op.b, reduceKeeping(op, reduction, reduction.value, ReduceKind::Max));
  Element finite = select(equals(largest, -std::numeric_limits<double>::infinity()), 0.0, largest);
  Element m = withoutGradient(smallerOf(finite, finite.like(getLargestFinite(type))));
  Element shifted = Element(op.b, reduction.value) - spread(op, reduction, m);
  Element sum(op.b, reduce(op, reduction, exp(shifted), ReduceKind::Add));
  return setResult(op, op.wrap(type, log(sum) + Element(op.b, dropKept(op, reduction, m))));
}

/// Whether any element, or all, differ from zero; for bytes a byte in PyTorch.
static Error lowerTruth(OpContext &op, StringRef dimensions, bool all) {
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, DType::Bool));
  reduction.value = convert(op.b, reduction.value, DType::Bool, DType::I32);
  Value extreme = reduce(op, reduction, reduction.value, all ? ReduceKind::Min : ReduceKind::Max);
  DType type = op.resultMeta(0).dtype;
  return setResult(op, op.wrap(type, convert(op.b, extreme, DType::I32, type)));
}
template <bool all> static Error lowerTruthAll(OpContext &op) { return lowerTruth(op, "", all); }
template <bool all> static Error lowerTruthDim(OpContext &op) { return lowerTruth(op, "dim", all); }

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

static void registerSpreads(OpTable &table) {
  constexpr StringLiteral byCorrection =
      "Tensor self, int[]? dim=None, Scalar? correction=None, bool keepdim=False";
  constexpr StringLiteral byDim = "Tensor self, int[]? dim, bool unbiased=True, bool keepdim=False";
  constexpr StringLiteral ofAll = "Tensor self, bool unbiased=True";
  table.add("aten.var.correction", byCorrection, lowerSpread<Spread::Correction, false>);
  table.add("aten.var.dim", byDim, lowerSpread<Spread::Dim, false>);
  table.add("aten.var.default", ofAll, lowerSpread<Spread::Default, false>);
  table.add("aten.std.correction", byCorrection, lowerSpread<Spread::Correction, true>);
  table.add("aten.std.dim", byDim, lowerSpread<Spread::Dim, true>);
  table.add("aten.std.default", ofAll, lowerSpread<Spread::Default, true>);
  table.add("aten.var_mean.correction", byCorrection,
            lowerSpreadAndMean<Spread::Correction, false>);
  table.add("aten.var_mean.dim", byDim, lowerSpreadAndMean<Spread::Dim, false>);
  table.add("aten.var_mean.default", ofAll, lowerSpreadAndMean<Spread::Default, false>);
  table.add("aten.std_mean.correction", byCorrection, lowerSpreadAndMean<Spread::Correction, true>);
  table.add("aten.std_mean.dim", byDim, lowerSpreadAndMean<Spread::Dim, true>);
  table.add("aten.std_mean.default", ofAll, lowerSpreadAndMean<Spread::Default, true>);
}

void memopt::pt2::registerReductions(OpTable &table) {
  constexpr StringLiteral ofAll = "Tensor self, dtype? dtype=None",
                          byDims = "Tensor self, int[]? dim=None, bool keepdim=False, "
                                   "dtype? dtype=None";
  table.add("aten.sum.default", ofAll, lowerSumAll);
  table.add("aten.sum.dim_IntList", byDims, lowerSumDim);
  table.add("aten.prod.default", ofAll, lowerProductAll);
  table.add("aten.prod.dim_int", byDims, lowerProductDim);
  table.add("aten.mean.default", ofAll, lowerMeanAll);
  table.add("aten.mean.dim", byDims, lowerMeanDim);
  table.add("aten.nansum.default", byDims, lowerNanTotal<false>);
  table.add("aten.nanmean.default", byDims, lowerNanTotal<true>);
  table.add("aten.count_nonzero.default", "Tensor self, int[]? dim=None", lowerCountNonzero);
  table.add("aten.count_nonzero.dim_IntList", "Tensor self, int[]? dim", lowerCountNonzero);
  table.add("aten.sum_to_size.default", "Tensor self, int[] size", lowerSumToSize);
  registerSpreads(table);
  table.add("aten.logsumexp.default", "Tensor self, int[] dim, bool keepdim=False", lowerLogSumExp);
  table.add("aten.any.default", "Tensor self", lowerTruthAll<false>);
  table.add("aten.any.dim", "Tensor self, int[] dim, bool keepdim=False", lowerTruthDim<false>);
  table.add("aten.any.dims", "Tensor self, int[]? dim=None, bool keepdim=False",
            lowerTruthDim<false>);
  table.add("aten.all.default", "Tensor self", lowerTruthAll<true>);
  table.add("aten.all.dim", "Tensor self, int[] dim, bool keepdim=False", lowerTruthDim<true>);
  table.add("aten.all.dims", "Tensor self, int[]? dim=None, bool keepdim=False",
            lowerTruthDim<true>);
}
