//===- OverlapCollectives.cpp - collectives beside computation -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Input and output: a kernel graph in its order. Runs behind the search for a plan, which takes
// collectives as instructions that hold the step up: so a plan that overlaps never needs more bytes
// than one that does not. Each collective becomes a start and a wait, the starts move towards the
// front and the waits towards the back as transfers do (overlapTransfers), gradients that are sent
// are computed earlier where that saves time, and what still stands side by side becomes one
// instruction again. Where the new order does not fit the budget, or
// the arena of the old one, it gets less room, and in the end the old order stays.
//
// A sum that took over the bytes of its operand does so in flight, too.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Transforms/Memory/OrderProblem.h"

#include "memopt/Transforms/Passes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_OVERLAPCOLLECTIVESPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

//===----------------------------------------------------------------------===//
// Starts and waits
//===----------------------------------------------------------------------===//

static bool isWritten(Value value) {
  return llvm::any_of(getUsesOfBuffer(value),
                      [](OpOperand *use) { return isa<WriteOp, YieldOp>(use->getOwner()); });
}

/// Whether a sum can be made in the bytes of its operand, whatever the order.
static bool mayBeInPlace(CollectiveOp op) {
  Value root = getBufferRoot(op.getInput());
  Operation *maker = root.getDefiningOp();
  return op.getKind() == CollectiveKind::AllReduce && isInstruction(maker) && !isa<ScanOp>(maker) &&
         maker->getBlock() == op->getBlock() && llvm::hasSingleElement(getUsesOfBuffer(root)) &&
         !isWritten(op.getResult());
}

/// A sum whose operand has other readers takes its bytes where it comes last, which in flight it
/// could not; and one that may be made in the variable that it reads would need a copy.
static bool mayFly(CollectiveOp op) {
  if (op.getKind() != CollectiveKind::AllReduce)
    return op.getKind() != CollectiveKind::OwnShard;
  return mayBeInPlace(op) || (!isInstruction(getBufferRoot(op.getInput()).getDefiningOp()) &&
                              !isWritten(op.getResult()));
}

static void split(CollectiveOp op) {
  OpBuilder builder(op);
  auto start = CollectiveStartOp::create(builder, op.getLoc(), op.getKind(), op.getInput(),
                                         op.getRanksAttr().getInt(), mayBeInPlace(op));
  auto wait = CollectiveWaitOp::create(
      builder, op.getLoc(), cast<RankedTensorType>(op.getResult().getType()), start.getToken());
  for (Operation *part : {start.getOperation(), wait.getOperation()}) {
    cast<InstructionOpInterface>(part).setPhase(op.getPhase());
    cast<InstructionOpInterface>(part).setClone(op.getClone());
  }
  op.getResult().replaceAllUsesWith(wait.getResult());
  op.erase();
}

/// Whether nothing runs between the two.
static bool standTogether(Operation *start, Operation *wait) {
  Operation *next = start->getNextNode();
  while (next && !isInstruction(next))
    next = next->getNextNode();
  return next == wait;
}

/// One instruction again, which all threads of a rank work for.
static void join(CollectiveStartOp start) {
  CollectiveWaitOp wait = start.getWait();
  OpBuilder builder(wait);
  auto op = CollectiveOp::create(builder, wait.getLoc(),
                                 cast<RankedTensorType>(wait.getResult().getType()),
                                 start.getKind(), start.getInput(), start.getRanksAttr().getInt());
  op.setPhase(wait.getPhase());
  op.setClone(wait.getClone());
  wait.getResult().replaceAllUsesWith(op.getResult());
  wait.erase();
  start.erase();
}

template <typename Op> static SmallVector<Op> collect(const StepModel &step) {
  SmallVector<Op> ops;
  step.getFunction().walk([&](Op op) { ops.push_back(op); });
  return ops;
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct OverlapCollectivesPass
    : public mlir::memopt::impl::OverlapCollectivesPassBase<OverlapCollectivesPass> {
  using OverlapCollectivesPassBase::OverlapCollectivesPassBase;

  void runOnOperation() override {
    FailureOr<StepModel> step = createPlannableStep(getOperation());
    if (failed(step))
      return signalPassFailure();
    bool flies = llvm::any_of(collect<CollectiveOp>(*step), mayFly);
    if (!flies)
      return markAllAnalysesPreserved();
    FailureOr<int64_t> flights = overlap(*step);
    if (failed(flights))
      return signalPassFailure();
    remark::passed(getOperation().getLoc(), remark::RemarkOpts::name("OverlapCollectives")
                                                .category("memopt-overlap-collectives")
                                                .function(step->getFunction().getName()))
        << remark::metric("Flights", *flights);
  }

private:
  /// The number of collectives that are in flight beside something; 0 leaves the step as it was.
  FailureOr<int64_t> overlap(const StepModel &step) {
    FailureOr<::memopt::Cache *> folder = openCache(getOperation(), cache);
    if (failed(folder))
      return failure();
    FailureOr<int64_t> before = getArenaBytes(step, *folder);
    if (failed(before))
      return failure();
    // Gradients that are computed earlier, to be sent earlier, leave other gaps in the arena: the fewer
    // are, the likelier it fits.
    for (double early : {1.0, 0.75, 0.5, 0.25, 0.0}) {
      FailureOr<int64_t> flights = overlap(step, *folder, *before, early);
      if (failed(flights) || *flights > 0)
        return flights;
    }
    return 0;
  }

  /// The same with a share of the gradients computed early.
  FailureOr<int64_t> overlap(const StepModel &step, ::memopt::Cache *folder, int64_t before,
                             double early) {
    // Live bytes rise above neither; where there is no budget, gaps may take a little beside them.
    int64_t room = std::max<int64_t>(before, budget), less = 0;
    int64_t most = getMostArenaBytes(before, budget);
    const int attempts = early > 0 ? 1 : 6;
    for (int attempt = 0; attempt < attempts && room > 0; ++attempt) {
      OwningOpRef<ModuleOp> trial = cast<ModuleOp>(getOperation()->clone());
      FailureOr<int64_t> flights = tryOverlap(*trial, room, early);
      if (failed(flights) || *flights == 0)
        return flights;
      FailureOr<StepModel> tried = createPlannableStep(*trial);
      if (failed(tried))
        return failure();
      FailureOr<int64_t> bytes = getArenaBytes(*tried, folder);
      if (failed(bytes))
        return failure();
      if (*bytes <= most) {
        step.getFunction().getBody().takeBody(tried->getFunction().getBody());
        return *flights;
      }
      less = std::max(2 * less, *bytes - most); // an arena has gaps that live bytes do not show
      room = std::max<int64_t>(before, budget) - less;
    }
    return 0;
  }

  FailureOr<int64_t> tryOverlap(ModuleOp module, int64_t room, double early) {
    FailureOr<StepModel> step = StepModel::create(module);
    if (failed(step))
      return failure();
    for (CollectiveOp op : collect<CollectiveOp>(*step))
      if (mayFly(op))
        split(op);
    OrderProblem problem(*step, CostModel(module), {hostBudget, /*swaps=*/false});
    std::vector<int32_t> given(problem.getProblem().ops.size());
    std::iota(given.begin(), given.end(), 0);
    auto order = planning::overlapTransfers(problem.getProblem(), std::move(given), room, early);
    if (!order)
      return emitError(module.getLoc())
             << "overlapping collectives failed: " << llvm::toString(order.takeError());
    problem.apply(*order);
    int64_t flights = 0;
    for (CollectiveStartOp start : collect<CollectiveStartOp>(*step)) {
      if (standTogether(start, start.getWait()))
        join(start);
      else
        ++flights;
    }
    return flights;
  }
};
} // namespace
