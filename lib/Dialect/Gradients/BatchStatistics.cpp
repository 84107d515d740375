//===- BatchStatistics.cpp - batch norms over all ranks -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A batch norm of one rank's samples becomes one of the samples of all ranks, of which each has n:
//
//   %y, %mean, %var = batch_norm %x   ->   %m, %v of this rank's samples
//                                          %mean = (all_reduce %m) / ranks
//                                          %var = (all_reduce %v + (%m - %mean)^2) / ranks
//                                          %y = (%x - %mean) / sqrt(%var + eps) * scale + offset
//
// which is the pairwise formula of Chan, Golub and LeVeque (1979) for equal counts. The backward
// pass sums two vectors over the ranks; what scale and offset get is still this rank's part, as
// every gradient is. Statistics of a rank's own samples are those of the op itself, whose
// normalized result nobody uses any more: lowering makes it a kernel of its own, which is dropped.
//
//===----------------------------------------------------------------------===//

#include "GradientBuilder.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Arithmetic on channels, and on elements with values of their channel.
class ChannelBuilder {
public:
  ChannelBuilder(OpBuilder &builder, Operation *op, Value input, int64_t axis, int64_t ranks)
      : b(builder, op->getLoc()), type(tensorType(input)), axis(axis), ranks(ranks),
        compute(type.getElementType()) {
    if (compute.getIntOrFloatBitWidth() < 32)
      compute = builder.getF32Type();
  }

  /// Elements of a channel on all ranks.
  double getCount() const {
    return static_cast<double>(type.getNumElements() / type.getDimSize(axis) * ranks);
  }
  Term wide(Value value) { return b.convert(value, compute); }
  Value narrow(Term value, Value like) {
    return b.convert(value, tensorType(like).getElementType());
  }
  Term inverseDeviation(Term variance, FloatAttr eps) {
    return rsqrt(variance + eps.getValueAsDouble());
  }
  Term sumOverRanks(Term value) {
    return b(b.create<CollectiveOp>(value.getType(), CollectiveKind::AllReduce, value, ranks));
  }
  Term meanOverRanks(Term value) { return sumOverRanks(value) / static_cast<double>(ranks); }
  /// A value of each channel, for each element.
  Term spread(Term value) { return b.broadcast(value, type.clone(compute), {axis}); }

private:
  GradientBuilder b;
  RankedTensorType type;
  int64_t axis, ranks;
  Type compute;
};
} // namespace

SmallVector<Value> BatchNormOp::getBatchStatistics() { return {getMean(), getVariance()}; }

SmallVector<Value> BatchNormOp::buildSynchronized(OpBuilder &builder, int64_t ranks) {
  ChannelBuilder b(builder, *this, getInput(), getAxis(), ranks);
  auto own = BatchNormOp::create(builder, getLoc(), getResult().getType(), getMean().getType(),
                                 getVariance().getType(), getInput(), Value(), Value(),
                                 getEpsAttr(), getAxisAttr());
  Term ownMean = b.wide(own.getMean()), ownVariance = b.wide(own.getVariance());
  Term mean = b.meanOverRanks(ownMean);
  Term deviation = ownMean - mean;
  Term variance = b.meanOverRanks(ownVariance + deviation * deviation);
  Term slope = b.inverseDeviation(variance, getEpsAttr());
  if (getScale())
    slope = b.wide(getScale()) * slope;
  Term result = (b.wide(getInput()) - b.spread(mean)) * b.spread(slope);
  if (getOffset())
    result = result + b.spread(b.wide(getOffset()));
  return {b.narrow(result, getResult()), b.narrow(mean, getMean()),
          b.narrow(variance, getVariance())};
}

SmallVector<Value> BatchNormBackwardOp::getBatchStatistics() { return {getMean(), getVariance()}; }

/// With h = (x - mean) / sqrt(variance + eps) and n elements a channel on all ranks together:
/// input' = scale / sqrt(variance + eps) * (g - sum g / n - h sum (g h) / n).
SmallVector<Value> BatchNormBackwardOp::buildSynchronized(OpBuilder &builder, int64_t ranks) {
  ChannelBuilder b(builder, *this, getInput(), getAxis(), ranks);
  auto own = BatchNormBackwardOp::create(
      builder, getLoc(), getInputGradient().getType(), getScaleGradient().getType(),
      getOffsetGradient().getType(), getGradient(), getInput(), Value(), getMean(), getVariance(),
      getEpsAttr(), getAxisAttr());
  Term scaleShare = b.sumOverRanks(b.wide(own.getScaleGradient())) / b.getCount();
  Term offsetShare = b.sumOverRanks(b.wide(own.getOffsetGradient())) / b.getCount();
  Term inverse = b.inverseDeviation(b.wide(getVariance()), getEpsAttr());
  Term slope = getScale() ? b.wide(getScale()) * inverse : inverse;
  Term deviation = b.wide(getInput()) - b.spread(b.wide(getMean()));
  Term rest =
      b.wide(getGradient()) - b.spread(offsetShare) - deviation * b.spread(scaleShare * inverse);
  return {b.narrow(b.spread(slope) * rest, getInputGradient()), own.getScaleGradient(),
          own.getOffsetGradient()};
}
