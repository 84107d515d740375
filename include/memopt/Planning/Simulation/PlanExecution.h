//===- PlanExecution.h - what happens while a plan runs --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_SIMULATION_PLANEXECUTION_H
#define MEMOPT_PLANNING_SIMULATION_PLANEXECUTION_H

#include "memopt/Planning/Simulation/PlanTimeline.h"

namespace memopt::planning::search {

/// Runs a plan, position by position, and notes until when each value that is made is used.
class Execution {
public:
  Execution(const Graph &graph, llvm::ArrayRef<int32_t> order) : graph(graph), order(order) {}

  /// Fails where the order is no valid execution.
  llvm::Error run();

  /// Last position at which the value is used that the action at `position` made as its
  /// `number`-th; `position` if nothing uses it.
  int64_t getLastUse(int64_t position, size_t number) const { return lastUse[position][number]; }

  /// The op at `position` writes its `result`-th value over one that an earlier action made.
  struct Takeover {
    int32_t result;
    int64_t maker;       ///< position
    int32_t makersValue; ///< as the maker counts them
  };
  std::vector<Takeover> getTakeovers(int64_t position) const;

  /// By position, the bytes of a space while its action runs, residents included.
  std::vector<int64_t> getLoads(int32_t space) const;
  llvm::Expected<PlanMeasure> measure() const;

private:
  /// A region that is being run.
  struct Open {
    int32_t region;
    int64_t entered;
    std::vector<std::pair<int32_t, int64_t>> shadowed; ///< value, who had made it before
    std::vector<std::pair<int64_t, int32_t>> needed;   ///< made outside: position, value
  };
  llvm::Error runAction(int64_t position);
  llvm::Error checkPlace(int64_t position) const;
  llvm::Error checkOrder(int64_t position);
  llvm::Error read(int64_t position, int32_t value);
  llvm::Error startOrWait(int64_t position);
  llvm::Error checkEnd() const;
  void enterOrLeave(int64_t position);
  void make(int64_t position, int32_t value);
  void use(int64_t maker, int32_t value, int64_t until);
  int32_t here() const { return open.empty() ? -1 : open.back().region; }
  int32_t numberOf(int64_t position, int32_t value) const;

  const Graph &graph;
  llvm::ArrayRef<int32_t> order;
  std::vector<Open> open;
  std::vector<int64_t> latest;    ///< by value: position of the instance that serves, or -1
  std::vector<int64_t> lastRun;   ///< by action: position, or -1
  std::vector<int64_t> inFlight;  ///< by start: position until it has been waited for, else -1
  std::vector<bool> closed;       ///< by action: something ran that comes after all its instances
  std::vector<int64_t> startedIn; ///< by start: where the region was entered that it started in
  std::vector<std::vector<int64_t>> operandsOf; ///< by position: who made the inputs
  std::vector<std::vector<int64_t>> lastUse;    ///< by position and number of the value
  std::vector<int64_t> counts;                  ///< by position: how often it runs
};

} // namespace memopt::planning::search

#endif // MEMOPT_PLANNING_SIMULATION_PLANEXECUTION_H
