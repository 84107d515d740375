//===- PlanExecution.cpp - what happens while a plan runs --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanExecution.h"

#include "llvm/ADT/Twine.h"

#include <set>

using namespace memopt::planning;
using namespace memopt::planning::search;
using llvm::Twine;

static llvm::Error failure(size_t position, const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 "position " + Twine(position) + ": " + message);
}

llvm::Error Execution::runInstance(size_t position) {
  int32_t index = order[position];
  if (index < 0 || size_t(index) >= problem.ops.size())
    return failure(position, "there is no op " + Twine(index));
  const PlanOp &op = problem.ops[index];
  if (op.pinned && latest[index] >= 0)
    return failure(position, "pinned op " + Twine(index) + " runs again");
  if (closed[index])
    return failure(position, "op " + Twine(index) + " runs after an op that must come after it");
  for (PlanValue input : op.inputs) {
    if (latest[input.op] < 0)
      return failure(position,
                     "op " + Twine(index) + " uses op " + Twine(input.op) + ", which has not run");
    lastUse[latest[input.op]][input.result] = position;
  }
  for (const PlanInPlace &pair : op.inPlace)
    operandsOf[position].push_back(latest[pair.operand.op]);
  for (int32_t earlier : op.after) {
    if (latest[earlier] < 0)
      return failure(position, "op " + Twine(index) + " runs before op " + Twine(earlier));
    closed[earlier] = true;
  }
  latest[index] = position;
  lastUse[position].assign(op.results.size(), position);
  return llvm::Error::success();
}

llvm::Error Execution::run() {
  lastUse.resize(order.size());
  operandsOf.resize(order.size());
  latest.assign(problem.ops.size(), -1);
  closed.assign(problem.ops.size(), false);
  for (size_t position = 0; position < order.size(); ++position)
    if (llvm::Error error = runInstance(position))
      return error;
  for (size_t op = 0; op < latest.size(); ++op)
    if (latest[op] < 0)
      return llvm::createStringError("op %zu never runs", op);
  return llvm::Error::success();
}

std::vector<Execution::Takeover> Execution::getTakeovers(size_t position) const {
  const PlanOp &op = problem.ops[order[position]];
  std::vector<Takeover> takeovers;
  std::vector<bool> placed(op.results.size());
  std::set<std::pair<int64_t, int32_t>> taken;
  for (size_t i = 0; i < op.inPlace.size(); ++i) {
    const PlanInPlace &pair = op.inPlace[i];
    int64_t maker = operandsOf[position][i];
    if (placed[pair.result] || lastUse[maker][pair.operand.result] != position ||
        !taken.emplace(maker, pair.operand.result).second)
      continue;
    placed[pair.result] = true;
    takeovers.push_back({pair.result, size_t(maker), pair.operand.result});
  }
  return takeovers;
}

llvm::Expected<PlanMeasure> Execution::measure() const {
  PlanMeasure measure;
  std::vector<int64_t> change(order.size() + 1, 0);
  for (size_t position = 0; position < order.size(); ++position) {
    const PlanOp &op = problem.ops[order[position]];
    for (size_t i = 0; i < op.results.size(); ++i) {
      change[position] += op.results[i].bytes;
      change[lastUse[position][i] + 1] -= op.results[i].bytes;
    }
    if (__builtin_add_overflow(measure.cost, op.cost, &measure.cost))
      return failure(position, "the sum of costs does not fit 64 bits");
  }
  int64_t alive = 0;
  for (const PlanBuffer &resident : problem.residents)
    alive += resident.bytes;
  measure.peak = alive;
  for (size_t position = 0; position < order.size(); ++position) {
    const PlanOp &op = problem.ops[order[position]];
    int64_t now = alive += change[position];
    for (const PlanBuffer &workspace : op.workspaces)
      now += workspace.bytes;
    for (const Takeover &takeover : getTakeovers(position))
      now -= op.results[takeover.result].bytes;
    if (now > measure.peak) {
      measure.peak = now;
      measure.position = position;
    }
  }
  return measure;
}

llvm::Expected<PlanMeasure> memopt::planning::measurePlan(const PlanProblem &problem,
                                                          llvm::ArrayRef<int32_t> order) {
  Execution execution(problem, order);
  if (llvm::Error error = execution.run())
    return std::move(error);
  return execution.measure();
}
