//===- PlanSolver.h - what to recompute, in which order to run*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rematerialization: given ops with costs and results with bytes, find an order, in which ops may
// run again, that meets a budget on the bytes alive and costs the least. With recomputation
// switched off the same solver orders ops for memory. Both are NP-hard.
//
// solvePlan starts from the given order, from a greedy plan and from segments of the order, and
// anneals each over a sequence of slots (after FastSA, NeurIPS 2023, with its own moves); small
// problems are solved exactly. Starts are fixed by the options and not by the threads, and all work
// is counted in moves: same problem and options, same answer, on any number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_PLANSOLVER_H
#define MEMOPT_PLANNING_PLANSOLVER_H

#include "memopt/Planning/PlanProblem.h"

namespace memopt {
class Cache;
} // namespace memopt

namespace memopt::planning {

struct PlanOptions {
  int64_t budget = 0; ///< bytes of space 0, residents included; the problem has the other budgets
  int64_t iterations = -1; ///< moves of the annealing over all starts; -1: by the problem's size
  uint64_t seed = 1;
  int32_t threads = 1;    ///< for speed only
  Cache *cache = nullptr; ///< where answers are found again, or null; for speed only
  bool keepOrder = false; ///< first instances stay in the given order
  /// Ops may run again; where neither this nor transfers are allowed, the budget is a target for
  /// the order alone.
  bool recompute = true;
  bool transfer = true; ///< values may be fetched by their ways, and starts run again
};

struct PlanSolution {
  bool feasible = false; ///< within all budgets
  /// Actions; if not feasible the plan of the smallest peak found.
  std::vector<int32_t> order;
  int64_t peak = 0; ///< figures as in PlanMeasure
  int64_t cost = 0;
  std::vector<int64_t> otherPeaks;
  int64_t peakLowerBound = 0; ///< proven: no order has a lower peak
  int64_t costLowerBound = 0; ///< proven: no order within the budget costs less (if any is within)
  std::vector<PlanValue> binding; ///< alive at the peak, largest first
  int32_t bindingOp = -1;         ///< the op that runs there
  std::string method;             ///< what found it, for remarks
};

/// measurePlan, and the solution says the truth about its peak, cost, bounds and feasibility.
llvm::Error verifyPlan(const PlanProblem &problem, const PlanOptions &options,
                       const PlanSolution &solution);

/// Solves after checkPlanProblem, whose error it passes on.
llvm::Expected<PlanSolution> solvePlan(const PlanProblem &problem, const PlanOptions &options);

/// Orders the ops for the lowest peak, each running once: list scheduling by bytes freed, then
/// local search. `options.budget` is where to stop; 0 goes for the least that the iterations find.
llvm::Expected<PlanSolution> solveOrder(const PlanProblem &problem, PlanOptions options = {});

/// `order`, in which each op runs once, without detours that the peak does not show: ops that
/// allocate more bytes than they free are moved as late as they can run, then those that free more
/// as early, weight updates right behind their gradients. A step that would raise the peak is not
/// taken. The peak need not fall, but whatever is recomputed later finds the room.
llvm::Expected<std::vector<int32_t>> tidyOrder(const PlanProblem &problem,
                                               std::vector<int32_t> order);

/// `order`, in which each op runs once, with work between the starts of transfers and their waits:
/// starts move towards the front, waits and what only waits for them towards the back, while the
/// plan gets faster and no peak higher. An order with regions, or without starts, stays as it is.
llvm::Expected<std::vector<int32_t>> overlapTransfers(const PlanProblem &problem,
                                                      std::vector<int32_t> order);

struct PlanFrontier {
  struct Point {
    std::vector<int32_t> order; ///< actions
    int64_t peak = 0, cost = 0;
    std::vector<int64_t> otherPeaks;
  };
  std::vector<Point> points;  ///< ascending in peak, descending in cost; the last repeats no op
  int64_t peakLowerBound = 0; ///< proven: no order has a lower peak
};

struct PlanFrontierOptions {
  int64_t iterations = -1; ///< moves of the annealing in all; -1: by the size of the problem
  uint64_t seed = 1;
  int32_t threads = 1;    ///< for speed only
  Cache *cache = nullptr; ///< where answers are found again, or null; for speed only
  /// Orders of this problem that a search without its ways has found: the search goes on from
  /// there, and no point is worse than they are. They take the place of what would be searched
  /// without the ways.
  std::vector<std::vector<int32_t>> known;
};

/// Solves for a ladder of budgets, from the peak of the given order down to the smallest that is
/// found, each rung beginning with the plans of its neighbours: a plan for fewer bytes is also one
/// for more. The ladder follows from the problem alone, so whoever takes the cheapest point within
/// a budget never gets a slower plan for more bytes. Passes on the errors of checkPlanProblem, and
/// of measurePlan for what is known.
llvm::Expected<PlanFrontier> solvePlanFrontier(const PlanProblem &problem,
                                               const PlanFrontierOptions &options = {});

/// Every point's order is valid and has the figures that it says, and the points ascend in peak and
/// descend in cost.
llvm::Error verifyPlanFrontier(const PlanProblem &problem, const PlanFrontier &frontier);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_PLANSOLVER_H
