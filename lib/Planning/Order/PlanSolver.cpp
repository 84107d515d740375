//===- PlanSolver.cpp - the stages of the search for one plan ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Planning/Simulation/PlanSequence.h"

#include "PlanExact.h"
#include "memopt/Planning/Order/PlanStarts.h"
#include "memopt/Planning/Problem/PlanFields.h"
#include "memopt/Planning/Utils/ParallelJobs.h"
#include "memopt/Planning/Utils/SolutionCache.h"

#include "memopt/Planning/Problem/PlanFile.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace memopt::planning;
using namespace memopt::planning::search;

/// About ten seconds of one core at the most; large graphs make slower moves.
static int64_t defaultMoves(const Graph &graph) {
  int64_t moves = std::min<int64_t>(11000000, 40000 * int64_t(graph.numOps + 1));
  if (graph.numOps > 300)
    moves = int64_t(double(moves) * std::pow(300.0 / graph.numOps, 0.2));
  return moves;
}

/// States of the exact search: a fraction of a second.
static constexpr int64_t exactStates = 200000;
/// Temperature of the second round of annealing.
static constexpr double secondHeat = 0.002;
/// Of the search for an order: moves of the first round for each op, and in all at least and at
/// most, which are doubled from round to round, and the share of the distance to the bound that a
/// round must gain to be worth another.
static constexpr int64_t orderMoves = 100, leastOrderMoves = 100000, mostOrderMoves = 400000;
static constexpr double worthAnother = 0.02;

namespace {

/// One search: where it begins, how hot, and what it may do.
struct Start {
  Plan plan;
  const char *name;
  double hot;
  bool recompute, transfer;
};

class Solver {
public:
  /// `peakBound`: proven before; 0 if nothing is.
  Solver(const PlanProblem &problem, const PlanOptions &options, int64_t peakBound)
      : problem(problem), options(options), graph(problem), peakBound(peakBound) {}

  PlanSolution run();

private:
  void searchExactly(int64_t states);
  std::vector<Start> makeStarts(const Plan &given);
  void annealAll(std::vector<Start> &starts, int64_t moves, int32_t round);
  void annealWhileItPays(std::vector<Start> &starts, int64_t moves);
  void consider(const Plan &plan, const char *name) {
    if (best.order.empty() || plan.betterThan(best, options.budget)) {
      best = plan;
      method = name;
    }
  }
  /// No better plan exists.
  bool isOptimal() const {
    return best.fits(options.budget) ? best.cost <= costBound
                                     : best.peak <= peakBound && !best.excess;
  }
  PlanSolution report();
  double scale() const { return temperatureScale(graph); }

  const PlanProblem &problem;
  const PlanOptions &options;
  Graph graph;
  Plan best;
  const char *method = "";
  int64_t peakBound, costBound = 0;
};

} // namespace

/// With both, each of recomputation and transfers is searched alone first: together they are then
/// not worse than either.
std::vector<Start> Solver::makeStarts(const Plan &given) {
  std::vector<Start> starts;
  bool recompute = options.recompute, transfer = options.transfer && graph.hasStarts;
  starts.push_back({given, "annealing from the given order", 0.01 * scale(), recompute, transfer});
  Plan listed = given;
  if (!options.keepOrder)
    listed = planOf(graph, listSchedule(graph));
  if (!recompute && !transfer) {
    starts.push_back({listed, "local search from a list schedule", 0.01 * scale(), false, false});
    return starts;
  }
  EvictOptions alone{options.keepOrder, recompute, false};
  if (transfer) {
    Plan swapped = evictGreedily(graph, given, options.budget, {options.keepOrder, false, true});
    consider(swapped, "greedy transfers");
    starts.push_back({swapped, "annealing from transfers", 0.003 * scale(), false, true});
  }
  if (!recompute)
    return starts;
  if (transfer) {
    Plan both = evictGreedily(graph, given, options.budget, {options.keepOrder, true, true});
    consider(both, "greedy eviction and transfers");
    starts.push_back({both, "annealing from eviction and transfers", 0.003 * scale(), true, true});
  }
  Plan evicted = evictGreedily(graph, given, options.budget, alone);
  consider(evicted, "greedy eviction from the given order");
  starts.push_back({evicted, "annealing from a greedy plan", 0.003 * scale(), true, false});
  if (!options.keepOrder) {
    Plan both = evictGreedily(graph, listed, options.budget, alone);
    consider(both, "greedy eviction from a list schedule");
    starts.push_back({both, "annealing from a list schedule", 0.003 * scale(), true, false});
  }
  Plan segments = segmentChain(graph, given, options.budget);
  consider(segments, "segments of the given order");
  if (!segments.fits(options.budget))
    segments =
        evictGreedily(graph, segments, options.budget, {options.keepOrder, recompute, transfer});
  consider(segments, "segments and greedy eviction");
  starts.push_back({segments, "annealing from segments", 0.001 * scale(), true, transfer});
  return starts;
}

void Solver::annealAll(std::vector<Start> &starts, int64_t moves, int32_t round) {
  std::vector<std::function<void()>> jobs;
  for (size_t i = 0; i < starts.size(); ++i)
    jobs.push_back([&, i] {
      AnnealOptions anneal;
      anneal.budget = std::max(options.budget, starts[i].recompute ? peakBound : 0);
      anneal.moves = moves / int64_t(starts.size());
      anneal.seed = options.seed * 1000003 + round * 101 + i;
      anneal.hot = starts[i].hot;
      anneal.costBound = costBound;
      anneal.keepOrder = options.keepOrder;
      anneal.recompute = starts[i].recompute;
      anneal.transfer = starts[i].transfer;
      starts[i].plan = search::anneal(graph, starts[i].plan, anneal);
    });
  runJobs(jobs, options.threads);
  for (const Start &start : starts)
    consider(start.plan, start.name);
}

/// The best orders of most graphs are found soon, and what comes later is little.
void Solver::annealWhileItPays(std::vector<Start> &starts, int64_t moves) {
  int64_t share = std::clamp(orderMoves * graph.numOps, leastOrderMoves, mostOrderMoves);
  for (int32_t round = 0; moves > 0 && !isOptimal(); ++round, share *= 2) {
    int64_t before = best.peak;
    annealAll(starts, std::min(moves, share), round);
    moves -= share;
    auto gained = static_cast<double>(before - best.peak);
    if (round && gained <= worthAnother * static_cast<double>(best.peak - peakBound))
      return;
    for (Start &start : starts)
      start.hot = secondHeat * scale();
  }
}

PlanSolution Solver::report() {
  PlanSolution solution;
  solution.order = best.order;
  solution.peak = best.peak;
  solution.cost = best.cost;
  solution.feasible = best.fits(options.budget);
  solution.peakLowerBound = peakBound;
  solution.costLowerBound = costBound;
  solution.method = method;
  if (graph.numOps == 0) {
    for (int32_t space = 1; space < graph.numSpaces; ++space)
      solution.otherPeaks.push_back(graph.residents[space]);
    return solution;
  }
  // What binds: the values alive where the peak stands.
  Sequence sequence(graph);
  sequence.assign(best.order);
  for (int32_t space = 1; space < graph.numSpaces; ++space)
    solution.otherPeaks.push_back(sequence.peak(space));
  int32_t slot = sequence.peakSlot(), action = sequence.at(slot);
  solution.bindingOp = action < graph.numOps ? action : -1;
  for (int32_t value = 0; value < graph.numResults; ++value) {
    llvm::ArrayRef<int32_t> uses = sequence.usesOf(value);
    bool alive = llvm::is_contained(graph.makes[action], value) ||
                 std::binary_search(uses.begin(), uses.end(), slot) ||
                 (sequence.serverOf(value, slot) != Sequence::none &&
                  sequence.nextUse(value, slot) != Sequence::none);
    if (alive && graph.bytes[value])
      solution.binding.push_back(graph.resultOf(value));
  }
  llvm::sort(solution.binding, [&](PlanValue a, PlanValue b) {
    int64_t sizeA = problem.ops[a.op].results[a.result].bytes,
            sizeB = problem.ops[b.op].results[b.result].bytes;
    return std::make_tuple(-sizeA, a.op, a.result) < std::make_tuple(-sizeB, b.op, b.result);
  });
  return solution;
}

/// For a few dozen ops: the optimum, or the smallest peak there is.
void Solver::searchExactly(int64_t states) {
  if (!fitsExactSearch(graph))
    return;
  ExactOutcome outcome;
  if (options.budget >= peakBound) {
    outcome = solveExactly(graph, options.budget, options.keepOrder, options.recompute, states);
    if (outcome.kind == ExactOutcome::Optimal)
      consider(outcome.plan, "exact search");
    if (outcome.kind != ExactOutcome::Infeasible) {
      costBound = std::max(costBound, outcome.costBound);
      return;
    }
    peakBound = options.budget + 1;
  }
  // Halve the way to the smallest feasible peak.
  while (peakBound < best.peak) {
    int64_t middle = peakBound + (best.peak - peakBound) / 2;
    outcome = solveExactly(graph, middle, options.keepOrder, options.recompute, states / 4);
    if (outcome.kind == ExactOutcome::Optimal)
      consider(outcome.plan, "exact search");
    else if (outcome.kind == ExactOutcome::Infeasible)
      peakBound = middle + 1;
    else
      return;
  }
}

PlanSolution Solver::run() {
  costBound = graph.baseCost;
  Plan given = planOf(graph, graph.givenOrder());
  consider(given, "the given order");
  if (best.fits(options.budget) && isOptimal())
    return report(); // every op runs once: nothing is cheaper
  bool mayRepeat = options.recompute || (options.transfer && graph.hasStarts);
  if (!peakBound)
    peakBound = mayRepeat ? planPeakLowerBound(problem) : orderPeakLowerBound(problem);
  if (isOptimal())
    return report();
  searchExactly(options.iterations >= 0 ? std::min<int64_t>(options.iterations, exactStates)
                                        : exactStates);
  if (isOptimal())
    return report();
  int64_t moves = options.iterations >= 0 ? options.iterations : defaultMoves(graph);
  std::vector<Start> starts = makeStarts(given);
  if (isOptimal())
    return report();
  if (!mayRepeat) {
    annealWhileItPays(starts, moves);
    return report();
  }
  // A first look at every start, then most of the moves for those that came out best: a large graph
  // needs one long search more than many short ones.
  bool large = graph.numOps > kLargeGraph;
  int64_t first = large ? moves / 4 : moves * 2 / 5;
  size_t keep = large ? 1 : 2;
  annealAll(starts, first, 0);
  if (isOptimal())
    return report();
  for (size_t kept = 0; kept < keep; ++kept)
    for (size_t i = starts.size(); i-- > kept + 1;)
      if (starts[i].plan.betterThan(starts[i - 1].plan, options.budget))
        std::swap(starts[i], starts[i - 1]);
  starts.resize(std::min(starts.size(), keep));
  for (Start &start : starts) {
    start.hot = secondHeat * scale();
    start.recompute = options.recompute;
    start.transfer = options.transfer && graph.hasStarts;
  }
  annealAll(starts, moves - first, 1);
  return report();
}

PlanSolution memopt::planning::search::solveChecked(const PlanProblem &problem,
                                                    const PlanOptions &options, int64_t peakBound) {
  return Solver(problem, options, peakBound).run();
}

llvm::Expected<PlanSolution> memopt::planning::solvePlan(const PlanProblem &problem,
                                                         const PlanOptions &options) {
  if (llvm::Error error = checkPlanProblem(problem))
    return std::move(error);
  return findOrSolve<PlanSolution>(
      options.cache, "plan",
      [&](FieldWriter &question) {
        question(printPlanProblem(problem), options.budget, options.iterations,
                 static_cast<int64_t>(options.seed), options.keepOrder, options.recompute,
                 options.transfer);
      },
      [&](const PlanSolution &found) { return verifyPlan(problem, options, found); },
      [&]() -> llvm::Expected<PlanSolution> {
        return solveChecked(problem, options, /*peakBound=*/0);
      });
}

llvm::Expected<PlanSolution> memopt::planning::solveOrder(const PlanProblem &problem,
                                                          PlanOptions options) {
  options.recompute = options.transfer = false;
  return solvePlan(problem, options);
}
