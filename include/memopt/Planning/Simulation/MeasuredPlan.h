//===- MeasuredPlan.h - an order with what it takes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_SIMULATION_MEASUREDPLAN_H
#define MEMOPT_PLANNING_SIMULATION_MEASUREDPLAN_H

#include "memopt/Planning/Simulation/PlanGraph.h"

#include <tuple>

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

/// The plan of a valid order, measured.
Plan planOf(const Graph &graph, std::vector<int32_t> order);

/// Whether an order is an execution; in a plain graph that is for its maker to see to.
bool isValid(const Graph &graph, llvm::ArrayRef<int32_t> order);

} // namespace memopt::planning::search

#endif // MEMOPT_PLANNING_SIMULATION_MEASUREDPLAN_H
