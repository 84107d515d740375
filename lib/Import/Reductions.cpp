//===- Reductions.cpp - sums, means, extremes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

using mlir::memopt::ReduceKind;

namespace {
/// What is reduced: the tensor in the result's type, the dimensions, and how many elements make
/// one.
struct Reduction {
  Value value;
  Shape dimensions;
  bool keep = false;
};
} // namespace

static Expected<Reduction> getReduction(OpContext &op, StringRef dimensions, DType type) {
  Tensor self = op.tensor("self");
  if (self.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  Reduction result;
  if (dimensions.empty()) {
    append_range(result.dimensions, seq<int64_t>(0, self.rank()));
  } else {
    ASSIGN_OR_RETURN(result.dimensions, op.dimensions(dimensions, self.rank()));
    result.keep = op.flag("keepdim");
  }
  result.value = op.get(castTo(op, self, type));
  return result;
}

static Value reduce(OpContext &op, const Reduction &reduction, Value value, ReduceKind kind) {
  return reduceValue(op.b, value, kind, reduction.dimensions, reduction.keep);
}

/// By the number of elements that were reduced, less `correction` but not less than 0.
static Value divideByCount(OpContext &op, const Reduction &reduction, Value sum,
                           double correction = 0) {
  Value count = countAlong(op.b, reduction.value, reduction.dimensions);
  if (correction != 0) {
    Value less = arith::SubFOp::create(op.b, count, splat(op.b, count.getType(), correction));
    count = arith::MaximumFOp::create(op.b, less, splat(op.b, count.getType(), 0.0));
  }
  ArrayRef<int64_t> sizes = cast<RankedTensorType>(sum.getType()).getShape();
  return arith::DivFOp::create(op.b, sum, broadcastValue(op.b, count, sizes));
}

//===----------------------------------------------------------------------===//
// Sums and means
//===----------------------------------------------------------------------===//

static Error lowerSum(OpContext &op, StringRef dimensions) {
  DType type = op.resultMeta(0).dtype;
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, type));
  return setResult(op, op.wrap(type, reduce(op, reduction, reduction.value, ReduceKind::Add)));
}

static Error lowerMean(OpContext &op, StringRef dimensions) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return op.error("expected a floating-point result, found " + getName(type));
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, type));
  Value sum = reduce(op, reduction, reduction.value, ReduceKind::Add);
  return setResult(op, op.wrap(type, divideByCount(op, reduction, sum)));
}

static Error lowerSumAll(OpContext &op) { return lowerSum(op, ""); }
static Error lowerSumDim(OpContext &op) { return lowerSum(op, "dim"); }
static Error lowerProduct(OpContext &op, StringRef dimensions) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return op.error("products of " + getName(type) + " are not supported");
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, type));
  return setResult(op, op.wrap(type, reduce(op, reduction, reduction.value, ReduceKind::Mul)));
}
static Error lowerProductAll(OpContext &op) { return lowerProduct(op, ""); }
static Error lowerProductDim(OpContext &op) { return lowerProduct(op, "dim"); }
static Error lowerMeanAll(OpContext &op) { return lowerMean(op, ""); }
static Error lowerMeanDim(OpContext &op) { return lowerMean(op, "dim"); }

namespace {
struct Moments {
  Value mean, variance;
};
} // namespace

/// Two passes: the mean, then squared distances from it.
static Expected<Moments> getMoments(OpContext &op, StringRef dimensions, double correction) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return op.error("expected a floating-point result, found " + getName(type));
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, type));
  ArrayRef<int64_t> sizes = cast<RankedTensorType>(reduction.value.getType()).getShape();
  Value sum =
      reduceValue(op.b, reduction.value, ReduceKind::Add, reduction.dimensions, /*keep=*/true);
  Value mean = divideByCount(op, reduction, sum);
  Value distance = arith::SubFOp::create(op.b, reduction.value, broadcastValue(op.b, mean, sizes));
  Value squares = arith::MulFOp::create(op.b, distance, distance);
  Value variance =
      divideByCount(op, reduction, reduce(op, reduction, squares, ReduceKind::Add), correction);
  auto shape = cast<RankedTensorType>(variance.getType()).getShape();
  return Moments{reshapeValue(op.b, mean, shape), variance};
}

/// The three spellings of these overloads: everything, dimensions with a flag, dimensions with a
/// number.
enum class Spread { Default, Dim, Correction };
template <Spread spread> static Expected<Moments> getMoments(OpContext &op) {
  if (spread == Spread::Correction)
    return getMoments(op, "dim", op.has("correction") ? op.number("correction") : 1);
  return getMoments(op, spread == Spread::Dim ? "dim" : "", op.flag("unbiased") ? 1 : 0);
}

template <Spread spread> static Error lowerVar(OpContext &op) {
  ASSIGN_OR_RETURN(Moments moments, getMoments<spread>(op));
  return setResult(op, op.wrap(op.resultMeta(0).dtype, moments.variance));
}

template <Spread spread> static Error lowerStd(OpContext &op) {
  ASSIGN_OR_RETURN(Moments moments, getMoments<spread>(op));
  Value deviation = math::SqrtOp::create(op.b, moments.variance);
  return setResult(op, op.wrap(op.resultMeta(0).dtype, deviation));
}

template <Spread spread> static Error lowerVarMean(OpContext &op) {
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  ASSIGN_OR_RETURN(Moments moments, getMoments<spread>(op));
  op.setResult(0, moments.variance);
  op.setResult(1, moments.mean);
  return Error::success();
}

/// max + log(sum(exp(x - max)))
static Error lowerLogSumExp(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return op.error("expected a floating-point result, found " + getName(type));
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, "dim", type));
  ArrayRef<int64_t> sizes = cast<RankedTensorType>(reduction.value.getType()).getShape();
  Value largest =
      reduceValue(op.b, reduction.value, ReduceKind::Max, reduction.dimensions, /*keep=*/true);
  Value shifted =
      arith::SubFOp::create(op.b, reduction.value, broadcastValue(op.b, largest, sizes));
  Value sum = reduce(op, reduction, math::ExpOp::create(op.b, shifted), ReduceKind::Add);
  Value log = math::LogOp::create(op.b, sum);
  auto shape = cast<RankedTensorType>(log.getType()).getShape();
  return setResult(
      op, op.wrap(type, arith::AddFOp::create(op.b, log, reshapeValue(op.b, largest, shape))));
}

/// Whether any element, or all, differ from zero.
static Error lowerTruth(OpContext &op, StringRef dimensions, bool all) {
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, DType::Bool));
  Value numbers = convert(op.b, reduction.value, DType::Bool, DType::I32);
  Value extreme = reduce(op, reduction, numbers, all ? ReduceKind::Min : ReduceKind::Max);
  return setResult(op, op.wrap(DType::Bool, convert(op.b, extreme, DType::I32, DType::Bool)));
}
template <bool all> static Error lowerTruthAll(OpContext &op) { return lowerTruth(op, "", all); }
template <bool all> static Error lowerTruthDim(OpContext &op) { return lowerTruth(op, "dim", all); }

/// L2 norm only.
static Error lowerNorm(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  double order = op.has("ord") ? op.number("ord") : 2;
  if (order != 2 || !isFloat(type))
    return op.error("only the Euclidean norm of floating-point tensors is supported");
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, "dim", type));
  Value squares = arith::MulFOp::create(op.b, reduction.value, reduction.value);
  Value sum = reduce(op, reduction, squares, ReduceKind::Add);
  return setResult(op, op.wrap(type, math::SqrtOp::create(op.b, sum)));
}

//===----------------------------------------------------------------------===//
// Extremes
//===----------------------------------------------------------------------===//

static Error lowerExtreme(OpContext &op, StringRef dimensions, ReduceKind kind) {
  DType type = op.resultMeta(0).dtype;
  if (type == DType::U8 || type == DType::Bool)
    return op.error("extremes of " + getName(type) + " are not supported");
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, type));
  return setResult(op, op.wrap(type, reduce(op, reduction, reduction.value, kind)));
}

template <ReduceKind kind> static Error lowerExtremeDim(OpContext &op) {
  return lowerExtreme(op, "dim", kind);
}
template <ReduceKind kind> static Error lowerExtremeAll(OpContext &op) {
  return lowerExtreme(op, "", kind);
}

/// The first index at which the largest (smallest) element stands: the least index among those that
/// equal it.
template <ReduceKind kind> static Expected<Value> findExtreme(OpContext &op) {
  Tensor self = op.tensor("self");
  if (!isFloat(self.dtype) || !op.has("dim") || self.rank() == 0 || self.getNumElements() == 0)
    return op.error("expected a floating-point tensor and a dimension");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  Value value = op.get(self);
  auto type = cast<RankedTensorType>(value.getType());
  Value extreme =
      broadcastValue(op.b, reduceValue(op.b, value, kind, dim, /*keep=*/true), self.sizes);
  Value hit = arith::CmpFOp::create(op.b, arith::CmpFPredicate::OEQ, value, extreme);
  auto indexType = type.clone(op.b.getI64Type());
  Value index = mlir::memopt::IotaOp::create(op.b, indexType, dim);
  Scalar beyond;
  beyond.integer = self.sizes[dim] - 1;
  Value candidates = arith::SelectOp::create(op.b, hit, index, splat(op.b, indexType, beyond));
  return reduceValue(op.b, candidates, ReduceKind::Min, dim, op.flag("keepdim"));
}

template <ReduceKind kind> static Error lowerArgExtreme(OpContext &op) {
  ASSIGN_OR_RETURN(Value index, findExtreme<kind>(op));
  return setResult(op, op.wrap(DType::I64, index));
}

/// The extreme and where it stands.
template <ReduceKind kind> static Error lowerExtremeAndIndex(OpContext &op) {
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  ASSIGN_OR_RETURN(Value index, findExtreme<kind>(op));
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, "dim", op.tensor("self").dtype));
  op.setResult(0, reduce(op, reduction, reduction.value, kind));
  op.setResult(1, op.wrap(DType::I64, index));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Running sums
//===----------------------------------------------------------------------===//

void memopt::pt2::registerReductions(OpTable &table) {
  table.add("aten.sum.default", "Tensor self, dtype? dtype=None", lowerSumAll);
  table.add("aten.sum.dim_IntList",
            "Tensor self, int[]? dim, bool keepdim=False, dtype? dtype=None", lowerSumDim);
  table.add("aten.prod.default", "Tensor self, dtype? dtype=None", lowerProductAll);
  table.add("aten.prod.dim_int", "Tensor self, int[] dim, bool keepdim=False, dtype? dtype=None",
            lowerProductDim);
  table.add("aten.mean.default", "Tensor self, dtype? dtype=None", lowerMeanAll);
  table.add("aten.mean.dim", "Tensor self, int[]? dim, bool keepdim=False, dtype? dtype=None",
            lowerMeanDim);
  constexpr StringLiteral byCorrection =
      "Tensor self, int[]? dim=None, Scalar? correction=None, bool keepdim=False";
  constexpr StringLiteral byDim = "Tensor self, int[]? dim, bool unbiased=True, bool keepdim=False";
  constexpr StringLiteral ofAll = "Tensor self, bool unbiased=True";
  table.add("aten.var.correction", byCorrection, lowerVar<Spread::Correction>);
  table.add("aten.var.dim", byDim, lowerVar<Spread::Dim>);
  table.add("aten.var.default", ofAll, lowerVar<Spread::Default>);
  table.add("aten.std.correction", byCorrection, lowerStd<Spread::Correction>);
  table.add("aten.std.dim", byDim, lowerStd<Spread::Dim>);
  table.add("aten.std.default", ofAll, lowerStd<Spread::Default>);
  table.add("aten.var_mean.correction", byCorrection, lowerVarMean<Spread::Correction>);
  table.add("aten.var_mean.dim", byDim, lowerVarMean<Spread::Dim>);
  table.add("aten.var_mean.default", ofAll, lowerVarMean<Spread::Default>);
  table.add("aten.logsumexp.default", "Tensor self, int[] dim, bool keepdim=False", lowerLogSumExp);
  table.add("aten.any.default", "Tensor self", lowerTruthAll<false>);
  table.add("aten.any.dim", "Tensor self, int[] dim, bool keepdim=False", lowerTruthDim<false>);
  table.add("aten.any.dims", "Tensor self, int[]? dim=None, bool keepdim=False",
            lowerTruthDim<false>);
  table.add("aten.all.default", "Tensor self", lowerTruthAll<true>);
  table.add("aten.all.dim", "Tensor self, int[] dim, bool keepdim=False", lowerTruthDim<true>);
  table.add("aten.all.dims", "Tensor self, int[]? dim=None, bool keepdim=False",
            lowerTruthDim<true>);
  table.add("aten.max.dim", "Tensor self, int dim, bool keepdim=False",
            lowerExtremeAndIndex<ReduceKind::Max>);
  table.add("aten.min.dim", "Tensor self, int dim, bool keepdim=False",
            lowerExtremeAndIndex<ReduceKind::Min>);
  table.add("aten.linalg_vector_norm.default",
            "Tensor self, Scalar ord=2, int[]? dim=None, bool keepdim=False, dtype? dtype=None",
            lowerNorm);
  table.add("aten.amax.default", "Tensor self, int[] dim=[], bool keepdim=False",
            lowerExtremeDim<ReduceKind::Max>);
  table.add("aten.amin.default", "Tensor self, int[] dim=[], bool keepdim=False",
            lowerExtremeDim<ReduceKind::Min>);
  table.add("aten.max.default", "Tensor self", lowerExtremeAll<ReduceKind::Max>);
  table.add("aten.min.default", "Tensor self", lowerExtremeAll<ReduceKind::Min>);
  table.add("aten.argmax.default", "Tensor self, int? dim=None, bool keepdim=False",
            lowerArgExtreme<ReduceKind::Max>);
  table.add("aten.argmin.default", "Tensor self, int? dim=None, bool keepdim=False",
            lowerArgExtreme<ReduceKind::Min>);
}
