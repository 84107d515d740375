//===- PlanTimeline.h - when the actions of a plan are done ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_SIMULATION_PLANTIMELINE_H
#define MEMOPT_PLANNING_SIMULATION_PLANTIMELINE_H

#include "memopt/Planning/Simulation/PlanGraph.h"

namespace memopt::planning::search {

/// A list simulation: one queue for each resource, and the plan, which goes on when a start is in
/// its queue and stands still until anything else is done.
class Timeline {
public:
  explicit Timeline(const Graph &graph)
      : graph(graph), free(graph.numResources, 0), done(graph.numActions, 0) {}

  /// The next action of the plan, run `count` times. False where time does not fit 63 bits.
  bool step(int32_t action, int64_t count) {
    ActionKind kind = graph.kind[action];
    int64_t cost = graph.cost[action], end = 0;
    if (kind == ActionKind::Wait)
      now = std::max(now, done[graph.partner[action]]);
    if (!cost && kind != ActionKind::Plain && kind != ActionKind::Start)
      return true; // nothing to stand in line for
    int64_t &queue = free[graph.resource[action]];
    if (__builtin_mul_overflow(cost, count, &cost) ||
        __builtin_add_overflow(std::max(now, queue), cost, &end) || end == Graph::tooLong)
      return false;
    queue = end;
    (kind == ActionKind::Start ? done[action] : now) = end;
    return true;
  }

  /// When the plan is through with all actions so far, but for what is in flight.
  int64_t getTime() const { return now; }

private:
  const Graph &graph;
  std::vector<int64_t> free; ///< by resource: when its queue is empty
  std::vector<int64_t> done; ///< by start: when its latest instance is done
  int64_t now = 0;
};

} // namespace memopt::planning::search

#endif // MEMOPT_PLANNING_SIMULATION_PLANTIMELINE_H
