//===- PlanFrontier.cpp - the cheapest plans for all budgets at once ---------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One search for the smallest peak, then sweeps over a ladder of budgets: downwards, each rung
// evicting from the plan of the rung above, and upwards, each rung relaxing the plan of the rung
// below where that is the better one; both twice. Neighbours differ by a few percent of the bytes,
// so short annealings do, and a rung that gains little is left.
//
// Where values can be transferred there are several such sweeps, each of which begins with what the
// ones before have found: recomputation alone, transfers alone, and both together for a ladder of
// budgets of the other spaces. All but the last are there to be begun with, so they sweep once.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Planning/Problem/PlanFile.h"
#include "memopt/Planning/Simulation/PlanSequence.h"

#include "memopt/Planning/Order/PlanStarts.h"
#include "memopt/Planning/Problem/PlanFields.h"
#include "memopt/Planning/Utils/ParallelJobs.h"
#include "memopt/Planning/Utils/SolutionCache.h"

#include <cmath>

using namespace memopt::planning;
using namespace memopt::planning::search;

/// The plans for the fewest bytes, where each byte is dearest, get all rounds of annealing, and in
/// a large graph, which has few moves to spend, this many times those of others.
static constexpr size_t tightRungs = 4;
static constexpr int64_t tightShare = 4;

namespace {

/// What the plans of a ladder may do.
struct Means {
  bool recompute = true, transfer = true;
};

/// A ladder among several: shares of what can be stored, and how long it is searched.
struct Stage {
  Means means;
  double share;
  bool isLast = false;
};

/// The ladder of one problem.
class Ladder {
public:
  Ladder(const PlanProblem &problem, const PlanFrontierOptions &options, const Stage &stage,
         int64_t moves, std::vector<Plan> seeds)
      : problem(problem), options(options), means(stage.means), isLast(stage.isLast), moves(moves),
        graph(problem), seeds(std::move(seeds)) {}

  /// The plans of all rungs; that of the given order comes first.
  std::vector<Plan> run();
  int64_t peakBound = 0;

private:
  void findSmallest();
  void buildRungs();
  Plan bestSegments(int64_t budget) const;
  Plan descend(const Plan &above, size_t rung, bool trySegments) const;
  void sweepDown();
  void sweepDownAgain();
  void sweepUp(int64_t sweep);
  void addPlansByHand(std::vector<Plan> &found) const;
  Plan annealFrom(Plan plan, size_t rung, int64_t sweep) const;
  AnnealOptions annealWithin(int64_t budget) const;
  EvictOptions evictOptions() const { return {false, means.recompute, means.transfer}; }
  bool mayGainAtTheTop() const { return graph.hasStarts && given.cost > graph.baseCost; }

  const PlanProblem &problem;
  const PlanFrontierOptions &options;
  Means means;
  bool isLast;
  int64_t moves;
  Graph graph;
  std::vector<Plan> seeds, byHand;
  Plan given, smallest;
  std::vector<Plan> bases;    ///< run every op once: what segments are cut from, `given` first
  std::vector<int64_t> rungs; ///< budgets, descending
  std::vector<Plan> plans;    ///< by rung: the best for its budget
};

} // namespace

void Ladder::findSmallest() {
  PlanOptions lowest;
  lowest.budget = peakBound;
  lowest.iterations = moves / 4;
  lowest.seed = options.seed;
  lowest.threads = options.threads;
  lowest.recompute = means.recompute;
  lowest.transfer = means.transfer;
  PlanSolution solution = solveChecked(problem, lowest, peakBound);
  peakBound = std::max(peakBound, solution.peakLowerBound);
  smallest = planOf(graph, std::move(solution.order));
  if (means.recompute)
    for (const Plan &base : bases)
      llvm::append_range(byHand, equalSegments(problem, graph, base, /*apart=*/16));
  llvm::append_range(seeds, byHand);
  for (const Plan &plan : seeds)
    if (!plan.excess && (smallest.excess || plan.peak < smallest.peak))
      smallest = plan;
}

/// Percents of the given peak, in finer steps where they are a larger part of what is left.
void Ladder::buildRungs() {
  if (mayGainAtTheTop())
    rungs.push_back(Graph::unlimited);
  double share = 1;
  while (true) {
    int64_t budget = std::llround(share * double(given.peak - graph.resident)) + graph.resident;
    if (budget <= smallest.peak)
      break;
    if (share < 1 || mayGainAtTheTop())
      rungs.push_back(budget);
    share -= share > 0.4 ? 0.02 : share > 0.1 ? 0.01 : share > 0.02 ? 0.0025 : 0.1 * share;
  }
  rungs.push_back(smallest.peak);
}

AnnealOptions Ladder::annealWithin(int64_t budget) const {
  AnnealOptions anneal;
  anneal.budget = budget;
  anneal.hot = 0.002 * temperatureScale(graph);
  anneal.costBound = graph.baseCost;
  anneal.recompute = means.recompute;
  anneal.transfer = means.transfer;
  return anneal;
}

/// Rounds of twice the moves each, for as long as a round finds something better. To begin one
/// takes a large graph as long as a thousand moves.
Plan Ladder::annealFrom(Plan plan, size_t rung, int64_t sweep) const {
  AnnealOptions anneal = annealWithin(rungs[rung]);
  int64_t left = moves * 3 / 8 / static_cast<int64_t>(rungs.size());
  bool isTight = rung + tightRungs >= rungs.size();
  if (isTight && graph.numOps > kLargeGraph)
    left *= tightShare;
  int64_t share = left / (graph.numOps > kLargeGraph ? 2 : 8) + 1;
  for (int64_t round = 0; left > 0; left -= share, share *= 2, ++round) {
    anneal.seed = options.seed * 1000003 + rung * 101 + sweep + round * 7919;
    anneal.moves = std::min(left, share);
    Plan next = search::anneal(graph, plan, anneal);
    if (next.betterThan(plan, anneal.budget))
      plan = std::move(next);
    else if (!isTight)
      break;
  }
  return plan;
}

Plan Ladder::bestSegments(int64_t budget) const {
  Plan best = segmentChain(graph, bases.front(), budget);
  for (const Plan &base : llvm::drop_begin(bases))
    if (Plan other = segmentChain(graph, base, budget); other.betterThan(best, budget))
      best = std::move(other);
  return best;
}

/// A plan for `rungs[rung]`, one rung below that of `above`.
Plan Ladder::descend(const Plan &above, size_t rung, bool trySegments) const {
  int64_t budget = rungs[rung];
  Plan start = evictGreedily(graph, tidied(problem, graph, above), budget, evictOptions());
  for (const Plan &plan : seeds)
    if (plan.betterThan(start, budget))
      start = plan;
  // The chain of segments is another basin; looked at now and then, for it takes a while.
  if (trySegments && means.recompute) {
    Plan segments =
        evictGreedily(graph, tidied(problem, graph, bestSegments(budget)), budget, evictOptions());
    segments = annealFrom(std::move(segments), rung, 0);
    start = annealFrom(std::move(start), rung, 0);
    return segments.betterThan(start, budget) ? segments : start;
  }
  return annealFrom(std::move(start), rung, 0);
}

void Ladder::sweepDown() {
  size_t stride = graph.numOps > kLargeGraph ? 12 : 4;
  for (size_t rung = 0; rung < rungs.size(); ++rung)
    plans.push_back(descend(rung ? plans.back() : given, rung, rung % stride == 0));
  // A good plan for few bytes may lead below what the search for the fewest has found.
  constexpr double kStep = 0.95;
  while (plans.back().fits(rungs.back())) {
    auto working = static_cast<double>(plans.back().peak - graph.resident);
    int64_t budget = graph.resident + static_cast<int64_t>(kStep * working);
    if (budget < peakBound || budget >= plans.back().peak)
      break;
    rungs.push_back(budget);
    bool trySegments = plans.size() % stride == 0;
    Plan lower = descend(plans.back(), plans.size(), trySegments);
    if (!lower.fits(budget) && !trySegments)
      lower = descend(plans.back(), plans.size(), true);
    if (!lower.fits(rungs.back())) {
      rungs.pop_back();
      break;
    }
    plans.push_back(std::move(lower));
  }
  if (plans.back().peak < smallest.peak && !plans.back().excess)
    smallest = plans.back();
}

void Ladder::sweepDownAgain() {
  for (size_t rung = 1; rung < rungs.size(); ++rung) {
    Plan start = evictGreedily(graph, plans[rung - 1], rungs[rung], evictOptions());
    Plan found = annealFrom(std::move(start), rung, 2);
    if (found.betterThan(plans[rung], rungs[rung]))
      plans[rung] = std::move(found);
  }
}

void Ladder::sweepUp(int64_t sweep) {
  Plan below = smallest;
  for (size_t rung = rungs.size(); rung-- > 0;) {
    if (below.betterThan(plans[rung], rungs[rung]))
      plans[rung] = below;
    plans[rung] = annealFrom(std::move(plans[rung]), rung, sweep);
    below = plans[rung];
  }
}

/// What people would make that the sweeps have not reached, each improved within its own bytes.
/// They come last: sweeps that began with them would go other ways, and not be better throughout.
void Ladder::addPlansByHand(std::vector<Plan> &found) const {
  std::vector<Plan> plans;
  for (const Plan &base : bases) {
    llvm::append_range(plans, blockSegments(problem, graph, base));
    if (llvm::any_of(turnsOf(graph, base.order), [](int32_t turn) { return turn > kAllCounts; }))
      llvm::append_range(plans, equalSegments(problem, graph, base, /*apart=*/64));
  }
  AnnealOptions anneal = annealWithin(0);
  anneal.moves = moves / 32 / static_cast<int64_t>(plans.size() + 1);
  for (Plan &plan : plans) {
    if (llvm::any_of(found, [&](const Plan &other) {
          return !other.excess && other.peak <= plan.peak && other.cost <= plan.cost;
        }))
      continue;
    anneal.budget = plan.peak;
    Plan improved = search::anneal(graph, plan, anneal);
    found.push_back(improved.betterThan(plan, plan.peak) ? std::move(improved) : std::move(plan));
  }
}

std::vector<Plan> Ladder::run() {
  // The budgets of other spaces are not those of the plans at hand.
  for (Plan &plan : seeds)
    plan = planOf(graph, std::move(plan.order));
  given = planOf(graph, graph.givenOrder());
  bases = {given};
  for (const std::vector<int32_t> &order : options.orders)
    bases.push_back(planOf(graph, isValid(graph, order) ? order : listSchedule(graph, order)));
  smallest = given;
  peakBound = planPeakLowerBound(problem);
  if (given.peak > peakBound)
    findSmallest();
  if (smallest.peak < given.peak || mayGainAtTheTop()) {
    buildRungs();
    sweepDown();
    sweepUp(1);
    if (isLast) {
      sweepDownAgain();
      sweepUp(3);
    }
  }
  std::vector<Plan> all{given, smallest};
  llvm::append_range(all, plans);
  // Some may stand between two rungs.
  llvm::append_range(all, byHand);
  if (means.recompute && isLast && given.peak > peakBound)
    addPlansByHand(all);
  return all;
}

//===----------------------------------------------------------------------===//
// Several ladders
//===----------------------------------------------------------------------===//

/// A few seconds of one core.
static int64_t defaultMoves(const PlanProblem &problem) {
  auto ops = static_cast<int64_t>(problem.ops.size());
  int64_t moves = std::min<int64_t>(8000000, 12000 * (ops + 1));
  return ops > kLargeGraph ? moves * kLargeGraph / ops : moves;
}

/// The problem with as many bytes of the other spaces as the given order has there, and a share of
/// all that can be stored.
static PlanProblem withShare(const PlanProblem &problem, double share) {
  PlanProblem limited = problem;
  Graph graph(problem);
  Sequence sequence(graph);
  sequence.assign(graph.givenOrder());
  for (int32_t space = 1; space < graph.numSpaces; ++space) {
    double storable = 0;
    for (const PlanWay &way : problem.ways)
      if (way.copy.space == space)
        storable += static_cast<double>(way.copy.bytes);
    limited.spaces[space].budget = sequence.peak(space) + static_cast<int64_t>(share * storable);
  }
  return limited;
}

/// What no other plan beats in every figure.
static PlanFrontier report(const PlanProblem &problem, const std::vector<Plan> &plans,
                           int64_t peakBound) {
  Graph graph(problem);
  PlanFrontier frontier;
  frontier.peakLowerBound = peakBound;
  std::vector<PlanFrontier::Point> points;
  for (const Plan &plan : plans) {
    PlanFrontier::Point point{plan.order, plan.peak, plan.cost, {}};
    if (graph.numSpaces > 1) {
      Sequence sequence(graph);
      sequence.assign(plan.order);
      for (int32_t space = 1; space < graph.numSpaces; ++space)
        point.otherPeaks.push_back(sequence.peak(space));
    }
    points.push_back(std::move(point));
  }
  llvm::sort(points, [](const PlanFrontier::Point &a, const PlanFrontier::Point &b) {
    return std::tie(a.peak, a.cost, a.otherPeaks, a.order) <
           std::tie(b.peak, b.cost, b.otherPeaks, b.order);
  });
  auto isBeaten = [&](const PlanFrontier::Point &point) {
    return llvm::any_of(frontier.points, [&](const PlanFrontier::Point &other) {
      bool beats = other.cost <= point.cost;
      for (auto [mine, its] : llvm::zip(point.otherPeaks, other.otherPeaks))
        beats &= its <= mine;
      return beats;
    });
  };
  for (PlanFrontier::Point &point : points)
    if (!isBeaten(point))
      frontier.points.push_back(std::move(point));
  return frontier;
}

/// The last is the one that may do everything. What is known stands in for the stages that use no
/// way.
static std::vector<Stage> stagesOf(const PlanProblem &problem, bool isKnown) {
  Graph graph(problem);
  if (!graph.hasStarts)
    return {{{true, false}, 1, true}};
  std::vector<Stage> stages;
  if (!isKnown)
    stages.push_back({{true, false}, 1});
  stages.push_back({{false, true}, 1});
  auto isStoredElsewhere = [](const PlanWay &way) { return way.store && way.copy.space != 0; };
  if (llvm::any_of(problem.ways, isStoredElsewhere)) {
    if (!isKnown)
      stages.push_back({{true, true}, 0});
    for (double share : {0.25, 0.5})
      stages.push_back({{true, true}, share});
  }
  stages.push_back({{true, true}, 1, true});
  return stages;
}

static llvm::Expected<std::vector<Plan>> planKnown(const PlanProblem &problem,
                                                   const PlanFrontierOptions &options) {
  Graph graph(problem);
  std::vector<Plan> plans;
  for (const std::vector<int32_t> &order : options.known) {
    if (llvm::Expected<PlanMeasure> measure = measurePlan(problem, order); !measure)
      return measure.takeError();
    plans.push_back(planOf(graph, order));
  }
  return plans;
}

/// Orders have each action that must be there once.
static llvm::Error checkOrders(const PlanProblem &problem, const PlanFrontierOptions &options) {
  if (options.orders.empty())
    return llvm::Error::success();
  std::vector<int32_t> expected = Graph(problem).givenOrder();
  llvm::sort(expected);
  for (auto [number, order] : llvm::enumerate(options.orders)) {
    std::vector<int32_t> actions = order;
    llvm::sort(actions);
    if (actions != expected)
      return llvm::createStringError(
          "order %zu has %zu actions; expected each of the %zu that must be there once", number,
          actions.size(), expected.size());
  }
  return llvm::Error::success();
}

static llvm::Expected<PlanFrontier> solveCheckedFrontier(const PlanProblem &problem,
                                                         const PlanFrontierOptions &options) {
  if (llvm::Error error = checkOrders(problem, options))
    return std::move(error);
  llvm::Expected<std::vector<Plan>> plans = planKnown(problem, options);
  if (!plans)
    return plans.takeError();
  int64_t moves = options.iterations >= 0 ? options.iterations : defaultMoves(problem);
  moves /= static_cast<int64_t>(stagesOf(problem, /*isKnown=*/false).size());
  int64_t peakBound = 0;
  for (const Stage &stage : stagesOf(problem, !options.known.empty())) {
    PlanProblem limited = withShare(problem, stage.share);
    Ladder ladder(limited, options, stage, moves, *plans);
    llvm::append_range(*plans, ladder.run());
    peakBound = stage.means.recompute ? ladder.peakBound : peakBound;
  }
  return report(problem, *plans, peakBound);
}

llvm::Expected<PlanFrontier>
memopt::planning::solvePlanFrontier(const PlanProblem &problem,
                                    const PlanFrontierOptions &options) {
  if (llvm::Error error = checkPlanProblem(problem))
    return std::move(error);
  return findOrSolve<PlanFrontier>(
      options.cache, "frontier",
      [&](FieldWriter &question) {
        question(printPlanProblem(problem), options.iterations, static_cast<int64_t>(options.seed),
                 options.known, options.orders);
      },
      [&](const PlanFrontier &found) { return verifyPlanFrontier(problem, found); },
      [&] { return solveCheckedFrontier(problem, options); });
}
