//===- PlanSegments.cpp - plans by hand: blocks and equal segments -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The plans that people make by hand (Chen et al. 2016): the forward ops in equal segments, or in
// blocks of the model, one or several to a segment. What one segment takes from another is kept,
// and the rest of it is computed again in front of the first op behind the turning point that reads
// it, as far as that needs it. Coarser than the dynamic program of PlanChain.cpp, but it repeats
// less in graphs whose values reach far.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanStarts.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>

using namespace memopt::planning;
using namespace memopt::planning::search;

namespace {

/// By op the number of its segment; -1 where nothing is repeated.
using Segments = std::vector<int32_t>;

class RepeatedSegments {
public:
  RepeatedSegments(const Graph &graph, llvm::ArrayRef<int32_t> order, int32_t turn,
                   const Segments &segmentOf);
  /// The order with repeats; empty where an op would run again behind one that has to come later.
  std::vector<int32_t> run();

private:
  bool mayRepeat(int32_t value) const {
    int32_t op = graph.opOf[value];
    return segmentOf[op] >= 0 && !graph.pinned[op] && graph.kind[op] == ActionKind::Plain &&
           !kept[value] && !again[op];
  }
  bool repeatFor(int32_t op);

  const Graph &graph;
  llvm::ArrayRef<int32_t> order;
  int32_t turn;
  const Segments &segmentOf;
  std::vector<int32_t> position;
  std::vector<uint8_t> kept; ///< by value: another segment reads it
  std::vector<uint8_t> again, ran;
  std::vector<int32_t> result;
};

} // namespace

RepeatedSegments::RepeatedSegments(const Graph &graph, llvm::ArrayRef<int32_t> order, int32_t turn,
                                   const Segments &segmentOf)
    : graph(graph), order(order), turn(turn), segmentOf(segmentOf), position(graph.numActions),
      kept(graph.numResults, false), again(graph.numActions, false), ran(graph.numActions, false) {
  for (int32_t at = 0, steps = order.size(); at < steps; ++at)
    position[order[at]] = at;
  for (int32_t value = 0; value < graph.numResults; ++value)
    kept[value] = llvm::any_of(graph.users[value], [&](int32_t user) {
      return position[user] < turn && segmentOf[user] != segmentOf[graph.opOf[value]];
    });
}

/// Runs what `op` reads from inside segments again.
bool RepeatedSegments::repeatFor(int32_t op) {
  std::vector<int32_t> open{op}, needed;
  while (!open.empty()) {
    int32_t reader = open.back();
    open.pop_back();
    for (int32_t value : graph.inputs[reader])
      if (value < graph.numResults && mayRepeat(value)) {
        again[graph.opOf[value]] = true;
        needed.push_back(graph.opOf[value]);
        open.push_back(graph.opOf[value]);
      }
  }
  llvm::sort(needed, [&](int32_t a, int32_t b) { return position[a] < position[b]; });
  llvm::append_range(result, needed);
  return llvm::none_of(needed, [&](int32_t repeated) {
    return llvm::any_of(graph.behind[repeated], [&](int32_t later) { return ran[later]; });
  });
}

std::vector<int32_t> RepeatedSegments::run() {
  for (int32_t at = 0, steps = order.size(); at < steps; ++at) {
    if (at >= turn && !repeatFor(order[at]))
      return {};
    ran[order[at]] = true;
    result.push_back(order[at]);
  }
  return std::move(result);
}

/// Leaves those that no other one beats in bytes and cost, ascending in peak.
static void dropBeaten(std::vector<Plan> &plans) {
  llvm::sort(plans, [](const Plan &a, const Plan &b) {
    return std::tie(a.peak, a.cost, a.order) < std::tie(b.peak, b.cost, b.order);
  });
  int64_t cost = std::numeric_limits<int64_t>::max();
  llvm::erase_if(plans, [&](const Plan &plan) {
    bool isBeaten = plan.cost >= cost;
    cost = std::min(cost, plan.cost);
    return isBeaten;
  });
}

/// Equal runs of the ops in front of the turning point. The last one is wanted at once.
static Segments cutEqually(const Graph &graph, llvm::ArrayRef<int32_t> order, int32_t turn,
                           int32_t count) {
  Segments segmentOf(graph.numActions, -1);
  for (int32_t at = 0; at < turn; ++at)
    if (int64_t segment = int64_t(at) * count / turn; segment + 1 < count)
      segmentOf[order[at]] = int32_t(segment);
  return segmentOf;
}

/// `width` blocks to a segment.
static Segments joinBlocks(const PlanProblem &problem, const Graph &graph,
                           llvm::ArrayRef<int32_t> order, int32_t turn, int32_t width) {
  Segments segmentOf(graph.numActions, -1);
  for (int32_t op : order.take_front(turn))
    if (op < graph.numOps && problem.ops[op].block >= 0)
      segmentOf[op] = problem.ops[op].block / width;
  return segmentOf;
}

namespace {

/// Plans of segments, tidied, less what another one beats.
class PlansByHand {
public:
  PlansByHand(const PlanProblem &problem, const Graph &graph, const Plan &start)
      : problem(problem), graph(graph), start(start) {}

  void add(int32_t turn, const Segments &segmentOf) {
    std::vector<int32_t> order = RepeatedSegments(graph, start.order, turn, segmentOf).run();
    if (!order.empty() && isValid(graph, order))
      plans.push_back(planOf(graph, std::move(order)));
  }
  std::vector<Plan> take() {
    dropBeaten(plans);
    for (Plan &plan : plans)
      plan = tidied(problem, graph, std::move(plan));
    dropBeaten(plans);
    return std::move(plans);
  }

private:
  const PlanProblem &problem;
  const Graph &graph;
  const Plan &start;
  std::vector<Plan> plans;
};

} // namespace

std::vector<Plan> memopt::planning::search::equalSegments(const PlanProblem &problem,
                                                          const Graph &graph, const Plan &start,
                                                          int32_t apart) {
  PlansByHand plans(problem, graph, start);
  for (int32_t turn : turnsOf(graph, start.order))
    for (int32_t count = 2; count <= turn;
         count += turn <= kAllCounts ? 1 : std::max(1, count / apart))
      plans.add(turn, cutEqually(graph, start.order, turn, count));
  return plans.take();
}

std::vector<Plan> memopt::planning::search::blockSegments(const PlanProblem &problem,
                                                          const Graph &graph, const Plan &start) {
  constexpr int32_t kApart = 16;
  int32_t blocks = 0;
  for (const PlanOp &op : problem.ops)
    blocks = std::max(blocks, op.block + 1);
  PlansByHand plans(problem, graph, start);
  for (int32_t turn : turnsOf(graph, start.order))
    for (int32_t width = 1; width <= blocks / 2; width += std::max(1, width / kApart))
      plans.add(turn, joinBlocks(problem, graph, start.order, turn, width));
  return plans.take();
}
