//===- GradientsNormalization.cpp - gradients of activations, norms, softmax, losses -*- C++
//-*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientBuilder.h"

using namespace mlir;
using namespace mlir::memopt;
using arith::CmpFPredicate;

using Values = ArrayRef<Value>;
using Gradients = MutableArrayRef<Value>;

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

LogicalResult ReluOp::differentiate(OpBuilder &builder, Values resultGradients,
                                    ArrayRef<bool> needed, Gradients gradients) {
  GradientBuilder b(builder, getLoc());
  if (needed[0])
    gradients[0] =
        select(compare(CmpFPredicate::OLE, b(getResult()), 0.0), 0.0, b(resultGradients[0]));
  return success();
}

LogicalResult SigmoidOp::differentiate(OpBuilder &builder, Values resultGradients,
                                       ArrayRef<bool> needed, Gradients gradients) {
  GradientBuilder b(builder, getLoc());
  Term y = b(getResult());
  if (needed[0])
    gradients[0] = b(resultGradients[0]) * (y * (1.0 - y));
  return success();
}

LogicalResult SoftplusOp::differentiate(OpBuilder &builder, Values resultGradients,
                                        ArrayRef<bool> needed, Gradients gradients) {
  GradientBuilder b(builder, getLoc());
  if (needed[0])
    gradients[0] = b(resultGradients[0]) * sigmoid(b(getInput()));
  return success();
}

//===----------------------------------------------------------------------===//
// What the norms share
//===----------------------------------------------------------------------===//

/// Adds `term`, which may be the first.
static void addTo(Value &sum, Term term) {
  sum = sum ? static_cast<Value>(term.getBuilder()(sum) + term) : static_cast<Value>(term);
}

/// d mean(x) / dx over `dimensions` of `type`.
static Term meanGradient(GradientBuilder &b, Value gradient, RankedTensorType type,
                         ArrayRef<int64_t> dimensions) {
  int64_t count = type.getNumElements() / tensorType(gradient).getNumElements();
  return b.unreduce(b(gradient) / static_cast<double>(count), type, dimensions);
}

/// x - mean, `mean` being over `dimensions`.
static Term centered(GradientBuilder &b, Value x, Value mean, ArrayRef<int64_t> dimensions) {
  return b(x) - b.unreduce(mean, tensorType(x), dimensions);
}

/// The mean of `x` over `dimensions`, repeated along them.
static Term repeatedMean(Term x, ArrayRef<int64_t> dimensions) {
  GradientBuilder &b = x.getBuilder();
  return meanGradient(b, b.sum(x, dimensions), x.getType(), dimensions);
}

/// A norm's optional scale and offset follow its input.
static void fillAffine(Value scale, Value scaleGradient, Value offset, Value offsetGradient,
                       Gradients gradients) {
  unsigned operand = 1;
  if (scale)
    gradients[operand++] = scaleGradient;
  if (offset)
    gradients[operand++] = offsetGradient;
}

//===----------------------------------------------------------------------===//
// Batch and layer norm: ops of their own
//===----------------------------------------------------------------------===//

LogicalResult BatchNormOp::differentiate(OpBuilder &builder, Values resultGradients,
                                         ArrayRef<bool> needed, Gradients gradients) {
  GradientBuilder b(builder, getLoc());
  RankedTensorType type = tensorType(getInput());
  if (resultGradients[0]) {
    Type affine = (getScale() ? getScale() : getMean()).getType();
    auto backward = b.create<BatchNormBackwardOp>(type, affine, affine, resultGradients[0],
                                                  getInput(), getScale(), getMean(), getVariance(),
                                                  getEpsAttr(), getAxisAttr());
    gradients[0] = backward.getInputGradient();
    fillAffine(getScale(), backward.getScaleGradient(), getOffset(), backward.getOffsetGradient(),
               gradients);
  }
  SmallVector<int64_t> dimensions =
      otherDimensions(type.getRank(), static_cast<int64_t>(getAxis()));
  if (resultGradients[1])
    addTo(gradients[0], meanGradient(b, resultGradients[1], type, dimensions));
  if (resultGradients[2])
    addTo(gradients[0], 2.0 * centered(b, getInput(), getMean(), dimensions) *
                            meanGradient(b, resultGradients[2], type, dimensions));
  return success();
}

/// What reaches the input of a layer or group norm through its statistics; with r = 1 / deviation,
/// dr/dx = -r^3 (x - mean) / n.
static void addStatisticsGradients(GradientBuilder &b, Value x, Value mean, Value inverseDeviation,
                                   ArrayRef<int64_t> dimensions, Value meanGrad,
                                   Value deviationGrad, Value &inputGradient) {
  if (meanGrad)
    addTo(inputGradient, meanGradient(b, meanGrad, tensorType(x), dimensions));
  if (!deviationGrad)
    return;
  Term r = b(inverseDeviation);
  Term perElement = meanGradient(b, -(b(deviationGrad) * (r * r * r)), tensorType(x), dimensions);
  addTo(inputGradient, perElement * centered(b, x, mean, dimensions));
}

LogicalResult LayerNormOp::differentiate(OpBuilder &builder, Values resultGradients,
                                         ArrayRef<bool> needed, Gradients gradients) {
  GradientBuilder b(builder, getLoc());
  RankedTensorType type = tensorType(getInput());
  int64_t begin = getBegin();
  if (resultGradients[0]) {
    Type affine = getScale() ? getScale().getType() : type.clone(type.getShape().drop_front(begin));
    auto backward =
        b.create<LayerNormBackwardOp>(type, affine, affine, resultGradients[0], getInput(),
                                      getScale(), getMean(), getInverseDeviation(), getBeginAttr());
    gradients[0] = backward.getInputGradient();
    fillAffine(getScale(), backward.getScaleGradient(), getOffset(), backward.getOffsetGradient(),
               gradients);
  }
  addStatisticsGradients(b, getInput(), getMean(), getInverseDeviation(),
                         dimensionRange(begin, type.getRank()), resultGradients[1],
                         resultGradients[2], gradients[0]);
  return success();
}

//===----------------------------------------------------------------------===//
// Group and RMS norm: spelled out
//===----------------------------------------------------------------------===//

/// The gradient of x in xhat = r x (or r (x - mean), which `centered` says), given the one of xhat:
/// r (d - mean(d) - xhat mean(d xhat)).
static Term normalizedGradient(Term d, Term xhat, Term r, ArrayRef<int64_t> dimensions,
                               bool centered) {
  Term rest = d - xhat * repeatedMean(d * xhat, dimensions);
  return r * (centered ? rest - repeatedMean(d, dimensions) : rest);
}

namespace {
/// A tensor [N, C, spatial...] seen as [N, groups, C / groups, spatial...], in which a group's
/// elements are the dimensions from 2 on and a channel is the pair 1, 2.
struct GroupView {
  GradientBuilder &b;
  RankedTensorType type;
  int64_t axis; ///< groups; the channels of a group are the next dimension

  GroupView(GradientBuilder &b, RankedTensorType from, int64_t groups, int64_t axis)
      : b(b), type(from), axis(axis) {
    SmallVector<int64_t> shape(from.getShape());
    shape[axis] /= groups;
    shape.insert(shape.begin() + axis, groups);
    type = from.clone(shape);
  }

  Term view(Value value) { return b.reshape(value, type.getShape()); }
  Term perGroup(Value statistic) { return b.broadcast(statistic, type, {0, axis}); }
  Term perChannel(Value value) {
    return b.broadcast(b.reshape(value, type.getShape().slice(axis, 2)), type, {axis, axis + 1});
  }
  Term sumByChannel(Term value) {
    Term sum = b.sum(value, otherDimensions(type.getRank(), {axis, axis + 1}));
    return b.reshape(sum, sum.getType().getNumElements());
  }
};
} // namespace

LogicalResult GroupNormOp::differentiate(OpBuilder &builder, Values resultGradients,
                                         ArrayRef<bool> needed, Gradients gradients) {
  GradientBuilder b(builder, getLoc());
  int64_t axis = getLayout() == Layout::ChannelsLast ? tensorType(getInput()).getRank() - 1 : 1;
  GroupView group(b, tensorType(getInput()), getGroups(), axis);
  SmallVector<int64_t> dimensions = otherDimensions(group.type.getRank(), {0, axis});
  if (resultGradients[0]) {
    Term g = group.view(resultGradients[0]);
    Term r = group.perGroup(getInverseDeviation());
    Term xhat = (group.view(getInput()) - group.perGroup(getMean())) * r;
    if (needed[0]) {
      Term d = getScale() ? g * group.perChannel(getScale()) : g;
      Term dx = normalizedGradient(d, xhat, r, dimensions, /*centered=*/true);
      gradients[0] = b.reshape(dx, tensorType(getInput()).getShape());
    }
    fillAffine(getScale(), getScale() ? Value(group.sumByChannel(g * xhat)) : Value(), getOffset(),
               getOffset() ? Value(group.sumByChannel(g)) : Value(), gradients);
  }
  Value fromStatistics;
  addStatisticsGradients(b, group.view(getInput()), getMean(), getInverseDeviation(), dimensions,
                         resultGradients[1], resultGradients[2], fromStatistics);
  if (fromStatistics)
    addTo(gradients[0], b.reshape(fromStatistics, tensorType(getInput()).getShape()));
  return success();
}

LogicalResult RmsNormOp::differentiate(OpBuilder &builder, Values resultGradients,
                                       ArrayRef<bool> needed, Gradients gradients) {
  GradientBuilder b(builder, getLoc());
  RankedTensorType type = tensorType(getInput());
  int64_t begin = getBegin();
  SmallVector<int64_t> normalized = dimensionRange(begin, type.getRank());
  Term g = b(resultGradients[0]), x = b(getInput());
  Term square = b.sum(x * x, normalized);
  double count = static_cast<double>(type.getNumElements() / square.getType().getNumElements());
  Term perRow = rsqrt(square / count + getEps().convertToDouble());
  Term r = b.unreduce(perRow, type, normalized);
  Term xhat = x * r;
  if (needed[0]) {
    Term d = getScale() ? g * b.broadcast(getScale(), type, normalized) : g;
    // NaN where the squares overflow.
    Term checked = b.unreduce(perRow + (square - square), type, normalized);
    gradients[0] = normalizedGradient(d, xhat, checked, normalized, /*centered=*/false);
  }
  if (getScale() && needed[1])
    gradients[1] = b.sum(g * xhat, dimensionRange(0, begin));
  return success();
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

LogicalResult SoftmaxOp::differentiate(OpBuilder &builder, Values resultGradients,
                                       ArrayRef<bool> needed, Gradients gradients) {
  if (!needed[0])
    return success();
  GradientBuilder b(builder, getLoc());
  int64_t axis = getAxis();
  Term g = b(resultGradients[0]), y = b(getResult());
  gradients[0] = y * (g - b.unreduce(b.sum(g * y, axis), y.getType(), axis));
  return success();
}

LogicalResult LogSoftmaxOp::differentiate(OpBuilder &builder, Values resultGradients,
                                          ArrayRef<bool> needed, Gradients gradients) {
  if (!needed[0])
    return success();
  GradientBuilder b(builder, getLoc());
  int64_t axis = getAxis();
  Term g = b(resultGradients[0]), y = b(getResult());
  gradients[0] = g - exp(y) * b.unreduce(b.sum(g, axis), y.getType(), axis);
  return success();
}

//===----------------------------------------------------------------------===//
// Cross entropy
//===----------------------------------------------------------------------===//

/// The count depends on targets and weights only: nothing flows through it to the logits.
LogicalResult CrossEntropyOp::differentiate(OpBuilder &builder, Values resultGradients,
                                            ArrayRef<bool> needed, Gradients gradients) {
  if (getClassWeights() && needed[2])
    return emitOpError("has no gradient for class weights that depend on trainable parameters");
  if (resultGradients[2] || resultGradients[3])
    return emitOpError("has no gradient through 'largest' and 'log_sum'");
  if (!needed[0] || !resultGradients[0])
    return success();
  GradientBuilder b(builder, getLoc());
  gradients[0] = b.create<CrossEntropyBackwardOp>(
      tensorType(getLogits()), getLogits(), getTargets(), getClassWeights(), getLargest(),
      getLogSum(), resultGradients[0], getIgnoreIndexAttr(), getLabelSmoothingAttr());
  return success();
}
