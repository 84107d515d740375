//===- Schedule.cpp - order the instructions for the lowest peak -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Input and output: the kernel graph. The order that autodiff leaves keeps every gradient until the
// optimizer at the end; here each update moves to where its gradient is final, weight gradients to
// where they free the most, and so on, all as one search over orders: Planning's solveOrder, each
// instruction running once. Where the search gains little, the program's own order is kept but for
// what frees or allocates and can move. Transfers then start earlier and are waited for later as
// far as the peak allows.
//
// Each block of the step is ordered by the same search: bodies of loops from the inside to the
// outside, then the main block, in which later passes recompute, and in the end the step around its
// loops over micro-batches.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Planning/Problem/PlanFile.h"
#include "memopt/Transforms/Memory/OrderProblem.h"

#include "memopt/Transforms/Passes.h"

#include "llvm/ADT/StringMap.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_SCHEDULEPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

/// The search shuffles whatever does not stand at the peak, which later searches for recomputation
/// would have to undo. Its order is taken where it is lower than the program's by more than this.
static constexpr double kWorthwhile = 0.995;

static constexpr auto kHost = static_cast<size_t>(Space::Host);

namespace {
struct Tidied {
  std::vector<int32_t> order;
  int64_t peak, hostPeak;
};
} // namespace

static llvm::Expected<Tidied> tidy(const planning::PlanProblem &problem,
                                   const std::vector<int32_t> &order) {
  llvm::Expected<std::vector<int32_t>> tidied = planning::tidyOrder(problem, order);
  if (!tidied)
    return tidied.takeError();
  llvm::Expected<planning::PlanMeasure> measure = planning::measurePlan(problem, *tidied);
  if (!measure)
    return measure.takeError();
  int64_t hostPeak = measure->otherPeaks.empty() ? 0 : measure->otherPeaks[kHost - 1];
  return Tidied{std::move(*tidied), measure->peak, hostPeak};
}

/// Hiding transfers takes bytes of the host, as many as there are. But the windows of a disk are
/// there to be few: unless a budget says more, as many again as the program's own order needs.
static void limitWindows(planning::PlanProblem &problem, const Tidied &own) {
  constexpr auto disk = static_cast<size_t>(Space::Disk);
  if (problem.spaces.size() > disk && problem.spaces[kHost].budget < 0)
    problem.spaces[kHost].budget = kWindowRoom * own.hostPeak;
}

/// Bytes of the host above what there is.
static int64_t getExcess(const planning::PlanProblem &problem, const Tidied &order) {
  int64_t budget = problem.spaces.size() > kHost ? problem.spaces[kHost].budget : -1;
  return budget < 0 ? 0 : std::max<int64_t>(0, order.hostPeak - budget);
}

static bool isWorthwhile(int64_t peak, const Tidied &own) {
  return static_cast<double>(peak) < kWorthwhile * static_cast<double>(own.peak);
}

/// Whether an order is so much lower on the device that it is worth its shuffling; one that needs
/// more of the host than there is is not, unless the other needs more still.
static bool isWorthwhile(const planning::PlanProblem &problem, const Tidied &found,
                         const Tidied &own) {
  int64_t excess = getExcess(problem, found), ownExcess = getExcess(problem, own);
  return excess == ownExcess ? isWorthwhile(found.peak, own) : excess < ownExcess;
}

static llvm::Expected<std::vector<int32_t>> chooseOrder(planning::PlanProblem problem,
                                                        const planning::PlanOptions &options) {
  llvm::Expected<Tidied> own = tidy(problem, planning::getGivenOrder(problem));
  if (!own)
    return own.takeError();
  limitWindows(problem, *own);
  // Of most bodies and many steps it is known that no search would find a lower one.
  if (getExcess(problem, *own) == 0 && !isWorthwhile(planning::orderPeakLowerBound(problem), *own))
    return planning::overlapTransfers(problem, std::move(own->order));
  llvm::Expected<planning::PlanSolution> solution = planning::solveOrder(problem, options);
  if (!solution)
    return solution.takeError();
  if (llvm::Error wrong = planning::verifyPlan(problem, options, *solution))
    return std::move(wrong);
  llvm::Expected<Tidied> found = tidy(problem, solution->order);
  if (!found)
    return found.takeError();
  Tidied &best = isWorthwhile(problem, *found, *own) ? *found : *own;
  return planning::overlapTransfers(problem, std::move(best.order));
}

//===----------------------------------------------------------------------===//
// Blocks beside the main one
//===----------------------------------------------------------------------===//

/// The blocks of a step's loops, those of the step's own instructions first, then theirs.
static SmallVector<SmallVector<Block *>> getBodiesByDepth(Block &step) {
  SmallVector<SmallVector<Block *>> levels{{&step}};
  while (!levels.back().empty()) {
    SmallVector<Block *> next;
    for (Block *block : levels.back())
      for (auto instruction : block->getOps<InstructionOpInterface>())
        llvm::append_range(next, instruction.getBodies());
    levels.push_back(std::move(next));
  }
  return llvm::to_vector(ArrayRef(levels).drop_front().drop_back());
}

namespace {
/// The orders of blocks in which no later search looks for room. Blocks that are alike are searched
/// once: the bodies of a long sequence's loops, say.
class BlockOrders {
public:
  explicit BlockOrders(const planning::PlanOptions &options) : options(options) {}

  /// The order for `block`; that of the program where no other is lower, or as low and faster.
  llvm::Expected<ArrayRef<int32_t>> find(const planning::PlanProblem &block);

private:
  const planning::PlanOptions &options;
  llvm::StringMap<std::vector<int32_t>> known; ///< by problem
};
} // namespace

llvm::Expected<ArrayRef<int32_t>> BlockOrders::find(const planning::PlanProblem &block) {
  auto [entry, isNew] = known.try_emplace(planning::printPlanProblem(block));
  std::vector<int32_t> &order = entry->second;
  if (!isNew)
    return ArrayRef(order);
  llvm::Expected<std::vector<int32_t>> chosen = chooseOrder(block, options);
  if (!chosen)
    return chosen.takeError();
  order = planning::getGivenOrder(block);
  llvm::Expected<planning::PlanMeasure> given = planning::measurePlan(block, order),
                                        better = planning::measurePlan(block, *chosen);
  if (!given || !better)
    return joinErrors(given.takeError(), better.takeError());
  if (std::tie(better->peak, better->cost) < std::tie(given->peak, given->cost))
    order = std::move(*chosen);
  return ArrayRef(order);
}

namespace {
struct SchedulePass : public mlir::memopt::impl::SchedulePassBase<SchedulePass> {
  using SchedulePassBase::SchedulePassBase;

  void runOnOperation() override {
    FailureOr<StepModel> step = createPlannableStep(getOperation());
    FailureOr<::memopt::Cache *> folder = openCache(getOperation(), cache);
    if (failed(step) || failed(folder))
      return signalPassFailure();
    planning::PlanOptions options;
    options.iterations = iterations;
    options.threads = threads;
    options.cache = *folder;
    CostModel costs(getOperation());
    BlockOrders orders(options);
    Block &main = OrderProblem::getMainBlock(*step), &whole = step->getBody();
    SmallVector<SmallVector<Block *>> levels = getBodiesByDepth(whole);
    for (SmallVector<Block *> &bodies : llvm::reverse(levels)) {
      llvm::erase(bodies, &main);
      if (failed(orderBlocks(*step, bodies, costs, orders)))
        return signalPassFailure();
    }
    if (failed(orderMain(*step, costs, options)) ||
        (&main != &whole && failed(orderBlocks(*step, &whole, costs, orders))))
      return signalPassFailure();
  }

private:
  HostRoom getRoom() const { return {hostBudget, /*swaps=*/false}; }

  LogicalResult fail(llvm::Error error) {
    return emitError(getOperation().getLoc())
           << "scheduling failed: " << llvm::toString(std::move(error));
  }

  /// Blocks of which none is in another: their orders do not change each other.
  LogicalResult orderBlocks(const StepModel &step, ArrayRef<Block *> blocks, const CostModel &costs,
                            BlockOrders &orders) {
    KernelGraph graph(step.getFunction());
    for (Block *block : blocks) {
      OrderProblem problem(step, graph, *block, costs, getRoom());
      llvm::Expected<ArrayRef<int32_t>> order = orders.find(problem.getProblem());
      if (!order)
        return fail(order.takeError());
      if (!llvm::is_sorted(*order))
        problem.apply(*order);
    }
    return success();
  }

  LogicalResult orderMain(const StepModel &step, const CostModel &costs,
                          const planning::PlanOptions &options) {
    OrderProblem problem(step, costs, getRoom());
    if (failed(problem.write(this->problem)))
      return failure();
    llvm::Expected<std::vector<int32_t>> order = chooseOrder(problem.getProblem(), options);
    if (!order)
      return fail(order.takeError());
    if (llvm::is_sorted(*order))
      return success();
    problem.noteProgramOrder(getOperation(), *order);
    problem.apply(*order);
    return success();
  }
};
} // namespace
