//===- BudgetSearch.cpp - the cheapest order within a number of bytes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/BudgetSearch.h"

#include "OrderProblem.h"

#include "mlir/IR/OwningOpRef.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

/// Search work of each layout: candidates are many, and the plan that is chosen is placed again
/// with more.
static constexpr int64_t kArenaIterations = 2000000;

struct BudgetSearch::State {
  State(ModuleOp module, BudgetOptions options)
      : module(module), options(options), costs(options.profile),
        problem(getStepFunction(module), costs) {}

  LogicalResult fail(llvm::Error error) {
    return module.emitError() << "rematerialization failed: " << llvm::toString(std::move(error));
  }

  ModuleOp module;
  BudgetOptions options;
  CostModel costs;
  OrderProblem problem;
};

BudgetSearch::BudgetSearch(ModuleOp module, BudgetOptions options)
    : state(std::make_unique<State>(module, options)) {}
BudgetSearch::~BudgetSearch() = default;

void BudgetSearch::apply(const BudgetPlan &plan) { state->problem.apply(plan.order); }

FailureOr<BudgetPlan> BudgetSearch::getGivenPlan() {
  std::vector<int32_t> given(state->problem.getProblem().ops.size());
  std::iota(given.begin(), given.end(), 0);
  return measure(std::move(given));
}

/// Places the order on a copy of the module.
FailureOr<BudgetPlan> BudgetSearch::measure(std::vector<int32_t> order, int64_t budget) {
  llvm::Expected<planning::RematMeasure> cost =
      planning::measureRemat(state->problem.getProblem(), order);
  if (!cost)
    return state->fail(cost.takeError());
  OwningOpRef<ModuleOp> copy(state->module.clone());
  func::FuncOp copied = getStepFunction(*copy);
  OrderProblem(copied, state->costs).apply(order);
  planning::ArenaOptions arena;
  arena.capacity = budget;
  arena.iterations = kArenaIterations;
  llvm::Expected<planning::ArenaSolution> layout =
      planning::solveArena(buildArenaProblem(KernelGraph(copied)), arena);
  if (!layout)
    return state->fail(layout.takeError());
  BudgetPlan plan;
  plan.clones = static_cast<int64_t>(order.size() - state->problem.getProblem().ops.size());
  plan.order = std::move(order);
  plan.bytes = layout->height;
  plan.nanoseconds = cost->cost;
  return plan;
}

/// The first guess scales the budget by what reuse in place is worth in the given order; later
/// guesses close in between what fitted and what did not. Every guess costs one search, so they are
/// few.
FailureOr<BudgetPlan> BudgetSearch::findPlan(int64_t budget) {
  constexpr int kRounds = 5;
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  FailureOr<BudgetPlan> best = getGivenPlan();
  if (failed(best) || best->bytes <= budget)
    return best;
  llvm::Expected<planning::RematMeasure> given =
      planning::measureRemat(state->problem.getProblem(), best->order);
  if (!given)
    return state->fail(given.takeError());
  double gain = std::max(1.0, static_cast<double>(given->peak) / static_cast<double>(best->bytes));
  int64_t fits = 0, tooMuch = kUnknown,
          guess = static_cast<int64_t>(static_cast<double>(budget) * gain);
  for (int round = 0; round < kRounds; ++round) {
    planning::RematOptions options;
    options.iterations = state->options.iterations;
    options.threads = state->options.threads;
    options.budget = guess;
    llvm::Expected<planning::RematSolution> solution =
        planning::solveRemat(state->problem.getProblem(), options);
    if (!solution)
      return state->fail(solution.takeError());
    if (llvm::Error wrong = planning::verifyRemat(state->problem.getProblem(), options, *solution))
      return state->fail(std::move(wrong));
    lowerBound = std::max(lowerBound, solution->peakLowerBound);
    bool isSmallest = !solution->feasible;
    FailureOr<BudgetPlan> plan = measure(std::move(solution->order), budget);
    if (failed(plan))
      return failure();
    int64_t bytes = plan->bytes;
    bool isWithin = bytes <= budget, bestIsWithin = best->bytes <= budget;
    if (isWithin ? !bestIsWithin || plan->nanoseconds < best->nanoseconds
                 : !bestIsWithin && bytes < best->bytes)
      best = std::move(plan);
    (isWithin ? fits : tooMuch) = guess;
    // The solver found nothing lower than this: tighter guesses cannot help.
    if (isSmallest && !isWithin)
      break;
    if (isWithin && tooMuch == kUnknown)
      guess += std::max<int64_t>(1, budget - bytes);
    else if (fits)
      guess = fits + (tooMuch - fits) / 2;
    else
      guess = static_cast<int64_t>(static_cast<double>(guess) * static_cast<double>(budget) /
                                   static_cast<double>(bytes));
    if (guess == fits || guess == tooMuch)
      break;
  }
  return best;
}
