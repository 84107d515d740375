//===- PlanArena.cpp - the arena problem that an order leaves ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanExecution.h"

using namespace memopt::planning;
using namespace memopt::planning::search;

static ArenaBuffer makeBuffer(const PlanBuffer &buffer, int64_t lower, int64_t upper) {
  ArenaBuffer item;
  item.size = buffer.bytes;
  item.alignment = buffer.alignment;
  item.lower = lower;
  item.upper = upper;
  return item;
}

llvm::Expected<ArenaProblem> memopt::planning::buildArenaProblem(const PlanProblem &problem,
                                                                 llvm::ArrayRef<int32_t> order) {
  Execution execution(problem, order);
  if (llvm::Error error = execution.run())
    return std::move(error);
  ArenaProblem arena;
  for (const PlanBuffer &resident : problem.residents) {
    arena.buffers.push_back(makeBuffer(resident, 0, static_cast<int64_t>(order.size())));
    arena.buffers.back().pinnedAtBottom = true;
  }
  std::vector<int32_t> firstOf(order.size()); // by position: the buffer of the first result
  for (size_t position = 0; position < order.size(); ++position) {
    const PlanOp &op = problem.ops[order[position]];
    auto time = static_cast<int64_t>(position);
    firstOf[position] = static_cast<int32_t>(arena.buffers.size());
    for (size_t result = 0; result < op.results.size(); ++result)
      arena.buffers.push_back(
          makeBuffer(op.results[result], time,
                     static_cast<int64_t>(execution.getLastUse(position, result)) + 1));
    for (const Execution::Takeover &takeover : execution.getTakeovers(position))
      arena.buffers[firstOf[position] + takeover.result].inPlaceOf =
          firstOf[takeover.maker] + takeover.makersResult;
    for (const PlanBuffer &workspace : op.workspaces)
      arena.buffers.push_back(makeBuffer(workspace, time, time + 1));
  }
  return arena;
}
