//===- SyncBatchNorm.cpp - batch norms over all ranks -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Statistics of a rank's own samples are those of the op itself, whose normalized result nobody
// uses any more: lowering makes it a kernel of its own, which is then dropped.
//
//===----------------------------------------------------------------------===//

#include "SyncBatchNorm.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::memopt;

bool mlir::memopt::isSynchronized(Operation *op, const BatchModel &batch) {
  if (auto norm = dyn_cast<BatchNormOp>(op))
    return batch.getReach(norm.getMean()) == Reach::Statistic;
  if (auto backward = dyn_cast<BatchNormBackwardOp>(op))
    return batch.getReach(backward.getMean()) == Reach::Statistic;
  return false;
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

namespace {
/// Arithmetic on channels, and on elements with values of their channel.
class NormBuilder {
public:
  NormBuilder(OpBuilder &builder, Operation *op, Value input, int64_t axis, int64_t ranks)
      : builder(builder), location(op->getLoc()), type(cast<RankedTensorType>(input.getType())),
        axis(axis), ranks(ranks), compute(type.getElementType()) {
    if (compute.getIntOrFloatBitWidth() < 32)
      compute = builder.getF32Type();
  }

  int64_t getCount() const { return type.getNumElements() / type.getDimSize(axis) * ranks; }

  Value wide(Value value) { return convertFloats(builder, location, value, compute); }
  Value narrow(Value value, Value like) {
    return convertFloats(builder, location, value,
                         cast<RankedTensorType>(like.getType()).getElementType());
  }
  Value add(Value a, Value b) { return arith::AddFOp::create(builder, location, a, b); }
  Value sub(Value a, Value b) { return arith::SubFOp::create(builder, location, a, b); }
  Value mul(Value a, Value b) { return arith::MulFOp::create(builder, location, a, b); }
  Value div(Value a, double number) {
    return arith::DivFOp::create(builder, location, a, splat(a, number));
  }
  Value inverseDeviation(Value variance, double eps) {
    return math::RsqrtOp::create(builder, location, add(variance, splat(variance, eps)));
  }
  Value sumOverRanks(Value value) {
    return CollectiveOp::create(builder, location, cast<RankedTensorType>(value.getType()),
                                CollectiveKind::AllReduce, value, ranks);
  }
  /// A value of each channel, for each element.
  Value spread(Value value) {
    return BroadcastOp::create(builder, location, type.clone(compute), value,
                               builder.getDenseI64ArrayAttr({axis}));
  }

private:
  Value splat(Value like, double number) {
    return createSplat(builder, location, cast<RankedTensorType>(like.getType()), number);
  }

  OpBuilder &builder;
  Location location;
  RankedTensorType type;
  int64_t axis, ranks;
  Type compute;
};
} // namespace

static SmallVector<Value> buildForward(OpBuilder &builder, BatchNormOp op, int64_t ranks) {
  NormBuilder b(builder, op, op.getInput(), op.getAxis(), ranks);
  double eps = op.getEpsAttr().getValueAsDouble();
  auto own = BatchNormOp::create(builder, op.getLoc(), op.getResult().getType(),
                                 op.getMean().getType(), op.getVariance().getType(), op.getInput(),
                                 Value(), Value(), op.getEpsAttr(), op.getAxisAttr());
  Value ownMean = b.wide(own.getMean()), ownVariance = b.wide(own.getVariance());
  Value mean = b.div(b.sumOverRanks(ownMean), static_cast<double>(ranks));
  Value deviation = b.sub(ownMean, mean);
  Value variance = b.div(b.sumOverRanks(b.add(ownVariance, b.mul(deviation, deviation))),
                         static_cast<double>(ranks));
  Value slope = b.inverseDeviation(variance, eps);
  if (op.getScale())
    slope = b.mul(b.wide(op.getScale()), slope);
  Value result = b.mul(b.sub(b.wide(op.getInput()), b.spread(mean)), b.spread(slope));
  if (op.getOffset())
    result = b.add(result, b.spread(b.wide(op.getOffset())));
  return {b.narrow(result, op.getResult()), b.narrow(mean, op.getMean()),
          b.narrow(variance, op.getVariance())};
}

/// With h = (x - mean) / sqrt(variance + eps) and n elements a channel on all ranks together:
/// input' = scale / sqrt(variance + eps) * (g - sum g / n - h sum (g h) / n).
static SmallVector<Value> buildBackward(OpBuilder &builder, BatchNormBackwardOp op, int64_t ranks) {
  NormBuilder b(builder, op, op.getInput(), op.getAxis(), ranks);
  auto own = BatchNormBackwardOp::create(
      builder, op.getLoc(), op.getInputGradient().getType(), op.getScaleGradient().getType(),
      op.getOffsetGradient().getType(), op.getGradient(), op.getInput(), Value(), op.getMean(),
      op.getVariance(), op.getEpsAttr(), op.getAxisAttr());
  auto count = static_cast<double>(b.getCount());
  Value scaleShare = b.div(b.sumOverRanks(b.wide(own.getScaleGradient())), count);
  Value offsetShare = b.div(b.sumOverRanks(b.wide(own.getOffsetGradient())), count);
  Value inverse = b.inverseDeviation(b.wide(op.getVariance()), op.getEpsAttr().getValueAsDouble());
  Value slope = op.getScale() ? b.mul(b.wide(op.getScale()), inverse) : inverse;
  Value deviation = b.sub(b.wide(op.getInput()), b.spread(b.wide(op.getMean())));
  Value rest = b.sub(b.sub(b.wide(op.getGradient()), b.spread(offsetShare)),
                     b.mul(deviation, b.spread(b.mul(scaleShare, inverse))));
  return {b.narrow(b.mul(b.spread(slope), rest), op.getInputGradient()), own.getScaleGradient(),
          own.getOffsetGradient()};
}

SmallVector<Value> mlir::memopt::buildSynchronized(OpBuilder &builder, Operation *op,
                                                   int64_t ranks) {
  if (auto norm = dyn_cast<BatchNormOp>(op))
    return buildForward(builder, norm, ranks);
  return buildBackward(builder, cast<BatchNormBackwardOp>(op), ranks);
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

static LogicalResult verifyUses(BatchNormOp norm, const MicroBatches &plan) {
  for (Value statistic : {norm.getMean(), norm.getVariance()})
    for (Operation *user : statistic.getUsers())
      if (!isa<BatchNormBackwardOp>(user) && !plan.isUpdate(user))
        return user->emitOpError() << "uses statistics of a batch norm" << describeModule(norm)
                                   << " for more than gradients and running statistics, which "
                                      "--sync-batch-norm does not follow";
  return success();
}

LogicalResult mlir::memopt::verifySynchronized(const StepModel &step, const BatchModel &batch,
                                               const MicroBatches &plan) {
  bool hasNorm = false;
  for (Operation *op : plan.getOps())
    if (auto norm = dyn_cast<BatchNormOp>(op); norm && isSynchronized(norm, batch)) {
      hasNorm = true;
      if (failed(verifyUses(norm, plan)))
        return failure();
    }
  if (!hasNorm)
    return step.getFunction().emitError()
           << "--sync-batch-norm, but no module normalizes by the statistics of a batch: leave the "
              "option out";
  for (Operation *op : plan.getUpdates())
    for (Value operand : op->getOperands()) {
      Operation *maker = operand.getDefiningOp();
      if (plan.isRepeated(maker) && !plan.isUpdate(maker) && !isSynchronized(maker, batch))
        return op->emitError() << "moves a buffer by a statistic of one rank's samples"
                               << describeModule(maker)
                               << ", which --sync-batch-norm does not take over all ranks";
    }
  return success();
}
