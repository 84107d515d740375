//===- PlanStarts.h - plans to begin the search with ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_ORDER_PLANSTARTS_H
#define MEMOPT_PLANNING_ORDER_PLANSTARTS_H

#include "memopt/Planning/Order/PlanAnneal.h"

#include "memopt/Planning/Order/PlanSolver.h"

namespace memopt::planning::search {

/// Whether a plan has every action that must be there once, and nothing else.
inline bool runsOnce(const Graph &graph, const Plan &plan) {
  return int64_t(plan.order.size()) == graph.numOps + 2 * int64_t(graph.numRegions);
}

/// List scheduling: of the ops that are ready, the one that frees the most beyond what it
/// allocates; among equals the earliest in the given order. With an `order` of all ops, once each,
/// that order is followed, and only what frees more than it allocates runs as early as it can.
/// O(edges * log ops).
std::vector<int32_t> listSchedule(const Graph &graph, llvm::ArrayRef<int32_t> order = {});

/// The same from the end: `order` is followed, but what allocates more than it frees runs as late
/// as it can, in front of its first reader.
std::vector<int32_t> scheduleLate(const Graph &graph, llvm::ArrayRef<int32_t> order);

struct EvictOptions {
  bool keepOrder = false;
  bool recompute = true;
  bool transfer = true; ///< fetches, stores and further runs of starts
};

/// While the peak is above the budget, drops the value alive there that frees the most byte-slots
/// for each unit of cost: it is computed again, the chain of operands that it then needs included,
/// or fetched. Stops where nothing helps. O(evictions * values).
Plan evictGreedily(const Graph &graph, const Plan &start, int64_t budget,
                   const EvictOptions &options);

/// The same where values can be transferred; candidates are judged by simulation.
/// O(evictions * instances).
Plan evictByAllMeans(const Graph &graph, const Plan &start, int64_t budget,
                     const EvictOptions &options);

/// The same plan, faster or with more slack: spare instances dropped, transfers begun earlier and
/// stores waited for later within the budget, or the plan's own peak where that is higher. Nothing
/// changes in a graph without starts.
Plan polish(const Graph &graph, const Plan &plan, int64_t budget, bool keepOrder);

/// The same instances, those that allocate later and those that free earlier, where the peak is no
/// higher for it; a plan of a graph that is not plain must run every op once, or stays as it is.
/// O(edges * log instances).
Plan tidied(const PlanProblem &problem, const Graph &graph, Plan plan);

/// Keeps only the values at cut points of the order and computes each segment again when its values
/// are wanted (Chen et al. 2016), the cut points chosen by dynamic programming over the chain of
/// cuts (after rotor, Beaumont et al. 2019). A plan of the lowest estimated cost, whose peak may
/// still be above the budget.
Plan segmentChain(const Graph &graph, const Plan &start, int64_t budget);

/// Positions in an order of all ops where training may turn from forward to backward: where the
/// most bytes are alive, and the most values.
std::vector<int32_t> turnsOf(const Graph &graph, llvm::ArrayRef<int32_t> order);

/// Plans to begin with have no more instances: each is an instruction of the program.
inline int64_t mostInstances(const Graph &graph) { return 8 * int64_t(graph.numActions) + 64; }

/// Of more ops moves are dear, and what is won by many of them is little.
constexpr int32_t kLargeGraph = 2000;

/// Of more forward ops not every number of equal segments is tried.
constexpr int32_t kAllCounts = 500;

/// Plans by hand (Chen et al. 2016), tidied: the ops before the turning point in equal segments, of
/// every number, or of many ops of numbers a part of `apart` of themselves apart. What another one
/// beats is left out. `start` runs every op once. O(edges * log instances) each.
std::vector<Plan> equalSegments(const PlanProblem &problem, const Graph &graph, const Plan &start,
                                int32_t apart);

/// The same with as many blocks (PlanOp::block) to a segment: 1, 2, 3 and so on.
std::vector<Plan> blockSegments(const PlanProblem &problem, const Graph &graph, const Plan &start);

/// solvePlan of a checked problem, where `peakBound` is proven already; 0: nothing is.
PlanSolution solveChecked(const PlanProblem &problem, const PlanOptions &options,
                          int64_t peakBound);

} // namespace memopt::planning::search

#endif // MEMOPT_PLANNING_ORDER_PLANSTARTS_H
