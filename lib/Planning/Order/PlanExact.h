//===- PlanExact.h - best-first search for small problems -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_ORDER_PLANEXACT_H
#define MEMOPT_LIB_PLANNING_ORDER_PLANEXACT_H

#include "memopt/Planning/Order/PlanAnneal.h"

namespace memopt::planning::search {

struct ExactOutcome {
  enum Kind {
    Optimal,    ///< `plan` costs the least of all within the budget
    Infeasible, ///< no plan is within the budget
    Stopped,    ///< too many states; `costBound` holds still
  } kind = Stopped;
  Plan plan;
  int64_t costBound = 0; ///< no plan within the budget costs less
};

/// Whether the problem is small enough to try.
bool fitsExactSearch(const Graph &graph);

/// Visits at most `states` states.
ExactOutcome solveExactly(const Graph &graph, int64_t budget, bool keepOrder, bool recompute,
                          int64_t states);

} // namespace memopt::planning::search

#endif // MEMOPT_LIB_PLANNING_ORDER_PLANEXACT_H
