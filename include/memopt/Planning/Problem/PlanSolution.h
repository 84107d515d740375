//===- PlanSolution.h - what is asked of a solver, and its answer -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Options, plans and frontiers of a PlanProblem, with the validators that judge them. The
// validators know nothing of the solvers.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_PROBLEM_PLANSOLUTION_H
#define MEMOPT_PLANNING_PROBLEM_PLANSOLUTION_H

#include "memopt/Planning/Problem/PlanProblem.h"

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
  /// Orders of all actions that must be there, once each, in whose segments plans begin besides
  /// those of the given order. Where one breaks a dependence, it is followed as far as it can be.
  std::vector<std::vector<int32_t>> orders;
};

/// Every point's order is valid and has the figures that it says, and the points ascend in peak and
/// descend in cost.
llvm::Error verifyPlanFrontier(const PlanProblem &problem, const PlanFrontier &frontier);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_PROBLEM_PLANSOLUTION_H
