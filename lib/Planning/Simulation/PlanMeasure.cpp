//===- PlanMeasure.cpp - what an order takes ---------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Walked from its end, an order shows at the first use of a value that its life ends there, and at
// an instance that it begins. That takes as long as the operands take to read; a Sequence, which
// can be edited, takes many times as long to lay out.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Simulation/MeasuredPlan.h"
#include "memopt/Planning/Simulation/PlanSequence.h"

using namespace memopt::planning::search;

namespace {

/// The walk through an order without transfers and regions.
class BackwardWalk {
public:
  explicit BackwardWalk(const Graph &graph)
      : graph(graph), alive(graph.numSpaces), peaks(graph.numSpaces),
        readLater(graph.numValues, false) {}

  Plan run(std::vector<int32_t> order);

private:
  void step(int32_t op);

  const Graph &graph;
  std::vector<int64_t> alive, peaks; ///< by space, beyond the residents
  std::vector<uint8_t> readLater;    ///< by value: something behind reads this instance
  llvm::SmallVector<int32_t, 8> endings;
};

} // namespace

void BackwardWalk::step(int32_t op) {
  endings.clear();
  for (int32_t value : graph.inputs[op])
    if (!readLater[value]) {
      endings.push_back(value);
      readLater[value] = true;
      alive[graph.space[value]] += graph.size[value];
    }
  for (int32_t value : graph.makes[op])
    if (!readLater[value])
      alive[graph.space[value]] += graph.size[value];
  for (int32_t space = 0; space < graph.numSpaces; ++space) {
    int64_t takenOver = graph.bytesTakenOver(
        op, space, [&](int32_t operand) { return llvm::is_contained(endings, operand); });
    peaks[space] = std::max(peaks[space], alive[space] + graph.workspaces[space][op] - takenOver);
  }
  for (int32_t value : graph.makes[op]) {
    alive[graph.space[value]] -= graph.size[value];
    readLater[value] = false;
  }
}

Plan BackwardWalk::run(std::vector<int32_t> order) {
  __int128 cost = 0;
  for (int32_t op : llvm::reverse(order)) {
    step(op);
    cost += graph.cost[op];
  }
  Plan plan;
  plan.order = std::move(order);
  plan.peak = graph.residents[0] + peaks[0];
  plan.cost = static_cast<int64_t>(std::min<__int128>(cost, Graph::tooLong));
  for (int32_t space = 1; space < graph.numSpaces; ++space)
    plan.excess +=
        std::max<int64_t>(0, graph.residents[space] + peaks[space] - graph.budgets[space]);
  return plan;
}

Plan memopt::planning::search::planOf(const Graph &graph, std::vector<int32_t> order) {
  if (!graph.hasStarts && !graph.numRegions)
    return BackwardWalk(graph).run(std::move(order));
  Sequence sequence(graph);
  sequence.assign(order);
  return {std::move(order), sequence.peak(), sequence.cost(), sequence.excess()};
}
