//===- NormalizationOps.cpp - activations, normalization, softmax, losses -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Verification.h"
#include "memopt/Dialect/Memopt.h"

using namespace mlir;
using namespace mlir::memopt;

static LogicalResult verifySameType(Operation *op, StringRef what, Value expected, Value value) {
  if (expected.getType() == value.getType())
    return success();
  return op->emitOpError() << what << " has type " << value.getType() << ", expected "
                           << expected.getType();
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

SmallVector<InPlaceOperand> ReluOp::getInPlaceOperands(unsigned) { return {{0, false}}; }
SmallVector<InPlaceOperand> SigmoidOp::getInPlaceOperands(unsigned) { return {{0, false}}; }
SmallVector<InPlaceOperand> SoftplusOp::getInPlaceOperands(unsigned) { return {{0, false}}; }
int64_t ReluOp::getFlops() { return tensorType(getResult()).getNumElements(); }
int64_t SigmoidOp::getFlops() { return 20 * tensorType(getResult()).getNumElements(); }
int64_t SoftplusOp::getFlops() { return 40 * tensorType(getResult()).getNumElements(); }

//===----------------------------------------------------------------------===//
// Batch norm
//===----------------------------------------------------------------------===//

static LogicalResult verifyBatchNorm(Operation *op, Value input, int64_t axis,
                                     ValueRange perChannel) {
  RankedTensorType type = tensorType(input);
  if (axis < 0 || axis >= type.getRank())
    return op->emitOpError() << "axis must lie below rank " << type.getRank() << ", found " << axis;
  for (Value value : perChannel)
    if (failed(verifyShape(op, "per-channel value", {type.getDimSize(axis)}, value)))
      return failure();
  return success();
}

LogicalResult BatchNormOp::verify() {
  if (failed(verifySameType(*this, "result", getInput(), getResult())))
    return failure();
  return verifyBatchNorm(*this, getInput(), getAxis(),
                         SmallVector<Value>{getScale(), getOffset(), getMean(), getVariance()});
}

LogicalResult BatchNormBackwardOp::verify() {
  if (failed(verifySameType(*this, "gradient", getInput(), getGradient())) ||
      failed(verifySameType(*this, "input gradient", getInput(), getInputGradient())))
    return failure();
  return verifyBatchNorm(*this, getInput(), getAxis(),
                         SmallVector<Value>{getScale(), getMean(), getVariance(),
                                            getScaleGradient(), getOffsetGradient()});
}

//===----------------------------------------------------------------------===//
// Layer, group and RMS norm
//===----------------------------------------------------------------------===//

static LogicalResult verifyLayerNorm(Operation *op, Value input, int64_t begin, ValueRange affine,
                                     ValueRange statistics) {
  ArrayRef<int64_t> shape = tensorType(input).getShape();
  if (begin < 0 || begin >= static_cast<int64_t>(shape.size()))
    return op->emitOpError() << "begin must lie below rank " << shape.size() << ", found " << begin;
  for (Value value : affine)
    if (failed(verifyShape(op, "affine value", shape.drop_front(begin), value)))
      return failure();
  for (Value value : statistics)
    if (failed(verifyShape(op, "statistic", shape.take_front(begin), value)))
      return failure();
  return success();
}

LogicalResult LayerNormOp::verify() {
  if (failed(verifySameType(*this, "result", getInput(), getResult())))
    return failure();
  return verifyLayerNorm(*this, getInput(), getBegin(), SmallVector<Value>{getScale(), getOffset()},
                         SmallVector<Value>{getMean(), getInverseDeviation()});
}

LogicalResult LayerNormBackwardOp::verify() {
  if (failed(verifySameType(*this, "gradient", getInput(), getGradient())) ||
      failed(verifySameType(*this, "input gradient", getInput(), getInputGradient())))
    return failure();
  return verifyLayerNorm(*this, getInput(), getBegin(),
                         SmallVector<Value>{getScale(), getScaleGradient(), getOffsetGradient()},
                         SmallVector<Value>{getMean(), getInverseDeviation()});
}

LogicalResult RmsNormOp::verify() {
  if (failed(verifySameType(*this, "result", getInput(), getResult())))
    return failure();
  return verifyLayerNorm(*this, getInput(), getBegin(), SmallVector<Value>{getScale()}, {});
}

LogicalResult GroupNormOp::verify() {
  RankedTensorType type = tensorType(getInput());
  if (failed(verifySameType(*this, "result", getInput(), getResult())))
    return failure();
  auto groups = static_cast<int64_t>(getGroups());
  int64_t channel = getLayout() == Layout::ChannelsLast ? type.getRank() - 1 : 1;
  if (type.getRank() < 2 || groups < 1 || type.getDimSize(channel) % groups)
    return emitOpError() << "groups must divide the channels of " << type << ", found " << groups;
  for (Value value : {getScale(), getOffset()})
    if (failed(verifyShape(*this, "per-channel value", {type.getDimSize(channel)}, value)))
      return failure();
  int64_t statistics[] = {type.getDimSize(0), groups};
  for (Value value : {getMean(), getInverseDeviation()})
    if (failed(verifyShape(*this, "statistic", statistics, value)))
      return failure();
  return success();
}

int64_t BatchNormOp::getFlops() { return 8 * tensorType(getInput()).getNumElements(); }
int64_t BatchNormBackwardOp::getFlops() { return 10 * tensorType(getInput()).getNumElements(); }
int64_t LayerNormOp::getFlops() { return 8 * tensorType(getInput()).getNumElements(); }
int64_t LayerNormBackwardOp::getFlops() { return 12 * tensorType(getInput()).getNumElements(); }
int64_t GroupNormOp::getFlops() { return 8 * tensorType(getInput()).getNumElements(); }
int64_t RmsNormOp::getFlops() { return 5 * tensorType(getInput()).getNumElements(); }

//===----------------------------------------------------------------------===//
// Softmax and cross entropy
//===----------------------------------------------------------------------===//

static LogicalResult verifyAxis(Operation *op, Value input, int64_t axis) {
  int64_t rank = tensorType(input).getRank();
  if (axis < 0 || axis >= rank)
    return op->emitOpError() << "axis must lie below rank " << rank << ", found " << axis;
  return success();
}
LogicalResult SoftmaxOp::verify() { return verifyAxis(*this, getInput(), getAxis()); }
LogicalResult LogSoftmaxOp::verify() { return verifyAxis(*this, getInput(), getAxis()); }
int64_t SoftmaxOp::getFlops() { return 25 * tensorType(getInput()).getNumElements(); }
int64_t LogSoftmaxOp::getFlops() { return 25 * tensorType(getInput()).getNumElements(); }

static LogicalResult verifyCrossEntropy(Operation *op, Value logits, Value targets, Value weights,
                                        ValueRange rows, ValueRange scalars,
                                        const APFloat &smoothing) {
  RankedTensorType type = tensorType(logits);
  if (type.getRank() != 2)
    return op->emitOpError() << "expects logits of rank 2, found " << type;
  if (failed(verifyShape(op, "targets", {type.getDimSize(0)}, targets)) ||
      failed(verifyShape(op, "class weights", {type.getDimSize(1)}, weights)))
    return failure();
  for (Value row : rows)
    if (failed(verifyShape(op, "row value", {type.getDimSize(0)}, row)))
      return failure();
  for (Value scalar : scalars)
    if (failed(verifyShape(op, "scalar", {}, scalar)))
      return failure();
  double amount = smoothing.convertToDouble();
  if (!(amount >= 0.0 && amount <= 1.0))
    return op->emitOpError() << "label smoothing must lie in [0, 1], found " << amount;
  return success();
}

LogicalResult CrossEntropyOp::verify() {
  return verifyCrossEntropy(*this, getLogits(), getTargets(), getClassWeights(),
                            {getLargest(), getLogSum()}, {getTotal(), getCount()},
                            getLabelSmoothing());
}
LogicalResult CrossEntropyBackwardOp::verify() {
  if (failed(verifySameType(*this, "result", getLogits(), getResult())))
    return failure();
  return verifyCrossEntropy(*this, getLogits(), getTargets(), getClassWeights(),
                            {getLargest(), getLogSum()}, {getGradient()}, getLabelSmoothing());
}
/// A target that is ignored may have any value of its own.
template <typename OpType> static SmallVector<IndexUse> classesOf(OpType op) {
  return {{&op.getTargetsMutable(), tensorType(op.getLogits()).getDimSize(1),
           static_cast<int64_t>(op.getIgnoreIndex()), "classes of a cross entropy",
           /*skips=*/false}};
}
SmallVector<IndexUse> CrossEntropyOp::getIndexUses() { return classesOf(*this); }
SmallVector<IndexUse> CrossEntropyBackwardOp::getIndexUses() { return classesOf(*this); }

int64_t CrossEntropyOp::getFlops() { return 25 * tensorType(getLogits()).getNumElements(); }
int64_t CrossEntropyBackwardOp::getFlops() { return 20 * tensorType(getLogits()).getNumElements(); }
