//===- GradientsNeuralNetwork.cpp - gradients of convolution, matmul, attention, pooling -*- C++
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

using Values = ArrayRef<Value>;
using Gradients = MutableArrayRef<Value>;

//===----------------------------------------------------------------------===//
// Products of narrow numbers
//===----------------------------------------------------------------------===//

/// The gradient of a product, in the type of its operands.
static Value likeOperands(OpBuilder &builder, Operation *op, Value gradient) {
  GradientBuilder b(builder, op->getLoc());
  return b.convert(gradient, tensorType(op->getOperand(0)).getElementType());
}

/// What `create` makes of the type of sums, rounded to `type`.
static Value roundedProduct(OpBuilder &builder, Location loc, Type type,
                            function_ref<Value(Type)> create) {
  auto tensor = cast<RankedTensorType>(type);
  GradientBuilder b(builder, loc);
  return b.convert(create(tensor.clone(getComputeType(tensor.getElementType()))),
                   tensor.getElementType());
}

//===----------------------------------------------------------------------===//
// Convolution
//===----------------------------------------------------------------------===//

/// A convolution op over the same windows as `op`.
template <typename NewOp, typename OldOp>
static Value sameWindows(OpBuilder &builder, OldOp op, Type type, Value a, Value b) {
  return roundedProduct(builder, op.getLoc(), type, [&](Type sums) -> Value {
    return NewOp::create(builder, op.getLoc(), sums, a, b, op.getStridesAttr(),
                         op.getPaddingLowAttr(), op.getPaddingHighAttr(), op.getDilationsAttr(),
                         op.getGroupsAttr(), op.getLayoutAttr());
  });
}

LogicalResult ConvolutionOp::differentiate(OpBuilder &builder, Values resultGradients,
                                           ArrayRef<bool> needed, Gradients gradients) {
  Value gradient = likeOperands(builder, *this, resultGradients[0]);
  if (needed[0])
    gradients[0] = sameWindows<ConvolutionBackwardDataOp>(builder, *this, getInput().getType(),
                                                          gradient, getFilter());
  if (needed[1])
    gradients[1] = sameWindows<ConvolutionBackwardWeightsOp>(builder, *this, getFilter().getType(),
                                                             getInput(), gradient);
  return success();
}

/// A transposed convolution maps y to the input side of a convolution: its gradient comes in there
/// and is convolved.
LogicalResult ConvolutionBackwardDataOp::differentiate(OpBuilder &builder, Values resultGradients,
                                                       ArrayRef<bool> needed, Gradients gradients) {
  Value gradient = likeOperands(builder, *this, resultGradients[0]);
  if (needed[0])
    gradients[0] =
        sameWindows<ConvolutionOp>(builder, *this, getGradient().getType(), gradient, getFilter());
  if (needed[1])
    gradients[1] = sameWindows<ConvolutionBackwardWeightsOp>(builder, *this, getFilter().getType(),
                                                             gradient, getGradient());
  return success();
}

//===----------------------------------------------------------------------===//
// Matmul
//===----------------------------------------------------------------------===//

/// With C = op(a) op(b): d op(a) = dC op(b)^T and d op(b) = op(a)^T dC; where op transposes, both
/// sides are transposed, which swaps the factors. So no gradient ever needs a transposed copy.
LogicalResult MatmulOp::differentiate(OpBuilder &builder, Values resultGradients,
                                      ArrayRef<bool> needed, Gradients gradients) {
  Value gradient = likeOperands(builder, *this, resultGradients[0]);
  bool ta = getTransposeA(), tb = getTransposeB();
  auto product = [&](Type type, Value left, Value right, bool transposeLeft, bool transposeRight) {
    return roundedProduct(builder, getLoc(), type, [&](Type sums) -> Value {
      return MatmulOp::create(builder, getLoc(), sums, left, right, transposeLeft, transposeRight);
    });
  };
  if (needed[0])
    gradients[0] = ta ? product(getA().getType(), getB(), gradient, tb, true)
                      : product(getA().getType(), gradient, getB(), false, !tb);
  if (needed[1])
    gradients[1] = tb ? product(getB().getType(), gradient, getA(), true, ta)
                      : product(getB().getType(), getA(), gradient, !ta, false);
  return success();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

LogicalResult AttentionOp::differentiate(OpBuilder &builder, Values resultGradients,
                                         ArrayRef<bool> needed, Gradients gradients) {
  // The gradients of mask and logsumexp have the size of the scores, which never exist.
  if (resultGradients[1])
    return emitOpError("has no gradient through 'logsumexp'");
  if (!resultGradients[0])
    return success();
  std::optional<unsigned> mask;
  if (getMask() && needed[getMaskMutable().begin()->getOperandNumber()])
    mask = getMaskMutable().begin()->getOperandNumber();
  auto backward = AttentionBackwardOp::create(
      builder, getLoc(), getQuery().getType(), getKey().getType(), getValue().getType(),
      mask ? getMask().getType() : Type(), getQuery(), getKey(), getValue(), getMask(), getSeed(),
      getStep(), getFirst(), getResult(), getLogsumexp(), resultGradients[0], getScaleAttr(),
      getCausalAttr(), getDropoutAttr(), getIdAttr());
  for (int operand = 0; operand < 3; ++operand)
    if (needed[operand])
      gradients[operand] = backward->getResult(operand);
  if (mask)
    gradients[*mask] = backward.getMaskGradient();
  return success();
}

//===----------------------------------------------------------------------===//
// Pooling and interpolation
//===----------------------------------------------------------------------===//

LogicalResult MaxPoolOp::differentiate(OpBuilder &builder, Values resultGradients,
                                       ArrayRef<bool> needed, Gradients gradients) {
  if (needed[0])
    gradients[0] =
        MaxPoolBackwardOp::create(builder, getLoc(), getInput().getType(), resultGradients[0],
                                  getTaps(), getKernelAttr(), getStridesAttr(), getPaddingLowAttr(),
                                  getPaddingHighAttr(), getLayoutAttr(), getDilationsAttr());
  return success();
}

LogicalResult AvgPoolOp::differentiate(OpBuilder &builder, Values resultGradients,
                                       ArrayRef<bool> needed, Gradients gradients) {
  if (needed[0])
    gradients[0] = AvgPoolBackwardOp::create(
        builder, getLoc(), getInput().getType(), resultGradients[0], getKernelAttr(),
        getStridesAttr(), getPaddingLowAttr(), getPaddingHighAttr(), getLayoutAttr(),
        getCountPaddingAttr(), getDivisorAttr());
  return success();
}

LogicalResult InterpolateOp::differentiate(OpBuilder &builder, Values resultGradients,
                                           ArrayRef<bool> needed, Gradients gradients) {
  if (needed[0])
    gradients[0] = InterpolateBackwardOp::create(builder, getLoc(), getInput().getType(),
                                                 resultGradients[0], getScalesAttr(), getModeAttr(),
                                                 getAlignCornersAttr(), getLayoutAttr());
  return success();
}
