//===- PlanProblem.cpp - checks rematerialization problems, judges orders ---===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanGraph.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

#include <algorithm>
#include <set>

using namespace memopt::planning;
using namespace memopt::planning::search;
using llvm::Twine;

static llvm::Error failure(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

static constexpr int64_t sumLimit = int64_t(1) << 62;

/// Adds a field that must not be negative to a sum that must stay below 2^62.
static llvm::Error accumulate(int64_t &sum, int64_t value, size_t op, const char *field) {
  if (value < 0)
    return failure("op " + Twine(op) + ": " + field + " is " + Twine(value) +
                   ", expected at least 0");
  if (value > sumLimit - sum)
    return failure("op " + Twine(op) + ": the sum of " + field +
                   " up to here does not fit 62 bits");
  sum += value;
  return llvm::Error::success();
}

static llvm::Error checkInPlace(const PlanProblem &problem, size_t index, const PlanInPlace &pair) {
  const PlanOp &op = problem.ops[index];
  if (pair.result < 0 || size_t(pair.result) >= op.results.size())
    return failure("op " + Twine(index) + ": result " + Twine(pair.result) +
                   " in place, expected one of " + Twine(op.results.size()) + " results");
  if (!llvm::is_contained(op.inputs, pair.operand))
    return failure("op " + Twine(index) + ": in place of result " + Twine(pair.operand.result) +
                   " of op " + Twine(pair.operand.op) + ", expected one of its inputs");
  int64_t available = problem.ops[pair.operand.op].results[pair.operand.result].bytes;
  int64_t wanted = op.results[pair.result].bytes;
  if (available < wanted)
    return failure("op " + Twine(index) + ": result " + Twine(pair.result) + " has " +
                   Twine(wanted) + " bytes, in place of " + Twine(available));
  return llvm::Error::success();
}

llvm::Error memopt::planning::checkPlanProblem(const PlanProblem &problem) {
  if (problem.ops.size() > size_t(1) << 24)
    return failure("more than 2^24 ops");
  int64_t bytes = 0, cost = 0;
  for (const PlanBuffer &resident : problem.residents) {
    if (resident.bytes < 0 || resident.bytes > sumLimit - bytes)
      return failure("resident bytes are " + Twine(resident.bytes) + ", expected 0 to 2^62 in all");
    bytes += resident.bytes;
  }
  for (size_t i = 0; i < problem.ops.size(); ++i) {
    const PlanOp &op = problem.ops[i];
    for (const PlanBuffer &result : op.results)
      if (llvm::Error error = accumulate(bytes, result.bytes, i, "bytes"))
        return error;
    for (const PlanBuffer &workspace : op.workspaces)
      if (llvm::Error error = accumulate(bytes, workspace.bytes, i, "workspace"))
        return error;
    if (llvm::Error error = accumulate(cost, op.cost, i, "cost"))
      return error;
    for (PlanValue input : op.inputs) {
      if (input.op < 0 || size_t(input.op) >= i)
        return failure("op " + Twine(i) + ": input is op " + Twine(input.op) +
                       ", expected an earlier one");
      if (input.result < 0 || size_t(input.result) >= problem.ops[input.op].results.size())
        return failure("op " + Twine(i) + ": input is result " + Twine(input.result) + " of op " +
                       Twine(input.op) + ", which has " +
                       Twine(problem.ops[input.op].results.size()));
    }
    for (int32_t earlier : op.after)
      if (earlier < 0 || size_t(earlier) >= i)
        return failure("op " + Twine(i) + ": comes after op " + Twine(earlier) +
                       ", expected an earlier one");
    for (const PlanInPlace &pair : op.inPlace)
      if (llvm::Error error = checkInPlace(problem, i, pair))
        return error;
    if (!llvm::is_sorted(op.inPlace, [](const PlanInPlace &a, const PlanInPlace &b) {
          return a.result < b.result;
        }))
      return failure("op " + Twine(i) + ": results in place, expected in ascending order");
  }
  return llvm::Error::success();
}

llvm::Error memopt::planning::verifyPlan(const PlanProblem &problem, const PlanOptions &options,
                                         const PlanSolution &solution) {
  llvm::Expected<PlanMeasure> measure = measurePlan(problem, solution.order);
  if (!measure)
    return measure.takeError();
  if (measure->peak != solution.peak)
    return failure("peak is " + Twine(measure->peak) + ", the plan says " + Twine(solution.peak));
  if (measure->cost != solution.cost)
    return failure("cost is " + Twine(measure->cost) + ", the plan says " + Twine(solution.cost));
  if (solution.feasible != (solution.peak <= options.budget))
    return failure("peak " + Twine(solution.peak) + " against budget " + Twine(options.budget) +
                   ", the plan says it " + (solution.feasible ? "fits" : "does not fit"));
  if (solution.peakLowerBound > solution.peak)
    return failure("peak " + Twine(solution.peak) + " is below its lower bound " +
                   Twine(solution.peakLowerBound));
  if (solution.feasible && solution.costLowerBound > solution.cost)
    return failure("cost " + Twine(solution.cost) + " is below its lower bound " +
                   Twine(solution.costLowerBound));
  if (!options.recompute && solution.order.size() != problem.ops.size())
    return failure(Twine(solution.order.size()) + " instances of " + Twine(problem.ops.size()) +
                   " ops, and none may run again");
  if (options.keepOrder) {
    int32_t next = 0;
    for (int32_t op : solution.order) {
      if (op > next)
        return failure("op " + Twine(op) + " runs before op " + Twine(next) +
                       ", and the order must be kept");
      next = std::max(next, op + 1);
    }
  }
  return llvm::Error::success();
}

llvm::Error memopt::planning::verifyPlanFrontier(const PlanProblem &problem,
                                                 const PlanFrontier &frontier) {
  const PlanFrontier::Point *below = nullptr;
  for (const PlanFrontier::Point &point : frontier.points) {
    llvm::Expected<PlanMeasure> measure = measurePlan(problem, point.order);
    if (!measure)
      return measure.takeError();
    if (measure->peak != point.peak || measure->cost != point.cost)
      return failure("peak " + Twine(measure->peak) + " and cost " + Twine(measure->cost) +
                     ", the frontier says " + Twine(point.peak) + " and " + Twine(point.cost));
    if (below && (below->peak >= point.peak || below->cost <= point.cost))
      return failure("the frontier's points of peaks " + Twine(below->peak) + " and " +
                     Twine(point.peak) + " have costs " + Twine(below->cost) + " and " +
                     Twine(point.cost) + ", expected to descend");
    below = &point;
  }
  if (frontier.points.empty() || frontier.points.front().peak < frontier.peakLowerBound)
    return failure("the frontier is empty or goes below its bound");
  return llvm::Error::success();
}

Rows Rows::from(const std::vector<std::vector<int32_t>> &lists) {
  Rows rows;
  for (const std::vector<int32_t> &list : lists) {
    rows.items.insert(rows.items.end(), list.begin(), list.end());
    rows.start.push_back(rows.items.size());
  }
  return rows;
}

Graph::Graph(const PlanProblem &problem) {
  for (const PlanBuffer &buffer : problem.residents)
    resident += buffer.bytes;
  numOps = problem.ops.size();
  for (int32_t i = 0; i < numOps; ++i) {
    const PlanOp &op = problem.ops[i];
    cost.push_back(op.cost);
    workspace.push_back(0);
    for (const PlanBuffer &buffer : op.workspaces)
      workspace.back() += buffer.bytes;
    pinned.push_back(op.pinned);
    baseCost += op.cost;
    firstValue.push_back(numValues);
    numValues += op.results.size();
    for (const PlanBuffer &result : op.results) {
      bytes.push_back(result.bytes);
      opOf.push_back(i);
    }
  }
  firstValue.push_back(numValues);
  std::vector<std::vector<int32_t>> in(numOps), use(numValues), early(numOps), late(numOps),
      pairs(numOps);
  takeable.assign(numValues, 0);
  auto unique = [](std::vector<int32_t> &list) {
    llvm::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
  };
  for (int32_t i = 0; i < numOps; ++i) {
    for (PlanValue input : problem.ops[i].inputs)
      in[i].push_back(firstValue[input.op] + input.result);
    unique(in[i]);
    for (int32_t value : in[i])
      use[value].push_back(i);
    early[i] = problem.ops[i].after;
    unique(early[i]);
    for (int32_t op : early[i])
      late[op].push_back(i);
    for (const PlanInPlace &pair : problem.ops[i].inPlace) {
      int32_t operand = firstValue[pair.operand.op] + pair.operand.result;
      pairs[i].push_back(firstValue[i] + pair.result);
      pairs[i].push_back(operand);
      takeable[operand] = true;
      hasInPlace = true;
    }
  }
  inPlace = Rows::from(pairs);
  inputs = Rows::from(in);
  users = Rows::from(use);
  before = Rows::from(early);
  behind = Rows::from(late);
}
