//===- SyncBatchNorm.cpp - batch norms over all ranks -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SyncBatchNorm.h"

using namespace mlir;
using namespace mlir::memopt;

bool mlir::memopt::isSynchronized(Operation *op, const BatchModel &batch) {
  auto norm = dyn_cast<BatchStatisticsOpInterface>(op);
  return norm && batch.getReach(norm.getBatchStatistics().front()) == Reach::Statistic;
}

static LogicalResult verifyUses(BatchStatisticsOpInterface norm, const MicroBatches &plan) {
  for (Value statistic : norm.getBatchStatistics())
    for (Operation *user : statistic.getUsers())
      if (!isa<BatchStatisticsOpInterface>(user) && !plan.isUpdate(user))
        return user->emitOpError() << "uses statistics of a batch norm" << describeModule(norm)
                                   << " for more than gradients and running statistics, which "
                                      "--sync-batch-norm does not follow";
  return success();
}

LogicalResult mlir::memopt::verifySynchronized(const StepModel &step, const BatchModel &batch,
                                               const MicroBatches &plan) {
  bool hasNorm = false;
  for (Operation *op : plan.getOps())
    if (auto norm = dyn_cast<BatchStatisticsOpInterface>(op); norm && isSynchronized(op, batch)) {
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
