//===- MicroBatches.h - what runs for each micro-batch ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decision of split-batch, apart from its rewriting. An op of the joint graph runs once for
// each micro-batch when it touches samples or statistics made of them; what follows from sums alone
// runs once, on totals. Where a micro-batch needs a total, that total has a stage: the number of
// loops over all micro-batches that come before it is known.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_BATCHES_MICROBATCHES_H
#define MEMOPT_LIB_TRANSFORMS_BATCHES_MICROBATCHES_H

#include "memopt/Analysis/BatchModel.h"

#include "llvm/ADT/SetVector.h"

namespace mlir::memopt {

class MicroBatches {
public:
  /// Fails, with a diagnostic, where a value of single samples or of a batch's statistics is used
  /// for more than gradients and running statistics.
  static FailureOr<MicroBatches> create(const StepModel &step, const BatchModel &batch);

  /// Ops that run for each micro-batch, in program order.
  ArrayRef<Operation *> getOps() const { return ops.getArrayRef(); }
  bool isRepeated(Operation *op) const { return op && ops.contains(op); }

  /// The last loop, which runs all ops. The loops before it, from 0, take totals alone.
  unsigned getLastStage() const { return lastStage; }
  /// Before how many loops an op that runs once stands.
  unsigned getStage(Operation *op) const { return stages.lookup(op); }
  /// Results of repeated ops that are summed up in one loop, in program order.
  SmallVector<Value> getTotals(unsigned stage) const;
  /// What a loop runs, in program order.
  SmallVector<Operation *> getOps(unsigned stage) const;

  /// Whether a repeated op, such as one that divides each sample by a sum over all of them, waits
  /// for the total of what a repeated op makes, and computes with that.
  bool readsTotal(Operation *user, Value value) const {
    return isRepeated(value.getDefiningOp()) && isRepeated(user) && !isLocal(user) &&
           !statistics.contains(value) && batch.getReach(value) == Reach::Sum;
  }

  /// Whether `op` computes with what belongs to its own micro-batch, rather than to all of them.
  bool isLocal(Operation *op) const { return locals.contains(op); }
  /// Ops that make the new values of buffers out of what a micro-batch gave, and write them, in
  /// program order: none touches samples, and nothing else uses them.
  ArrayRef<Operation *> getUpdates() const { return updates.getArrayRef(); }
  bool isUpdate(Operation *op) const { return updates.contains(op); }
  /// What one rank sees alone must not decide what all of them do.
  LogicalResult verifyRanks() const;

  /// Ops that make a statistic of each micro-batch where one large batch would have one.
  ArrayRef<Operation *> getStatisticMakers() const { return makers; }

private:
  MicroBatches(const StepModel &step, const BatchModel &batch) : step(step), batch(batch) {}
  void collectBufferUpdates();
  void classify();
  void collectUpdates();
  void classify(Operation *op);
  bool feedsSamples(Value sum) const;
  bool isLocalSum(Value sum) const;
  void chooseSums();
  bool readsStatistic(Operation *op) const;
  LogicalResult collectTotals();
  LogicalResult checkEscape(Value value, Operation *user) const;
  LogicalResult checkDraws(Operation *op) const;
  void chooseLoops();
  unsigned getStageOfOperands(Operation *op) const;
  void collectEarlyTotals();
  void placeRest();

  const StepModel &step;
  const BatchModel &batch;
  llvm::SetVector<Operation *> ops, bufferUpdates, updates;
  DenseSet<Operation *> locals;
  DenseSet<Value> statistics;
  SmallVector<Operation *> makers;
  llvm::SetVector<Value> totals;
  DenseSet<Value> earlyTotals; ///< those that a loop needs
  DenseMap<Operation *, unsigned> stages;
  unsigned lastStage = 0;
  bool sumsAreTotals = false; ///< those that go back to samples, too
};

/// Whether a value follows from counts and constants alone.
bool isCounted(Value value);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_BATCHES_MICROBATCHES_H
