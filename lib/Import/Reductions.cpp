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
/// What is reduced: the tensor in the result's type, the dimensions, and how many elements make one.
struct Reduction {
  Value value;
  Shape dimensions;
  bool keep = false;
  double count = 1;
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
  for (int64_t dim : result.dimensions)
    result.count *= double(self.sizes[dim]);
  result.value = op.get(castTo(op, self, type));
  return result;
}

static Value reduce(OpContext &op, const Reduction &reduction, Value value, ReduceKind kind) {
  return reduceValue(op.b, value, kind, reduction.dimensions, reduction.keep);
}

static Value divide(OpContext &op, Value value, double by) {
  return arith::DivFOp::create(op.b, value, splat(op.b, value.getType(), by));
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
  return setResult(op, op.wrap(type, divide(op, sum, reduction.count)));
}

static Error lowerSumAll(OpContext &op) { return lowerSum(op, ""); }
static Error lowerSumDim(OpContext &op) { return lowerSum(op, "dim"); }
static Error lowerMeanAll(OpContext &op) { return lowerMean(op, ""); }
static Error lowerMeanDim(OpContext &op) { return lowerMean(op, "dim"); }

namespace {
struct Moments {
  Value mean, variance;
};
} // namespace

/// Two passes: the mean, then squared distances from it.
static Expected<Moments> getMoments(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return op.error("expected a floating-point result, found " + getName(type));
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, "dim", type));
  ArrayRef<int64_t> sizes = cast<RankedTensorType>(reduction.value.getType()).getShape();
  Value sum = reduceValue(op.b, reduction.value, ReduceKind::Add, reduction.dimensions, /*keep=*/true);
  Value mean = divide(op, sum, reduction.count);
  Value distance = arith::SubFOp::create(op.b, reduction.value, broadcastValue(op.b, mean, sizes));
  Value squares = arith::MulFOp::create(op.b, distance, distance);
  double correction = op.has("correction") ? op.number("correction") : 1;
  Value variance = divide(op, reduce(op, reduction, squares, ReduceKind::Add),
                          std::max(reduction.count - correction, 0.0));
  auto shape = cast<RankedTensorType>(variance.getType()).getShape();
  return Moments{reshapeValue(op.b, mean, shape), variance};
}

static Error lowerVar(OpContext &op) {
  ASSIGN_OR_RETURN(Moments moments, getMoments(op));
  return setResult(op, op.wrap(op.resultMeta(0).dtype, moments.variance));
}

static Error lowerStd(OpContext &op) {
  ASSIGN_OR_RETURN(Moments moments, getMoments(op));
  Value deviation = math::SqrtOp::create(op.b, moments.variance);
  return setResult(op, op.wrap(op.resultMeta(0).dtype, deviation));
}

static Error lowerVarMean(OpContext &op) {
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  ASSIGN_OR_RETURN(Moments moments, getMoments(op));
  op.setResult(0, moments.variance);
  op.setResult(1, moments.mean);
  return Error::success();
}

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

template <ReduceKind kind> static Error lowerExtremeDim(OpContext &op) { return lowerExtreme(op, "dim", kind); }
template <ReduceKind kind> static Error lowerExtremeAll(OpContext &op) { return lowerExtreme(op, "", kind); }

/// The first index at which the largest (smallest) element stands: the least index among those that equal it.
template <ReduceKind kind> static Error lowerArgExtreme(OpContext &op) {
  Tensor self = op.tensor("self");
  if (!isFloat(self.dtype) || !op.has("dim") || self.rank() == 0 || self.getNumElements() == 0)
    return op.error("expected a floating-point tensor and a dimension");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  Value value = op.get(self);
  auto type = cast<RankedTensorType>(value.getType());
  Value extreme = broadcastValue(op.b, reduceValue(op.b, value, kind, dim, /*keep=*/true), self.sizes);
  Value hit = arith::CmpFOp::create(op.b, arith::CmpFPredicate::OEQ, value, extreme);
  auto indexType = type.clone(op.b.getI64Type());
  Value index = mlir::memopt::IotaOp::create(op.b, indexType, dim);
  Scalar beyond;
  beyond.integer = self.sizes[dim] - 1;
  Value candidates = arith::SelectOp::create(op.b, hit, index, splat(op.b, indexType, beyond));
  Value first = reduceValue(op.b, candidates, ReduceKind::Min, dim, op.flag("keepdim"));
  return setResult(op, op.wrap(DType::I64, first));
}

//===----------------------------------------------------------------------===//
// Running sums
//===----------------------------------------------------------------------===//

/// Of known integers, as index arithmetic has them.
static Error lowerCumsum(OpContext &op) {
  Tensor self = op.tensor("self");
  DType type = op.resultMeta(0).dtype;
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (!self.constant || isFloat(type) || self.rank() == 0)
    return op.error("running sums of computed values are not supported");
  RETURN_IF_ERROR(checkFoldable(op, self.sizes));
  return setResult(op, op.wrap(ConstantTensor::cumsum(self.constant, dim, type)));
}

void memopt::pt2::registerReductions(OpTable &table) {
  table.add("aten.sum.default", "Tensor self, dtype? dtype=None", lowerSumAll);
  table.add("aten.sum.dim_IntList", "Tensor self, int[]? dim, bool keepdim=False, dtype? dtype=None",
            lowerSumDim);
  table.add("aten.mean.default", "Tensor self, dtype? dtype=None", lowerMeanAll);
  table.add("aten.mean.dim", "Tensor self, int[]? dim, bool keepdim=False, dtype? dtype=None", lowerMeanDim);
  table.add("aten.var.correction",
            "Tensor self, int[]? dim=None, Scalar? correction=None, bool keepdim=False", lowerVar);
  table.add("aten.std.correction",
            "Tensor self, int[]? dim=None, Scalar? correction=None, bool keepdim=False", lowerStd);
  table.add("aten.var_mean.correction",
            "Tensor self, int[]? dim=None, Scalar? correction=None, bool keepdim=False", lowerVarMean);
  table.add("aten.linalg_vector_norm.default",
            "Tensor self, Scalar ord=2, int[]? dim=None, bool keepdim=False, dtype? dtype=None", lowerNorm);
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
  table.add("aten.cumsum.default", "Tensor self, int dim, dtype? dtype=None", lowerCumsum);
}
