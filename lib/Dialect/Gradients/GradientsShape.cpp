//===- GradientsShape.cpp - gradients of shape ops, reductions and gathers -*- C++ -*-===//
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

/// What was repeated is summed.
LogicalResult BroadcastOp::differentiate(OpBuilder &builder, Values resultGradients,
                                         ArrayRef<bool> needed, Gradients gradients) {
  if (!needed[0])
    return success();
  GradientBuilder b(builder, getLoc());
  RankedTensorType from = tensorType(getInput()), to = tensorType(getResult());
  SmallVector<int64_t> summed = otherDimensions(to.getRank(), getDimensions());
  for (auto [size, dimension] : llvm::zip(from.getShape(), getDimensions()))
    if (size == 1 && to.getDimSize(dimension) != 1)
      summed.push_back(dimension);
  llvm::sort(summed);
  gradients[0] = b.reshape(b.sum(resultGradients[0], summed), from.getShape());
  return success();
}

LogicalResult TransposeOp::differentiate(OpBuilder &builder, Values resultGradients,
                                         ArrayRef<bool> needed, Gradients gradients) {
  if (!needed[0])
    return success();
  SmallVector<int64_t> inverse(getPermutation().size());
  for (auto [index, dimension] : llvm::enumerate(getPermutation()))
    inverse[dimension] = index;
  gradients[0] = GradientBuilder(builder, getLoc()).transpose(resultGradients[0], inverse);
  return success();
}

LogicalResult PadOp::differentiate(OpBuilder &builder, Values resultGradients,
                                   ArrayRef<bool> needed, Gradients gradients) {
  if (needed[0])
    gradients[0] = GradientBuilder(builder, getLoc())
                       .slice(resultGradients[0], getLow(), tensorType(getInput()).getShape());
  return success();
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// Equal extreme elements share the gradient equally, and so do NaNs: a NaN is the extreme of what
/// it stands among, and where it stands nothing equals the result.
static Term extremeGradient(GradientBuilder &b, ReduceOp op, Value gradient) {
  Term x = b(op.getInput());
  RankedTensorType type = x.getType();
  ArrayRef<int64_t> dimensions = op.getDimensions();
  Value equal = compare(CmpFPredicate::OEQ, x, b.unreduce(op.getResult(), type, dimensions));
  Value extreme = b.create<arith::OrIOp>(equal, compare(CmpFPredicate::UNO, x, x));
  Term ties = b.sum(select(extreme, b.splat(type, 1.0), 0.0), dimensions);
  return select(extreme, b.unreduce(b(gradient) / ties, type, dimensions), 0.0);
}

/// The product of all other elements: result / x for all that are not zero. For one that is, the
/// product of those that are not, and of zero when it is not the only one. NaNs and infinities take
/// part everywhere.
static Term productGradient(GradientBuilder &b, ReduceOp op, Value gradient) {
  Term x = b(op.getInput());
  RankedTensorType type = x.getType();
  ArrayRef<int64_t> dimensions = op.getDimensions();
  Value isZero = compare(CmpFPredicate::OEQ, x, 0.0);
  Term zeros = b.sum(select(isZero, b.splat(type, 1.0), 0.0), dimensions);
  Term filled = select(isZero, 1.0, x);
  Term product = b.reduce(ReduceKind::Mul, filled, dimensions);
  Term others = b(gradient) * product;
  Term nothing = others.getBuilder().fold<arith::MulFOp>(
      others, b.splat(others.getType(), 0.0)); // not zero where the product is NaN
  Term ofZero = select(compare(CmpFPredicate::OEQ, zeros, 1.0), others, nothing);
  Term ofOthers = b.unreduce(b(gradient) * b(op.getResult()), type, dimensions) / filled;
  return select(isZero, b.unreduce(ofZero, type, dimensions), ofOthers);
}

LogicalResult ReduceOp::differentiate(OpBuilder &builder, Values resultGradients,
                                      ArrayRef<bool> needed, Gradients gradients) {
  if (!needed[0])
    return success();
  GradientBuilder b(builder, getLoc());
  switch (getKind()) {
  case ReduceKind::Add:
    gradients[0] = b.unreduce(resultGradients[0], tensorType(getInput()), getDimensions());
    break;
  case ReduceKind::Mul:
    gradients[0] = productGradient(b, *this, resultGradients[0]);
    break;
  case ReduceKind::Max:
  case ReduceKind::Min:
    gradients[0] = extremeGradient(b, *this, resultGradients[0]);
    break;
  }
  return success();
}

/// A number that no element has a part in.
LogicalResult CountOp::differentiate(OpBuilder &, Values, ArrayRef<bool>, Gradients) {
  return success();
}

//===----------------------------------------------------------------------===//
// Gathers
//===----------------------------------------------------------------------===//

LogicalResult EmbeddingOp::differentiate(OpBuilder &builder, Values resultGradients,
                                         ArrayRef<bool> needed, Gradients gradients) {
  if (needed[0])
    gradients[0] =
        EmbeddingBackwardOp::create(builder, getLoc(), getTable().getType(), resultGradients[0],
                                    getIndices(), getPaddingIndexAttr());
  return success();
}
