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

/// Search work of each layout: several plans may have to be placed, and the one that is chosen is
/// placed again with more.
static constexpr int64_t kArenaIterations = 2000000;

struct BudgetSearch::State {
  State(ModuleOp module, BudgetOptions options)
      : module(module), options(options), costs(module),
        problem(getStepFunction(module), costs) {}

  LogicalResult fail(llvm::Error error) {
    return module.emitError() << "rematerialization failed: " << llvm::toString(std::move(error));
  }
  LogicalResult solve();

  ModuleOp module;
  BudgetOptions options;
  CostModel costs;
  OrderProblem problem;
  std::optional<BudgetPlan> given;
  std::vector<planning::RematFrontier::Point> points; ///< cheapest first
  std::vector<std::optional<BudgetPlan>> placed;      ///< by point
  int64_t lowerBound = 0;
};

BudgetSearch::BudgetSearch(ModuleOp module, BudgetOptions options)
    : state(std::make_unique<State>(module, options)) {}
BudgetSearch::~BudgetSearch() = default;

void BudgetSearch::apply(const BudgetPlan &plan) { state->problem.apply(plan.order); }

int64_t BudgetSearch::getLowerBound() const { return state->lowerBound; }

FailureOr<BudgetPlan> BudgetSearch::getGivenPlan() {
  if (!state->given) {
    std::vector<int32_t> order(state->problem.getProblem().ops.size());
    std::iota(order.begin(), order.end(), 0);
    FailureOr<BudgetPlan> plan = measure(std::move(order));
    if (failed(plan))
      return failure();
    state->given = std::move(*plan);
  }
  return *state->given;
}

/// The points follow from the graph alone and not from any budget: that keeps the promise that a
/// larger budget never gives a slower plan, from one compilation to the next too.
LogicalResult BudgetSearch::State::solve() {
  if (!points.empty())
    return success();
  planning::RematFrontierOptions search;
  search.iterations = options.iterations;
  search.threads = options.threads;
  llvm::Expected<planning::RematFrontier> frontier =
      planning::solveRematFrontier(problem.getProblem(), search);
  if (!frontier)
    return fail(frontier.takeError());
  if (llvm::Error wrong = planning::verifyRematFrontier(problem.getProblem(), *frontier))
    return fail(std::move(wrong));
  lowerBound = frontier->peakLowerBound;
  points.assign(frontier->points.rbegin(), frontier->points.rend());
  placed.resize(points.size());
  return success();
}

/// Places the order on a copy of the module.
FailureOr<BudgetPlan> BudgetSearch::measure(std::vector<int32_t> order) {
  llvm::Expected<planning::RematMeasure> cost =
      planning::measureRemat(state->problem.getProblem(), order);
  if (!cost)
    return state->fail(cost.takeError());
  OwningOpRef<ModuleOp> copy(state->module.clone());
  func::FuncOp copied = getStepFunction(*copy);
  OrderProblem(copied, state->costs).apply(order);
  planning::ArenaOptions arena;
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

/// Only points whose bytes alive are within the budget are placed, the cheapest first; a layout
/// with gaps sends the search on to the next.
FailureOr<BudgetPlan> BudgetSearch::findPlan(int64_t budget) {
  FailureOr<BudgetPlan> best = getGivenPlan();
  if (failed(best) || best->bytes <= budget)
    return best;
  if (failed(state->solve()))
    return failure();
  for (auto [point, plan] : llvm::zip(state->points, state->placed)) {
    bool isLast = &point == &state->points.back();
    if (point.peak > budget && !isLast)
      continue;
    if (!plan) {
      FailureOr<BudgetPlan> measured = measure(point.order);
      if (failed(measured))
        return failure();
      plan = std::move(*measured);
    }
    if (plan->bytes < best->bytes)
      best = *plan;
    if (best->bytes <= budget)
      break;
  }
  return best;
}
