//===- Normalizations.cpp - batch, layer, group and RMS norm -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// memopt.batch_norm normalizes by the batch's own statistics. Running statistics are updated by
// plain arithmetic beside it, so that a clone of the normalization never updates them twice.
// Normalizing by running statistics is an affine function of each channel and becomes one.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/GraphImporter.h"
#include "memopt/Import/Ops/Reductions/Reductions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

static Value getOrNull(OpContext &op, const std::optional<Tensor> &tensor) {
  return tensor ? op.get(*tensor) : Value();
}

/// Scale, offset and statistics are absent or have one number for each of `sizes`.
static Error checkShapes(OpContext &op, ArrayRef<StringRef> names, ArrayRef<int64_t> sizes,
                         DType type) {
  for (StringRef name : names)
    if (std::optional<Tensor> tensor = op.optionalTensor(name))
      if (ArrayRef(tensor->sizes) != sizes || tensor->dtype != type)
        return op.error("argument '" + name + "': expected " + getName(type) + toString(sizes) +
                        ", found " + getName(tensor->dtype) + toString(tensor->sizes));
  if (!isFloat(type))
    return op.error("expected a floating-point tensor, found " + getName(type));
  return Error::success();
}

/// What these start from in a model exported without data.
static void suggestInitials(OpContext &op, ArrayRef<StringRef> ones, ArrayRef<StringRef> zeros) {
  for (StringRef name : ones)
    if (std::optional<Tensor> tensor = op.optionalTensor(name))
      op.importer.suggestInitial(*tensor, 1);
  for (StringRef name : zeros)
    if (std::optional<Tensor> tensor = op.optionalTensor(name))
      op.importer.suggestInitial(*tensor, 0);
}

/// PyTorch gives saved statistics as results through which no gradient passes, but for group norms.
static Value stopped(OpContext &op, Value statistic) { return withoutGradient({op.b, statistic}); }

static Value inverseDeviation(Builder &b, Value variance, double eps) {
  return math::RsqrtOp::create(
      b, arith::AddFOp::create(b, variance, splat(b, variance.getType(), eps)));
}

//===----------------------------------------------------------------------===//
// Batch norm
//===----------------------------------------------------------------------===//

namespace {
struct BatchNorm {
  Value result, mean, variance;
  std::optional<Tensor> newMean, newVariance;
};
} // namespace

/// (1 - momentum) * running + momentum * batch, which is a number to what reads it behind the norm.
static Tensor updateRunning(OpContext &op, const Tensor &running, Value batch, double momentum) {
  auto scale = [&](Value value, double by) -> Value {
    return arith::MulFOp::create(op.b, value, splat(op.b, value.getType(), by));
  };
  Value kept = scale(op.get(running), 1 - momentum);
  Value moved = arith::AddFOp::create(op.b, kept, scale(batch, momentum));
  return op.importer.stopGradient(op.wrap(running.dtype, moved));
}

static Error checkBatchNorm(OpContext &op, const Tensor &input) {
  if (input.rank() < 2 || input.getNumElements() == 0)
    return op.error("expected an input with batch and channels, found " + toString(input.sizes));
  suggestInitials(op, {"weight", "running_var"}, {"bias", "running_mean"});
  return checkShapes(op, {"weight", "bias", "running_mean", "running_var"}, input.sizes[1],
                     input.dtype);
}

/// n / (n - 1) times the variance of n elements. The count may still change with the batch.
static Value getUnbiased(OpContext &op, Value input, Value variance) {
  SmallVector<int64_t> summed =
      to_vector(seq<int64_t>(0, cast<RankedTensorType>(input.getType()).getRank()));
  summed.erase(summed.begin() + 1);
  auto type = cast<RankedTensorType>(variance.getType());
  Value count = countAlong(op.b, input, summed);
  Value one = splat(op.b, count.getType(), 1.0);
  Value others = arith::MaximumFOp::create(op.b, arith::SubFOp::create(op.b, count, one), one);
  Value factor = arith::DivFOp::create(op.b, count, others);
  return arith::MulFOp::create(op.b, variance, broadcastValue(op.b, factor, type.getShape()));
}

static BatchNorm normalizeByBatch(OpContext &op, const Tensor &input, double momentum, double eps) {
  Value value = op.get(input);
  auto type = cast<RankedTensorType>(value.getType());
  auto perChannel = op.tensorType(input.dtype, input.sizes[1]);
  auto norm = mlir::memopt::BatchNormOp::create(
      op.b, type, perChannel, perChannel, value, getOrNull(op, op.optionalTensor("weight")),
      getOrNull(op, op.optionalTensor("bias")), op.b.getF64FloatAttr(eps),
      op.b.getI64IntegerAttr(1));
  BatchNorm result{norm.getResult(), norm.getMean(), norm.getVariance(), {}, {}};
  if (std::optional<Tensor> running = op.optionalTensor("running_mean"))
    result.newMean = updateRunning(op, *running, result.mean, momentum);
  if (std::optional<Tensor> running = op.optionalTensor("running_var")) {
    // Running variances are unbiased ones.
    result.newVariance =
        updateRunning(op, *running, getUnbiased(op, value, result.variance), momentum);
  }
  return result;
}

/// x * a + b with a = scale / sqrt(variance + eps) and b = offset - mean * a.
static Value normalizeByRunning(OpContext &op, const Tensor &input, double eps) {
  Value factor = inverseDeviation(op.b, op.get(*op.optionalTensor("running_var")), eps);
  if (Value scale = getOrNull(op, op.optionalTensor("weight")))
    factor = arith::MulFOp::create(op.b, factor, scale);
  Value shift = arith::MulFOp::create(op.b, op.get(*op.optionalTensor("running_mean")), factor);
  if (Value offset = getOrNull(op, op.optionalTensor("bias")))
    shift = arith::SubFOp::create(op.b, offset, shift);
  else
    shift = arith::NegFOp::create(op.b, shift);
  Value scaled =
      arith::MulFOp::create(op.b, op.get(input), broadcastAlong(op.b, factor, 1, input.sizes));
  return arith::AddFOp::create(op.b, scaled, broadcastAlong(op.b, shift, 1, input.sizes));
}

static Expected<bool> usesBatch(OpContext &op, bool training) {
  bool hasRunning = op.has("running_mean") && op.has("running_var");
  if (!training && !hasRunning)
    return op.error("normalizes by running statistics but has none");
  return training && !(isEvaluation(op) && hasRunning);
}

/// The training level: running statistics change in place, which the operator's schema does not
/// say.
static Error lowerBatchNorm(OpContext &op) {
  Tensor input = op.tensor("input");
  RETURN_IF_ERROR(checkBatchNorm(op, input));
  ASSIGN_OR_RETURN(bool training, usesBatch(op, op.flag("training")));
  if (!training)
    return setResult(op, op.wrap(input.dtype, normalizeByRunning(op, input, op.number("eps"))));
  BatchNorm norm = normalizeByBatch(op, input, op.number("momentum"), op.number("eps"));
  if (norm.newMean)
    RETURN_IF_ERROR(op.mutate("running_mean", *norm.newMean));
  if (norm.newVariance)
    RETURN_IF_ERROR(op.mutate("running_var", *norm.newVariance));
  return setResult(op, op.wrap(input.dtype, norm.result));
}

/// The functional level: (result, mean, 1 / deviation, new running mean, new running variance).
static Error lowerFunctionalBatchNorm(OpContext &op) {
  if (op.getNumResults() != 5)
    return op.error("expected 5 results, found " + Twine(op.getNumResults()));
  Tensor input = op.tensor("input");
  RETURN_IF_ERROR(checkBatchNorm(op, input));
  ASSIGN_OR_RETURN(bool training, usesBatch(op, op.flag("training")));
  if (!training) {
    op.setResult(0, normalizeByRunning(op, input, op.number("eps")));
    op.setResult(3, op.copy(op.tensor("running_mean")));
    op.setResult(4, op.copy(op.tensor("running_var")));
    return Error::success();
  }
  BatchNorm norm = normalizeByBatch(op, input, op.number("momentum"), op.number("eps"));
  op.setResult(0, norm.result);
  op.setResult(1, stopped(op, norm.mean));
  op.setResult(2, stopped(op, inverseDeviation(op.b, norm.variance, op.number("eps"))));
  op.setResult(3, *norm.newMean);
  op.setResult(4, *norm.newVariance);
  return Error::success();
}

/// Batch statistics only: (result, mean, 1 / deviation).
static Error lowerBatchNormNoStatistics(OpContext &op) {
  Tensor input = op.tensor("input");
  RETURN_IF_ERROR(checkBatchNorm(op, input));
  if (op.getNumResults() != 3 || !op.flag("training"))
    return op.error("expected 3 results and training");
  BatchNorm norm = normalizeByBatch(op, input, op.number("momentum"), op.number("eps"));
  op.setResult(0, norm.result);
  op.setResult(1, stopped(op, norm.mean));
  op.setResult(2, stopped(op, inverseDeviation(op.b, norm.variance, op.number("eps"))));
  return Error::success();
}

static Error lowerBatchNormNoTraining(OpContext &op) {
  Tensor input = op.tensor("input");
  RETURN_IF_ERROR(checkBatchNorm(op, input));
  op.setResult(0, normalizeByRunning(op, input, op.number("eps")));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Layer, group and RMS norm
//===----------------------------------------------------------------------===//

/// The first normalized dimension; checks that the shape to normalize over ends the input's.
static Expected<int64_t> getBegin(OpContext &op, const Tensor &input) {
  ArrayRef<int64_t> normalized = op.integers("normalized_shape");
  if (normalized.empty() || normalized.size() > input.sizes.size() ||
      ArrayRef(input.sizes).take_back(normalized.size()) != normalized ||
      input.getNumElements() == 0)
    return op.error("argument 'normalized_shape': expected the last dimensions of " +
                    toString(input.sizes) + ", found " + toString(normalized));
  return input.rank() - int64_t(normalized.size());
}

static Error lowerLayerNorm(OpContext &op) {
  Tensor input = op.tensor("input");
  ASSIGN_OR_RETURN(int64_t begin, getBegin(op, input));
  RETURN_IF_ERROR(
      checkShapes(op, {"weight", "bias"}, ArrayRef(input.sizes).drop_front(begin), input.dtype));
  suggestInitials(op, {"weight"}, {"bias"});
  auto statistics = op.tensorType(input.dtype, ArrayRef(input.sizes).take_front(begin));
  auto norm = mlir::memopt::LayerNormOp::create(
      op.b, op.tensorType(input.dtype, input.sizes), statistics, statistics, op.get(input),
      getOrNull(op, op.optionalTensor("weight")), getOrNull(op, op.optionalTensor("bias")),
      op.b.getI64IntegerAttr(begin), op.b.getF64FloatAttr(op.number("eps")));
  op.setResult(0, norm.getResult());
  if (op.getNumResults() != 3)
    return Error::success();
  for (auto [index, value] : {std::pair<size_t, Value>(1, norm.getMean()),
                              std::pair<size_t, Value>(2, norm.getInverseDeviation())}) {
    ASSIGN_OR_RETURN(Tensor shaped, reshape(op, op.wrap(input.dtype, stopped(op, value)),
                                            op.resultMeta(index).sizes));
    op.setResult(index, op.copy(shaped));
  }
  return Error::success();
}

static Error normalizeGroups(OpContext &op, int64_t groups) {
  Tensor input = op.tensor("input");
  if (input.rank() < 2 || groups < 1 || input.sizes[1] % groups || input.getNumElements() == 0)
    return op.error("expected groups that divide the channels of " + toString(input.sizes) +
                    ", found " + Twine(groups));
  RETURN_IF_ERROR(checkShapes(op, {"weight", "bias"}, input.sizes[1], input.dtype));
  suggestInitials(op, {"weight"}, {"bias"});
  auto statistics = op.tensorType(input.dtype, {input.sizes[0], groups});
  auto norm = mlir::memopt::GroupNormOp::create(
      op.b, op.tensorType(input.dtype, input.sizes), statistics, statistics, op.get(input),
      getOrNull(op, op.optionalTensor("weight")), getOrNull(op, op.optionalTensor("bias")),
      op.b.getI64IntegerAttr(groups), op.b.getF64FloatAttr(op.number("eps")));
  op.setResult(0, norm.getResult());
  if (op.getNumResults() == 3) {
    op.setResult(1, norm.getMean());
    op.setResult(2, norm.getInverseDeviation());
  }
  return Error::success();
}

static Error lowerGroupNorm(OpContext &op) { return normalizeGroups(op, op.integer("num_groups")); }
static Error lowerNativeGroupNorm(OpContext &op) {
  return normalizeGroups(op, op.integer("group"));
}

/// Running statistics of an instance norm move towards the means over all samples of its own
/// statistics, of which the variances are unbiased.
static Error updateInstanceStatistics(OpContext &op, const Tensor &input) {
  double momentum = op.number("momentum");
  Reduction spatial;
  spatial.value = op.get(input);
  append_range(spatial.dimensions, seq<int64_t>(2, input.rank()));
  spatial.keep = true;
  double count = double(input.getNumElements() / (input.sizes[0] * input.sizes[1]));
  Element x(op.b, spatial.value);
  Element mean = Element(op.b, reduceKeeping(op, spatial, x, ReduceKind::Add)) / count;
  Element distance = x - spread(op, spatial, mean);
  Element squares(op.b, reduceKeeping(op, spatial, distance * distance, ReduceKind::Add));
  Element variance = squares / std::max(count - 1, 1.0);
  for (auto [name, statistic] :
       {std::pair<StringRef, Element>("running_mean", mean), {"running_var", variance}}) {
    if (!op.has(name))
      continue;
    Value kept = reshapeValue(op.b, statistic, {input.sizes[0], input.sizes[1]});
    Element total(op.b, reduceValue(op.b, kept, ReduceKind::Add, 0));
    Value samples = broadcastValue(op.b, countAlong(op.b, kept, 0), {input.sizes[1]});
    RETURN_IF_ERROR(op.mutate(
        name, updateRunning(op, op.tensor(name), total / Element(op.b, samples), momentum)));
  }
  return Error::success();
}

/// A group norm whose groups are the channels, or by running statistics an affine function.
static Error lowerInstanceNorm(OpContext &op) {
  Tensor input = op.tensor("input");
  bool hasRunning = op.has("running_mean") && op.has("running_var");
  RETURN_IF_ERROR(checkBatchNorm(op, input));
  ASSIGN_OR_RETURN(bool byInput, usesBatch(op, op.flag("use_input_stats")));
  if (!byInput)
    return setResult(op, op.wrap(input.dtype, normalizeByRunning(op, input, op.number("eps"))));
  if (hasRunning)
    RETURN_IF_ERROR(updateInstanceStatistics(op, input));
  return normalizeGroups(op, input.sizes[1]);
}

/// g * v / |v|, the norm taken over all dimensions but one (Salimans and Kingma, 2016).
static Error lowerWeightNorm(OpContext &op) {
  Tensor v = op.tensor("v"), g = op.tensor("g");
  // -1 is no dimension from the end: one length of all.
  int64_t dim = op.integer("dim");
  if (dim != -1) {
    ASSIGN_OR_RETURN(dim, op.dimension("dim", v.rank()));
  }
  if (v.rank() < 1 || v.getNumElements() == 0 || !isFloat(v.dtype))
    return op.error("expected a floating-point tensor with dimensions");
  Reduction others;
  others.value = op.get(v);
  others.keep = true;
  for (int64_t i = 0; i != v.rank(); ++i)
    if (i != dim)
      others.dimensions.push_back(i);
  return mapReals(op, {v, g, op.wrap(v.dtype, normOf(op, others, 2))},
                  [](ArrayRef<Element> x) { return x[0] * (x[1] / x[2]); });
}

static Error lowerRmsNorm(OpContext &op) {
  Tensor input = op.tensor("input");
  ASSIGN_OR_RETURN(int64_t begin, getBegin(op, input));
  RETURN_IF_ERROR(
      checkShapes(op, {"weight"}, ArrayRef(input.sizes).drop_front(begin), input.dtype));
  suggestInitials(op, {"weight"}, {});
  // Without eps: the gap between 1 and the next number of the type that PyTorch computes in.
  double eps = input.dtype == DType::F64 ? std::numeric_limits<double>::epsilon()
                                         : double(std::numeric_limits<float>::epsilon());
  if (op.has("eps"))
    eps = op.number("eps");
  Value norm =
      mlir::memopt::RmsNormOp::create(op.b, op.tensorType(input.dtype, input.sizes), op.get(input),
                                      getOrNull(op, op.optionalTensor("weight")),
                                      op.b.getI64IntegerAttr(begin), op.b.getF64FloatAttr(eps));
  return setResult(op, op.wrap(input.dtype, norm));
}

void memopt::pt2::registerNormalizations(OpTable &table) {
  table.add(
      "aten.batch_norm.default",
      "Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
      "bool training, float momentum, float eps, bool cudnn_enabled",
      lowerBatchNorm);
  table.add("aten._native_batch_norm_legit_functional.default",
            "Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, "
            "bool training, float momentum, float eps",
            lowerFunctionalBatchNorm);
  table.add("aten._native_batch_norm_legit_no_training.default",
            "Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, "
            "float momentum, float eps",
            lowerBatchNormNoTraining);
  table.add("aten._native_batch_norm_legit.no_stats",
            "Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps, "
            "Tensor? running_mean=None, Tensor? running_var=None",
            lowerBatchNormNoStatistics);
  table.add(
      "aten.instance_norm.default",
      "Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
      "bool use_input_stats, float momentum, float eps, bool cudnn_enabled",
      lowerInstanceNorm);
  table.add("aten._weight_norm.default", "Tensor v, Tensor g, int dim=0", lowerWeightNorm);
  table.add("aten.layer_norm.default",
            "Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
            "float eps=1e-05, bool cudnn_enable=True",
            lowerLayerNorm);
  table.add("aten.native_layer_norm.default",
            "Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps",
            lowerLayerNorm);
  table.add(
      "aten.group_norm.default",
      "Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
      "bool cudnn_enabled=True",
      lowerGroupNorm);
  table.add(
      "aten.native_group_norm.default",
      "Tensor input, Tensor? weight, Tensor? bias, int N, int C, int HxW, int group, float eps",
      lowerNativeGroupNorm);
  table.add("aten.rms_norm.default",
            "Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None",
            lowerRmsNorm);
}
