//===- PlanFrontier.cpp - the cheapest plans for all budgets at once --------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One search for the smallest peak, then two sweeps over a ladder of budgets: downwards, each rung
// evicting from the plan of the rung above, and upwards, each rung relaxing the plan of the rung
// below where that is the better one. Neighbours differ by a few percent of the bytes, so short
// annealings do.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/PlanSolver.h"

#include "ParallelJobs.h"
#include "PlanStarts.h"

#include <cmath>

using namespace memopt::planning;
using namespace memopt::planning::search;

namespace {

class FrontierSearch {
public:
  FrontierSearch(const PlanProblem &problem, const PlanFrontierOptions &options)
      : problem(problem), options(options), graph(problem) {}

  llvm::Expected<PlanFrontier> run();

private:
  llvm::Error findSmallest();
  void buildLadder();
  Plan descend(const Plan &above, size_t rung, bool trySegments) const;
  void sweepDown();
  void sweepUp();
  Plan annealFrom(const Plan &start, size_t rung, int64_t sweep) const;
  int64_t totalMoves() const;
  PlanFrontier report() const;

  const PlanProblem &problem;
  const PlanFrontierOptions &options;
  Graph graph;
  Plan given, smallest;
  std::vector<Plan> byHand;
  int64_t peakBound = 0;
  std::vector<int64_t> ladder; ///< budgets, descending
  std::vector<Plan> plans;     ///< by rung: the best for its budget
};

} // namespace

/// A few seconds of one core.
int64_t FrontierSearch::totalMoves() const {
  if (options.iterations >= 0)
    return options.iterations;
  return std::min<int64_t>(8000000, 12000 * int64_t(graph.numOps + 1));
}

llvm::Error FrontierSearch::findSmallest() {
  PlanOptions lowest;
  lowest.budget = peakBound;
  lowest.iterations = totalMoves() / 4;
  lowest.seed = options.seed;
  lowest.threads = options.threads;
  // How low a search gets depends on chance; small problems have the time for several.
  int attempts = graph.numOps <= 2000 ? 3 : 1;
  for (int attempt = 0; attempt < attempts; ++attempt, ++lowest.seed) {
    llvm::Expected<PlanSolution> solution = solvePlan(problem, lowest);
    if (!solution)
      return solution.takeError();
    peakBound = std::max(peakBound, solution->peakLowerBound);
    Plan found{std::move(solution->order), solution->peak, solution->cost};
    if (attempt == 0 || found.betterThan(smallest, peakBound))
      smallest = std::move(found);
  }
  byHand = equalSegments(graph, given);
  for (const Plan &plan : byHand)
    if (plan.peak < smallest.peak)
      smallest = plan;
  return llvm::Error::success();
}

/// Percents of the given peak, in finer steps where they are a larger part of what is left.
void FrontierSearch::buildLadder() {
  double share = 1;
  while (true) {
    share -= share > 0.4 ? 0.02 : share > 0.1 ? 0.01 : share > 0.02 ? 0.0025 : 0.1 * share;
    int64_t budget = std::llround(share * double(given.peak - graph.resident)) + graph.resident;
    if (budget <= smallest.peak)
      break;
    ladder.push_back(budget);
  }
  ladder.push_back(smallest.peak);
}

Plan FrontierSearch::annealFrom(const Plan &start, size_t rung, int64_t sweep) const {
  AnnealOptions anneal;
  anneal.budget = ladder[rung];
  anneal.moves = totalMoves() * 3 / 8 / static_cast<int64_t>(ladder.size());
  anneal.seed = options.seed * 1000003 + rung * 101 + sweep;
  anneal.hot = 0.002 * temperatureScale(graph);
  anneal.costBound = graph.baseCost;
  return search::anneal(graph, start, anneal);
}

/// A plan for `ladder[rung]`, one rung below that of `above`.
Plan FrontierSearch::descend(const Plan &above, size_t rung, bool trySegments) const {
  int64_t budget = ladder[rung];
  Plan start = evictGreedily(graph, above, budget, false);
  // The chain of segments is another basin; looked at now and then, for it takes a while.
  if (trySegments) {
    Plan segments = evictGreedily(graph, segmentChain(graph, given, budget), budget, false);
    if (segments.betterThan(start, budget))
      start = std::move(segments);
  }
  for (const Plan &plan : byHand)
    if (plan.betterThan(start, budget))
      start = plan;
  Plan annealed = annealFrom(start, rung, 0);
  return start.betterThan(annealed, budget) ? start : annealed;
}

void FrontierSearch::sweepDown() {
  size_t stride = graph.numOps > 2000 ? 12 : 4;
  for (size_t rung = 0; rung < ladder.size(); ++rung)
    plans.push_back(descend(rung ? plans.back() : given, rung, rung % stride == 0));
  // A good plan for few bytes may lead below what the search for the fewest has found.
  constexpr double kStep = 0.97;
  while (plans.back().peak <= ladder.back()) {
    auto working = static_cast<double>(plans.back().peak - graph.resident);
    int64_t budget = graph.resident + static_cast<int64_t>(kStep * working);
    if (budget < peakBound || budget >= plans.back().peak)
      break;
    ladder.push_back(budget);
    Plan lower = descend(plans.back(), plans.size(), true);
    if (lower.peak > ladder.back()) {
      ladder.pop_back();
      break;
    }
    plans.push_back(std::move(lower));
  }
  if (plans.back().peak < smallest.peak)
    smallest = plans.back();
}

void FrontierSearch::sweepUp() {
  Plan below = smallest;
  for (size_t rung = ladder.size(); rung-- > 0;) {
    int64_t budget = ladder[rung];
    if (below.betterThan(plans[rung], budget))
      plans[rung] = below;
    Plan relaxed = annealFrom(plans[rung], rung, 1);
    if (relaxed.betterThan(plans[rung], budget))
      plans[rung] = std::move(relaxed);
    below = plans[rung];
  }
}

/// What no other plan beats in both figures.
PlanFrontier FrontierSearch::report() const {
  std::vector<std::tuple<int64_t, int64_t, size_t>> ranked; // peak, cost, number in `all`
  std::vector<const Plan *> all{&given, &smallest};
  for (const Plan &plan : plans)
    all.push_back(&plan);
  for (size_t i = 0; i < all.size(); ++i)
    ranked.emplace_back(all[i]->peak, all[i]->cost, i);
  llvm::sort(ranked);
  PlanFrontier frontier;
  frontier.peakLowerBound = peakBound;
  for (auto [peak, cost, number] : ranked)
    if (frontier.points.empty() || cost < frontier.points.back().cost)
      frontier.points.push_back({all[number]->order, peak, cost});
  return frontier;
}

llvm::Expected<PlanFrontier> FrontierSearch::run() {
  std::vector<int32_t> identity(graph.numOps);
  for (int32_t i = 0; i < graph.numOps; ++i)
    identity[i] = i;
  given = planOf(graph, identity);
  smallest = given;
  peakBound = planPeakLowerBound(problem);
  if (given.peak > peakBound) {
    if (llvm::Error error = findSmallest())
      return std::move(error);
    if (smallest.peak < given.peak) {
      buildLadder();
      sweepDown();
      sweepUp();
    }
  }
  return report();
}

llvm::Expected<PlanFrontier>
memopt::planning::solvePlanFrontier(const PlanProblem &problem,
                                    const PlanFrontierOptions &options) {
  if (llvm::Error error = checkPlanProblem(problem))
    return std::move(error);
  return FrontierSearch(problem, options).run();
}
