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
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Transforms/Memory/OrderProblem.h"

#include "memopt/Transforms/Passes.h"

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

/// Whether an order is so much lower on the device that it is worth its shuffling; one that needs
/// more of the host than there is is not, unless the other needs more still.
static bool isWorthwhile(const planning::PlanProblem &problem, const Tidied &found,
                         const Tidied &own) {
  int64_t budget = problem.spaces.size() > kHost ? problem.spaces[kHost].budget : -1;
  auto getExcess = [&](const Tidied &order) {
    return budget < 0 ? 0 : std::max<int64_t>(0, order.hostPeak - budget);
  };
  if (getExcess(found) != getExcess(own))
    return getExcess(found) < getExcess(own);
  return static_cast<double>(found.peak) < kWorthwhile * static_cast<double>(own.peak);
}

static llvm::Expected<std::vector<int32_t>> chooseOrder(planning::PlanProblem problem,
                                                        const planning::PlanOptions &options) {
  std::vector<int32_t> given(problem.ops.size());
  std::iota(given.begin(), given.end(), 0);
  llvm::Expected<Tidied> own = tidy(problem, given);
  if (!own)
    return own.takeError();
  limitWindows(problem, *own);
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

namespace {
struct SchedulePass : public mlir::memopt::impl::SchedulePassBase<SchedulePass> {
  using SchedulePassBase::SchedulePassBase;

  void runOnOperation() override {
    FailureOr<StepModel> step = createPlannableStep(getOperation());
    FailureOr<::memopt::Cache *> folder = openCache(getOperation(), cache);
    if (failed(step) || failed(folder))
      return signalPassFailure();
    OrderProblem problem(*step, CostModel(getOperation()), {hostBudget, /*swaps=*/false});
    if (failed(problem.write(this->problem)))
      return signalPassFailure();
    planning::PlanOptions options;
    options.iterations = iterations;
    options.threads = threads;
    options.cache = *folder;
    llvm::Expected<std::vector<int32_t>> order = chooseOrder(problem.getProblem(), options);
    if (!order) {
      emitError(getOperation().getLoc())
          << "scheduling failed: " << llvm::toString(order.takeError());
      return signalPassFailure();
    }
    if (llvm::is_sorted(*order))
      return;
    problem.noteProgramOrder(getOperation(), *order);
    problem.apply(*order);
  }
};
} // namespace
