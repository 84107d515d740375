//===- PlanExecution.h - what happens while a plan runs --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_PLANEXECUTION_H
#define MEMOPT_LIB_PLANNING_PLANEXECUTION_H

#include "memopt/Planning/PlanProblem.h"

namespace memopt::planning::search {

/// Runs an order, position by position, and notes where each instance's results are used last.
class Execution {
public:
  Execution(const PlanProblem &problem, llvm::ArrayRef<int32_t> order)
      : problem(problem), order(order) {}

  /// Fails where the order is no valid execution.
  llvm::Error run();

  /// Last position at which a result of the instance at `position` is used; its own if nothing
  /// does.
  size_t getLastUse(size_t position, int32_t result) const { return lastUse[position][result]; }

  /// The instance at `position` writes `result` over a result of an earlier instance.
  struct Takeover {
    int32_t result;
    size_t maker; ///< the position of the earlier instance
    int32_t makersResult;
  };
  std::vector<Takeover> getTakeovers(size_t position) const;

  llvm::Expected<PlanMeasure> measure() const;

private:
  llvm::Error runInstance(size_t position);

  const PlanProblem &problem;
  llvm::ArrayRef<int32_t> order;
  std::vector<int64_t> latest; ///< by op: position of the latest instance, or -1
  std::vector<bool> closed;    ///< by op: something ran that comes after all its instances
  std::vector<std::vector<size_t>> lastUse;     ///< by position and result
  std::vector<std::vector<int64_t>> operandsOf; ///< by position: who made the permitted operands
};

} // namespace memopt::planning::search

#endif // MEMOPT_LIB_PLANNING_PLANEXECUTION_H
