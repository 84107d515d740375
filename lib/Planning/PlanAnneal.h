//===- PlanAnneal.h - simulated annealing of orders -----------*- C++ -*-===//
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

/// An order with what it costs.
struct Plan {
  std::vector<int32_t> order;
  int64_t peak = 0, cost = 0;
  /// Within the budget the cheaper plan is better, above it the lower; the other figure breaks
  /// ties.
  bool betterThan(const Plan &other, int64_t budget) const {
    bool fits = peak <= budget, otherFits = other.peak <= budget;
    if (fits != otherFits)
      return fits;
    return fits ? std::make_pair(cost, peak) < std::make_pair(other.cost, other.peak)
                : std::make_pair(peak, cost) < std::make_pair(other.peak, other.cost);
  }
};

struct AnnealOptions {
  int64_t budget = 0;
  int64_t moves = 0;
  uint64_t seed = 1;
  double hot = 0.01;     ///< first temperature, as a share of the objective
  double cold = 1e-4;    ///< last temperature, as a share of the first
  int64_t costBound = 0; ///< a plan within the budget at this cost ends the search
  bool keepOrder = false;
  bool recompute = true;
};

/// Temperatures are shares of the cost, and in a large graph each op is a small share.
inline double temperatureScale(const Graph &graph) {
  return std::min(1.0, 400.0 / double(graph.numOps + 1));
}

/// The plan of an order, measured.
Plan planOf(const Graph &graph, std::vector<int32_t> order);

/// Anneals max(budget, peak)^peakWeight * cost from `start`, a valid order; returns the best plan
/// seen.
Plan anneal(const Graph &graph, const Plan &start, const AnnealOptions &options);

} // namespace memopt::planning::search

#endif // MEMOPT_LIB_PLANNING_PLANANNEAL_H
