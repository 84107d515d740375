//===- PlanAnneal.h - simulated annealing of plans -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_PLANANNEAL_H
#define MEMOPT_LIB_PLANNING_PLANANNEAL_H

#include "PlanSequence.h"

namespace memopt::planning::search {

/// An order with what it takes.
struct Plan {
  std::vector<int32_t> order;
  int64_t peak = 0, cost = 0;
  int64_t excess = 0; ///< bytes above the budgets of the other spaces
  /// Bytes above all budgets.
  int64_t over(int64_t budget) const {
    return cost == Graph::tooLong ? cost : std::max<int64_t>(0, peak - budget) + excess;
  }
  bool fits(int64_t budget) const { return peak <= budget && !excess && cost != Graph::tooLong; }
  /// Within the budgets the cheaper plan is better, above them the lower; other figures break ties.
  bool betterThan(const Plan &other, int64_t budget) const {
    if (fits(budget) != other.fits(budget))
      return fits(budget);
    return fits(budget) ? std::tie(cost, peak) < std::tie(other.cost, other.peak)
                        : std::make_tuple(over(budget), cost, peak) <
                              std::make_tuple(other.over(budget), other.cost, other.peak);
  }
};

struct AnnealOptions {
  int64_t budget = 0; ///< of space 0; the graph has those of the others
  int64_t moves = 0;
  uint64_t seed = 1;
  double hot = 0.01;     ///< first temperature, as a share of the objective
  double cold = 1e-4;    ///< last temperature, as a share of the first
  int64_t costBound = 0; ///< a plan within the budget at this cost ends the search
  bool keepOrder = false;
  bool recompute = true; ///< ops may run again
  bool transfer = true;  ///< values may be fetched, and starts run again
};

/// Temperatures are shares of the cost, and in a large graph each op is a small share.
inline double temperatureScale(const Graph &graph) {
  return std::min(1.0, 400.0 / double(graph.numOps + 1));
}

/// The plan of a valid order, measured.
Plan planOf(const Graph &graph, std::vector<int32_t> order);

/// Anneals max(budget, peak)^peakWeight * cost from `start`, a valid order; returns the best plan
/// seen.
Plan anneal(const Graph &graph, const Plan &start, const AnnealOptions &options);

} // namespace memopt::planning::search

#endif // MEMOPT_LIB_PLANNING_PLANANNEAL_H
