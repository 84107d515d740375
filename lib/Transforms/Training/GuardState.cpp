//===- GuardState.cpp - no state changes before the loss is known -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step whose loss is not finite must leave everything as it was, running statistics included,
// which a model updates in the middle of its forward pass. This pass puts `memopt.commit` behind
// the loss and moves every write of state behind that, with the ops that only make what is written:
//
//   %mean = ... ; write %mean, @m ; %loss = ...   ->   %mean = ... ; %loss = ... ; commit %loss
//                                                      write %mean, @m
//
// What moved belongs to the update from then on, so that it is not fused with the forward pass. The
// values that it is made of (a batch's statistics) live until the loss is known.
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"

#include "llvm/ADT/SetVector.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_GUARDSTATEPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// Whether an op of the forward pass tells the optimizer something of the samples, as whether they
/// use a parameter: it is computed where they are.
static bool tellsOptimizer(Operation *op) {
  return getPhase(op) == Phase::Forward && !op->hasTrait<OpTrait::ConstantLike>() &&
         llvm::all_of(op->getUsers(),
                      [](Operation *user) { return getPhase(user) == Phase::Optimizer; });
}

/// The writes of state in the step's own block, and the ops that serve nothing but them.
static llvm::SetVector<Operation *> collectUpdates(const StepModel &step) {
  llvm::DenseSet<StringAttr> state;
  for (auto variable : step.getModule().getOps<VariableOp>())
    if (variable.isState())
      state.insert(variable.getSymNameAttr());
  llvm::SetVector<Operation *> updates;
  for (Operation &op : llvm::reverse(step.getBody())) {
    if (auto write = dyn_cast<WriteOp>(op);
        write && state.contains(write.getVariableAttr().getAttr()))
      updates.insert(&op);
    else if (isPure(&op) && !op.use_empty() && !tellsOptimizer(&op) &&
             llvm::all_of(op.getUsers(), [&](Operation *user) { return updates.contains(user); }))
      updates.insert(&op);
  }
  return updates;
}

namespace {
struct GuardStatePass : mlir::memopt::impl::GuardStatePassBase<GuardStatePass> {
  void runOnOperation() override {
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step))
      return signalPassFailure();
    Value loss = step->getLoss();
    llvm::SetVector<Operation *> updates = collectUpdates(*step);
    if (!loss || updates.empty() || step->getCommit())
      return;
    OpBuilder builder(getOperation().getContext());
    builder.setInsertionPointAfterValue(loss);
    auto commit = CommitOp::create(builder, loss.getLoc(), loss);
    moveBehind(commit, updates);
    for (Operation *op : updates)
      setPhase(op, Phase::Optimizer);
    if (failed(StepModel::create(getOperation())->verifyAccesses()))
      signalPassFailure();
  }

  /// In their order; what stands behind already stays where it is.
  static void moveBehind(CommitOp commit, const llvm::SetVector<Operation *> &updates) {
    Operation *last = commit;
    SmallVector<Operation *> moved;
    for (Operation &op : *commit->getBlock()) {
      if (&op == commit)
        break;
      if (updates.contains(&op))
        moved.push_back(&op);
    }
    for (Operation *op : moved) {
      op->moveAfter(last);
      last = op;
    }
  }
};
} // namespace
