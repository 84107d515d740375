//===- PlanTidy.cpp - the instances of a plan in better places ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whoever computes a segment again does so at once, though most of it is read much later. Taken as
// ops of their own, the instances of a plan are a problem of order like any other: what allocates
// moves behind, what frees moves ahead. That costs nothing, for no instance comes or goes.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Planning/Order/PlanStarts.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace memopt::planning;
using namespace memopt::planning::search;

/// The instances of `order`, which is a plan of a plain graph, as ops.
static PlanProblem spellOut(const PlanProblem &problem, llvm::ArrayRef<int32_t> order) {
  PlanProblem spelled;
  spelled.residents = problem.residents;
  spelled.ops.reserve(order.size());
  std::vector<llvm::SmallVector<int32_t, 2>> instances(problem.ops.size());
  for (auto [at, number] : llvm::enumerate(order)) {
    PlanOp &op = spelled.ops.emplace_back(problem.ops[number]);
    for (PlanValue &input : op.inputs)
      input.op = instances[input.op].back();
    for (PlanInPlace &pair : op.inPlace)
      pair.operand.op = instances[pair.operand.op].back();
    op.after.clear();
    for (int32_t earlier : problem.ops[number].after)
      llvm::append_range(op.after, instances[earlier]);
    instances[number].push_back(static_cast<int32_t>(at));
  }
  return spelled;
}

Plan memopt::planning::search::tidied(const PlanProblem &problem, const Graph &graph, Plan plan) {
  bool repeats = !runsOnce(graph, plan);
  if (repeats && !graph.isPlain())
    return plan;
  std::optional<PlanProblem> spelled;
  std::optional<Graph> instances;
  const std::vector<int32_t> given = plan.order;
  std::vector<int32_t> order = given;
  if (repeats) {
    spelled.emplace(spellOut(problem, given));
    instances.emplace(*spelled);
    std::iota(order.begin(), order.end(), 0);
  }
  const Graph &ordered = repeats ? *instances : graph;
  for (auto schedule : {&scheduleLate, &listSchedule}) {
    std::vector<int32_t> next = schedule(ordered, order);
    std::vector<int32_t> actions = next;
    // Among instances of one op those that come first may serve others than before.
    if (repeats)
      for (int32_t &action : actions)
        action = given[action];
    Plan moved = planOf(graph, std::move(actions));
    if (moved.peak > plan.peak)
      continue;
    plan = std::move(moved);
    order = std::move(next);
  }
  return plan;
}

llvm::Expected<std::vector<int32_t>> memopt::planning::tidyOrder(const PlanProblem &problem,
                                                                 std::vector<int32_t> order) {
  llvm::Expected<PlanMeasure> given = measurePlan(problem, order);
  if (!given)
    return given.takeError();
  Graph graph(problem);
  if (!runsOnce(graph, {order}))
    return llvm::createStringError("order has %zu instances; expected each of %zu ops once",
                                   order.size(), problem.ops.size());
  return tidied(problem, graph, planOf(graph, std::move(order))).order;
}
