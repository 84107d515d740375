//===- RematProblem.cpp - checks rematerialization problems, judges orders ---===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RematGraph.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

#include <algorithm>
#include <set>

using namespace memopt::planning;
using namespace memopt::planning::remat;
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

static llvm::Error checkInPlace(const RematProblem &problem, size_t index,
                                const RematInPlace &pair) {
  const RematOp &op = problem.ops[index];
  if (pair.result < 0 || size_t(pair.result) >= op.results.size())
    return failure("op " + Twine(index) + ": result " + Twine(pair.result) +
                   " in place, expected one of " + Twine(op.results.size()) + " results");
  if (!llvm::is_contained(op.inputs, pair.operand))
    return failure("op " + Twine(index) + ": in place of result " + Twine(pair.operand.result) +
                   " of op " + Twine(pair.operand.op) + ", expected one of its inputs");
  int64_t available = problem.ops[pair.operand.op].results[pair.operand.result];
  if (available < op.results[pair.result])
    return failure("op " + Twine(index) + ": result " + Twine(pair.result) + " has " +
                   Twine(op.results[pair.result]) + " bytes, in place of " + Twine(available));
  return llvm::Error::success();
}

llvm::Error memopt::planning::checkRemat(const RematProblem &problem) {
  if (problem.ops.size() > size_t(1) << 24)
    return failure("more than 2^24 ops");
  if (problem.resident < 0 || problem.resident > sumLimit)
    return failure("resident bytes are " + Twine(problem.resident) + ", expected 0 to 2^62");
  int64_t bytes = problem.resident, cost = 0;
  for (size_t i = 0; i < problem.ops.size(); ++i) {
    const RematOp &op = problem.ops[i];
    for (int64_t size : op.results)
      if (llvm::Error error = accumulate(bytes, size, i, "bytes"))
        return error;
    if (llvm::Error error = accumulate(bytes, op.workspace, i, "workspace"))
      return error;
    if (llvm::Error error = accumulate(cost, op.cost, i, "cost"))
      return error;
    for (RematValue input : op.inputs) {
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
    for (const RematInPlace &pair : op.inPlace)
      if (llvm::Error error = checkInPlace(problem, i, pair))
        return error;
    if (!llvm::is_sorted(op.inPlace, [](const RematInPlace &a, const RematInPlace &b) {
          return a.result < b.result;
        }))
      return failure("op " + Twine(i) + ": results in place, expected in ascending order");
  }
  return llvm::Error::success();
}

namespace {

/// Runs an order and notes where each instance's results are used last.
class Execution {
public:
  Execution(const RematProblem &problem, llvm::ArrayRef<int32_t> order)
      : problem(problem), order(order) {}

  llvm::Error run() {
    lastUse.resize(order.size());
    operandsOf.resize(order.size());
    std::vector<int64_t> latest(problem.ops.size(), -1);
    std::vector<bool> closed(problem.ops.size(), false);
    for (size_t position = 0; position < order.size(); ++position) {
      int32_t index = order[position];
      if (index < 0 || size_t(index) >= problem.ops.size())
        return failure("position " + Twine(position) + ": there is no op " + Twine(index));
      const RematOp &op = problem.ops[index];
      if (op.pinned && latest[index] >= 0)
        return failure("position " + Twine(position) + ": pinned op " + Twine(index) +
                       " runs again");
      if (closed[index])
        return failure("position " + Twine(position) + ": op " + Twine(index) +
                       " runs after an op that must come after it");
      for (RematValue input : op.inputs) {
        if (latest[input.op] < 0)
          return failure("position " + Twine(position) + ": op " + Twine(index) + " uses op " +
                         Twine(input.op) + ", which has not run");
        lastUse[latest[input.op]][input.result] = position;
      }
      for (const RematInPlace &pair : op.inPlace)
        operandsOf[position].push_back(latest[pair.operand.op]);
      for (int32_t earlier : op.after) {
        if (latest[earlier] < 0)
          return failure("position " + Twine(position) + ": op " + Twine(index) +
                         " runs before op " + Twine(earlier));
        closed[earlier] = true;
      }
      latest[index] = position;
      lastUse[position].assign(op.results.size(), position);
    }
    for (size_t i = 0; i < latest.size(); ++i)
      if (latest[i] < 0)
        return failure("op " + Twine(i) + " never runs");
    return llvm::Error::success();
  }

  llvm::Expected<RematMeasure> measure() const {
    RematMeasure measure;
    std::vector<int64_t> change(order.size() + 1, 0);
    for (size_t position = 0; position < order.size(); ++position) {
      const RematOp &op = problem.ops[order[position]];
      for (size_t i = 0; i < op.results.size(); ++i) {
        change[position] += op.results[i];
        change[lastUse[position][i] + 1] -= op.results[i];
      }
      if (__builtin_add_overflow(measure.cost, op.cost, &measure.cost))
        return failure("position " + Twine(position) + ": the sum of costs does not fit 64 bits");
    }
    int64_t alive = problem.resident;
    measure.peak = alive;
    for (size_t position = 0; position < order.size(); ++position) {
      alive += change[position];
      int64_t now = alive + problem.ops[order[position]].workspace - takenOver(position);
      if (now > measure.peak) {
        measure.peak = now;
        measure.position = position;
      }
    }
    return measure;
  }

private:
  /// Bytes of the results at `position` that lie in those of operands.
  int64_t takenOver(size_t position) const {
    const RematOp &op = problem.ops[order[position]];
    std::vector<bool> placed(op.results.size());
    std::set<std::pair<int64_t, int32_t>> taken;
    int64_t sum = 0;
    for (size_t i = 0; i < op.inPlace.size(); ++i) {
      const RematInPlace &pair = op.inPlace[i];
      int64_t maker = operandsOf[position][i];
      if (placed[pair.result] || lastUse[maker][pair.operand.result] != position ||
          !taken.emplace(maker, pair.operand.result).second)
        continue;
      placed[pair.result] = true;
      sum += op.results[pair.result];
    }
    return sum;
  }

  const RematProblem &problem;
  llvm::ArrayRef<int32_t> order;
  std::vector<std::vector<size_t>> lastUse;     ///< by position and result
  std::vector<std::vector<int64_t>> operandsOf; ///< by position: who made the permitted operands
};

} // namespace

llvm::Expected<RematMeasure> memopt::planning::measureRemat(const RematProblem &problem,
                                                            llvm::ArrayRef<int32_t> order) {
  Execution execution(problem, order);
  if (llvm::Error error = execution.run())
    return std::move(error);
  return execution.measure();
}

llvm::Error memopt::planning::verifyRemat(const RematProblem &problem, const RematOptions &options,
                                          const RematSolution &solution) {
  llvm::Expected<RematMeasure> measure = measureRemat(problem, solution.order);
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

llvm::Error memopt::planning::verifyRematFrontier(const RematProblem &problem,
                                                  const RematFrontier &frontier) {
  const RematFrontier::Point *below = nullptr;
  for (const RematFrontier::Point &point : frontier.points) {
    llvm::Expected<RematMeasure> measure = measureRemat(problem, point.order);
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

Graph::Graph(const RematProblem &problem) : resident(problem.resident) {
  numOps = problem.ops.size();
  for (int32_t i = 0; i < numOps; ++i) {
    const RematOp &op = problem.ops[i];
    cost.push_back(op.cost);
    workspace.push_back(op.workspace);
    pinned.push_back(op.pinned);
    baseCost += op.cost;
    firstValue.push_back(numValues);
    numValues += op.results.size();
    for (int64_t size : op.results) {
      bytes.push_back(size);
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
    for (RematValue input : problem.ops[i].inputs)
      in[i].push_back(firstValue[input.op] + input.result);
    unique(in[i]);
    for (int32_t value : in[i])
      use[value].push_back(i);
    early[i] = problem.ops[i].after;
    unique(early[i]);
    for (int32_t op : early[i])
      late[op].push_back(i);
    for (const RematInPlace &pair : problem.ops[i].inPlace) {
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
