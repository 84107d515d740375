//===- PlanAnneal.h - simulated annealing of plans -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_ORDER_PLANANNEAL_H
#define MEMOPT_PLANNING_ORDER_PLANANNEAL_H

#include "memopt/Planning/Simulation/MeasuredPlan.h"

namespace memopt::planning::search {

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

/// Anneals max(budget, peak)^peakWeight * cost from `start`, a valid order; returns the best plan
/// seen.
Plan anneal(const Graph &graph, const Plan &start, const AnnealOptions &options);

} // namespace memopt::planning::search

#endif // MEMOPT_PLANNING_ORDER_PLANANNEAL_H
