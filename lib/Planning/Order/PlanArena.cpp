//===- PlanArena.cpp - the arena problem that a plan leaves ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Simulation/PlanExecution.h"

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

/// What an action makes, in the order of Graph::makes, and the workspaces that go with it at once.
namespace {
struct Buffers {
  std::vector<PlanBuffer> made, workspaces;
};
} // namespace

static Buffers buffersOf(const PlanProblem &problem, const Graph &graph, int32_t number) {
  PlanAction action = getAction(problem, number);
  if (action.kind == PlanAction::Run) {
    const PlanOp &op = problem.ops[action.index];
    Buffers buffers{op.results, {}};
    llvm::append_range(graph.kind[number] == ActionKind::Start ? buffers.made : buffers.workspaces,
                       op.workspaces);
    return buffers;
  }
  Buffers buffers;
  if (action.kind == PlanAction::StoreStart) {
    const PlanWay &way = problem.ways[action.index];
    buffers.made = way.store->workspaces;
    buffers.made.push_back(way.copy);
  } else if (action.kind == PlanAction::FetchStart) {
    const PlanWay &way = problem.ways[action.index];
    buffers.made = way.fetch.workspaces;
    buffers.made.push_back(problem.ops[way.value.op].results[way.value.result]);
  }
  return buffers;
}

llvm::Expected<ArenaProblem> memopt::planning::buildArenaProblem(const PlanProblem &problem,
                                                                 llvm::ArrayRef<int32_t> order,
                                                                 int32_t space) {
  Graph graph(problem);
  Execution execution(graph, order);
  if (llvm::Error error = execution.run())
    return std::move(error);
  ArenaProblem arena;
  int64_t end = order.size();
  for (const PlanBuffer &resident : problem.residents)
    if (resident.space == space) {
      arena.buffers.push_back(makeBuffer(resident, 0, end));
      arena.buffers.back().pinnedAtBottom = true;
    }
  std::vector<std::vector<int32_t>> numbers(end); // by position and made value: the buffer, or -1
  std::vector<int64_t> entered(graph.numRegions);
  for (int64_t time = 0; time < end; ++time) {
    Buffers buffers = buffersOf(problem, graph, order[time]);
    for (auto [i, made] : llvm::enumerate(buffers.made)) {
      bool isHere = made.space == space;
      numbers[time].push_back(isHere ? static_cast<int32_t>(arena.buffers.size()) : -1);
      if (isHere)
        arena.buffers.push_back(makeBuffer(made, time, execution.getLastUse(time, i) + 1));
    }
    for (const Execution::Takeover &takeover : execution.getTakeovers(time))
      if (int32_t heir = numbers[time][takeover.result]; heir >= 0)
        arena.buffers[heir].inPlaceOf = numbers[takeover.maker][takeover.makersValue];
    for (const PlanBuffer &workspace : buffers.workspaces)
      if (workspace.space == space)
        arena.buffers.push_back(makeBuffer(workspace, time, time + 1));
    PlanAction action = getAction(problem, order[time]);
    if (action.kind == PlanAction::Enter)
      entered[action.index] = time;
    else if (action.kind == PlanAction::Leave)
      arena.loops.push_back({entered[action.index], time + 1});
  }
  return arena;
}
