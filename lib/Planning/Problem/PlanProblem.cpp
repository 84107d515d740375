//===- PlanProblem.cpp - checks planning problems, numbers actions -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Problem/PlanProblem.h"
#include "memopt/Planning/Utils/Failure.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

using namespace memopt::planning;
using llvm::Twine;

//===----------------------------------------------------------------------===//
// Numbers of actions
//===----------------------------------------------------------------------===//

static constexpr int32_t transfersOfWay = 4;

int32_t memopt::planning::getNumActions(const PlanProblem &problem) {
  return static_cast<int32_t>(problem.ops.size() + transfersOfWay * problem.ways.size() +
                              2 * problem.regions.size());
}

PlanAction memopt::planning::getAction(const PlanProblem &problem, int32_t number) {
  auto ops = static_cast<int32_t>(problem.ops.size());
  if (number < ops)
    return {PlanAction::Run, number};
  int32_t transfer = number - ops;
  auto transfers = static_cast<int32_t>(transfersOfWay * problem.ways.size());
  if (transfer < transfers)
    return {static_cast<PlanAction::Kind>(PlanAction::StoreStart + transfer % transfersOfWay),
            transfer / transfersOfWay};
  int32_t mark = transfer - transfers;
  return {mark % 2 ? PlanAction::Leave : PlanAction::Enter, mark / 2};
}

int32_t memopt::planning::getNumber(const PlanProblem &problem, PlanAction action) {
  auto ops = static_cast<int32_t>(problem.ops.size());
  auto transfers = static_cast<int32_t>(transfersOfWay * problem.ways.size());
  if (action.kind == PlanAction::Run)
    return action.index;
  if (action.kind >= PlanAction::Enter)
    return ops + transfers + 2 * action.index + (action.kind - PlanAction::Enter);
  return ops + transfersOfWay * action.index + (action.kind - PlanAction::StoreStart);
}

std::vector<PlanFate> memopt::planning::getPlanFates(const PlanProblem &problem,
                                                     llvm::ArrayRef<int32_t> order) {
  std::vector<int32_t> firstResult{0}, runs(problem.ops.size(), 0);
  std::vector<PlanFate> all;
  for (int32_t op = 0, count = problem.ops.size(); op < count; ++op) {
    for (int32_t result = 0, end = problem.ops[op].results.size(); result < end; ++result)
      all.push_back({{op, result}});
    firstResult.push_back(all.size());
  }
  for (int32_t number : order) {
    PlanAction action = getAction(problem, number);
    if (action.kind == PlanAction::Run) {
      ++runs[action.index];
    } else if (action.kind == PlanAction::FetchStart) {
      const PlanWay &way = problem.ways[action.index];
      PlanFate &fate = all[firstResult[way.value.op] + way.value.result];
      ++(way.store ? fate.swapped : fate.fetched);
    }
  }
  for (PlanFate &fate : all)
    fate.recomputed = runs[fate.value.op] - 1;
  llvm::erase_if(
      all, [](const PlanFate &fate) { return !fate.recomputed && !fate.fetched && !fate.swapped; });
  return all;
}

//===----------------------------------------------------------------------===//
// Check
//===----------------------------------------------------------------------===//

namespace {

class Checker {
public:
  explicit Checker(const PlanProblem &problem) : problem(problem) {}
  llvm::Error run();

private:
  llvm::Error checkFrame();
  llvm::Error checkRegions();
  llvm::Error checkOp(int32_t index);
  llvm::Error checkInputs(int32_t index) const;
  llvm::Error checkInPlace(int32_t index) const;
  llvm::Error checkWait(int32_t index);
  llvm::Error checkAfter(int32_t index) const;
  llvm::Error checkWay(size_t index);
  llvm::Error checkTransfer(const PlanTransfer &transfer, const Twine &place);
  llvm::Error addBuffer(const PlanBuffer &buffer, const Twine &place, const char *field);
  llvm::Error addCost(int64_t cost, int32_t resource, const Twine &place);
  bool isInside(int32_t inner, int32_t outer) const {
    while (inner >= 0 && inner != outer)
      inner = parent[inner];
    return inner == outer;
  }

  static constexpr int64_t sumLimit = int64_t(1) << 62, alignmentLimit = int64_t(1) << 30;
  static constexpr size_t opLimit = size_t(1) << 24, wayLimit = size_t(1) << 22, regionLimit = 4096;
  static constexpr int32_t depthLimit = 4;
  const PlanProblem &problem;
  std::vector<int32_t> parent, regionOf; ///< by region; by op
  std::vector<int32_t> waitOf;           ///< by op: what waits for it, or -1
  int64_t copies = 1;                    ///< of a value that may be alive at once
  int64_t runs = 1;                      ///< of one instance at most
  int64_t bytes = 0, cost = 0;
};

} // namespace

/// Adds a buffer to the sum of all that may be alive at once, which must stay below 2^62.
llvm::Error Checker::addBuffer(const PlanBuffer &buffer, const Twine &place, const char *field) {
  if (buffer.bytes < 0)
    return failure(place + ": " + field + " is " + Twine(buffer.bytes) + ", expected at least 0");
  if (buffer.alignment < 1 || buffer.alignment > alignmentLimit)
    return failure(place + ": alignment of " + field + " is " + Twine(buffer.alignment) +
                   ", expected 1 to 2^30");
  if (buffer.space < 0 || size_t(buffer.space) >= problem.spaces.size())
    return failure(place + ": space of " + field + " is " + Twine(buffer.space) +
                   ", expected one of " + Twine(problem.spaces.size()));
  if (buffer.bytes > (sumLimit - bytes) / copies)
    return failure(place + ": the sum of " + field + " up to here does not fit 62 bits");
  bytes += buffer.bytes * copies;
  return llvm::Error::success();
}

llvm::Error Checker::addCost(int64_t added, int32_t resource, const Twine &place) {
  if (added < 0)
    return failure(place + ": cost is " + Twine(added) + ", expected at least 0");
  if (resource < 0 || size_t(resource) >= problem.resources.size())
    return failure(place + ": resource is " + Twine(resource) + ", expected one of " +
                   Twine(problem.resources.size()));
  if (added > (sumLimit - cost) / runs)
    return failure(place + ": the sum of cost up to here does not fit 62 bits");
  cost += added * runs;
  return llvm::Error::success();
}

/// Spaces and resources, and how many there is of everything.
llvm::Error Checker::checkFrame() {
  if (problem.ops.size() > opLimit)
    return failure("more than 2^24 ops");
  if (problem.ways.size() > wayLimit)
    return failure("more than 2^22 ways");
  if (problem.spaces.empty() || problem.resources.empty())
    return failure("no space or no resource, expected at least one of each");
  for (size_t i = 0; i < problem.spaces.size(); ++i)
    if (problem.spaces[i].budget < -1 || problem.spaces[i].budget > sumLimit)
      return failure("space " + Twine(i) + ": budget is " + Twine(problem.spaces[i].budget) +
                     ", expected 0 to 2^62, or -1 for none");
  return llvm::Error::success();
}

llvm::Error Checker::checkRegions() {
  regionOf.assign(problem.ops.size(), -1);
  if (problem.regions.size() > regionLimit)
    return failure("more than 4096 regions");
  std::vector<int64_t> counts;
  for (int32_t i = 0, count = problem.regions.size(); i < count; ++i) {
    const PlanRegion &region = problem.regions[i];
    std::string place = ("region " + Twine(i)).str();
    if (region.begin < 0 || region.begin >= region.end || size_t(region.end) > problem.ops.size())
      return failure(place + " has the ops " + Twine(region.begin) + " to " + Twine(region.end) +
                     ", expected a range within " + Twine(problem.ops.size()));
    int32_t around = regionOf[region.begin], depth = 1;
    for (int32_t op = region.begin; op < region.end; ++op)
      if (std::exchange(regionOf[op], i) != around)
        return failure(place + " crosses the begin or end of an earlier one at op " + Twine(op));
    if (around >= 0 &&
        (problem.regions[around].begin > region.begin || problem.regions[around].end < region.end))
      return failure(place + " reaches beyond region " + Twine(around) + " around it");
    parent.push_back(around);
    for (int32_t outer = around; outer >= 0; outer = parent[outer])
      ++depth;
    if (depth > depthLimit)
      return failure(place + " lies in " + Twine(depth - 1) + " others, expected at most " +
                     Twine(depthLimit - 1));
    int64_t outerRuns = around < 0 ? 1 : counts[around];
    if (region.count < 1 || region.count > sumLimit / outerRuns)
      return failure(place + ": count is " + Twine(region.count) +
                     ", expected at least 1 and 2^62 runs in all");
    counts.push_back(region.count * outerRuns);
    copies = std::max<int64_t>(copies, depth + 1);
    runs = std::max(runs, counts.back());
  }
  return llvm::Error::success();
}

llvm::Error Checker::checkInputs(int32_t index) const {
  for (PlanValue input : problem.ops[index].inputs) {
    if (input.op < 0 || input.op >= index)
      return failure("op " + Twine(index) + ": input is op " + Twine(input.op) +
                     ", expected an earlier one");
    size_t results = problem.ops[input.op].results.size();
    if (input.result < 0 || size_t(input.result) >= results)
      return failure("op " + Twine(index) + ": input is result " + Twine(input.result) + " of op " +
                     Twine(input.op) + ", which has " + Twine(results));
    if (!isInside(regionOf[index], regionOf[input.op]))
      return failure("op " + Twine(index) + ": input is op " + Twine(input.op) + " of region " +
                     Twine(regionOf[input.op]) + ", whose values do not leave it");
  }
  return llvm::Error::success();
}

llvm::Error Checker::checkInPlace(int32_t index) const {
  const PlanOp &op = problem.ops[index];
  std::string place = ("op " + Twine(index)).str();
  for (const PlanInPlace &pair : op.inPlace) {
    if (pair.result < 0 || size_t(pair.result) >= op.results.size())
      return failure(place + ": result " + Twine(pair.result) + " in place, expected one of " +
                     Twine(op.results.size()) + " results");
    if (!llvm::is_contained(op.inputs, pair.operand))
      return failure(place + ": in place of result " + Twine(pair.operand.result) + " of op " +
                     Twine(pair.operand.op) + ", expected one of its inputs");
    const PlanBuffer &available = problem.ops[pair.operand.op].results[pair.operand.result];
    const PlanBuffer &wanted = op.results[pair.result];
    if (available.bytes < wanted.bytes)
      return failure(place + ": result " + Twine(pair.result) + " has " + Twine(wanted.bytes) +
                     " bytes, in place of " + Twine(available.bytes));
    if (available.space != wanted.space)
      return failure(place + ": result " + Twine(pair.result) + " is in space " +
                     Twine(wanted.space) + ", in place of one in space " + Twine(available.space));
  }
  if (!llvm::is_sorted(op.inPlace, [](const PlanInPlace &a, const PlanInPlace &b) {
        return a.result < b.result;
      }))
    return failure(place + ": results in place, expected in ascending order");
  return llvm::Error::success();
}

/// A wait makes and reads nothing of its own, and its start writes over nothing.
llvm::Error Checker::checkWait(int32_t index) {
  const PlanOp &op = problem.ops[index];
  std::string place = ("op " + Twine(index)).str();
  if (op.waitsFor == -1)
    return llvm::Error::success();
  if (op.waitsFor < 0 || op.waitsFor >= index || problem.ops[op.waitsFor].waitsFor >= 0)
    return failure(place + ": waits for op " + Twine(op.waitsFor) +
                   ", expected an earlier one that does not wait itself");
  if (waitOf[op.waitsFor] >= 0)
    return failure(place + ": waits for op " + Twine(op.waitsFor) + ", as op " +
                   Twine(waitOf[op.waitsFor]) + " does already");
  waitOf[op.waitsFor] = index;
  if (!op.results.empty() || !op.inputs.empty() || !op.workspaces.empty())
    return failure(place + ": is a wait, expected no results, inputs or workspaces");
  if (!problem.ops[op.waitsFor].inPlace.empty())
    return failure(place + ": waits for op " + Twine(op.waitsFor) +
                   ", whose results lie in place; those of a start cannot");
  if (regionOf[index] != regionOf[op.waitsFor])
    return failure(place + ": waits for op " + Twine(op.waitsFor) + " of another region");
  return llvm::Error::success();
}

/// Requires that all waits are known.
llvm::Error Checker::checkAfter(int32_t index) const {
  const PlanOp &op = problem.ops[index];
  std::string place = ("op " + Twine(index)).str();
  for (int32_t earlier : op.after) {
    if (earlier < 0 || earlier >= index)
      return failure(place + ": comes after op " + Twine(earlier) + ", expected an earlier one");
    if (waitOf[earlier] > index)
      return failure(place + ": comes after op " + Twine(earlier) + ", for which op " +
                     Twine(waitOf[earlier]) + " waits later");
  }
  for (PlanValue input : op.inputs)
    if (waitOf[input.op] > index)
      return failure(place + ": input is op " + Twine(input.op) + ", for which op " +
                     Twine(waitOf[input.op]) + " waits later");
  return llvm::Error::success();
}

llvm::Error Checker::checkOp(int32_t index) {
  const PlanOp &op = problem.ops[index];
  std::string place = ("op " + Twine(index)).str();
  for (const PlanBuffer &result : op.results)
    if (llvm::Error error = addBuffer(result, place, "bytes"))
      return error;
  for (const PlanBuffer &workspace : op.workspaces)
    if (llvm::Error error = addBuffer(workspace, place, "workspace"))
      return error;
  if (llvm::Error error = addCost(op.cost, op.resource, place))
    return error;
  if (op.block < -1 || op.block >= int64_t(problem.ops.size()))
    return failure(place + ": block is " + Twine(op.block) + ", expected one of at most " +
                   Twine(problem.ops.size()));
  if (llvm::Error error = checkInputs(index))
    return error;
  if (llvm::Error error = checkInPlace(index))
    return error;
  return checkWait(index);
}

llvm::Error Checker::checkTransfer(const PlanTransfer &transfer, const Twine &place) {
  for (const PlanBuffer &workspace : transfer.workspaces)
    if (llvm::Error error = addBuffer(workspace, place, "workspace"))
      return error;
  return addCost(transfer.cost, transfer.resource, place);
}

llvm::Error Checker::checkWay(size_t index) {
  const PlanWay &way = problem.ways[index];
  std::string place = ("way " + Twine(index)).str();
  auto isThere = [&](const PlanValue &value) {
    return value.op >= 0 && size_t(value.op) < problem.ops.size() && value.result >= 0 &&
           size_t(value.result) < problem.ops[value.op].results.size();
  };
  if (!isThere(way.value))
    return failure(place + ": leads to result " + Twine(way.value.result) + " of op " +
                   Twine(way.value.op) + ", which there is not");
  if (way.behind && !isThere(*way.behind))
    return failure(place + ": is fetched behind result " + Twine(way.behind->result) + " of op " +
                   Twine(way.behind->op) + ", which there is not");
  if (way.behind && problem.ops[way.behind->op].results[way.behind->result].bytes)
    return failure(place + ": is fetched behind a value with bytes");
  if (way.behind && !isInside(regionOf[way.value.op], regionOf[way.behind->op]))
    return failure(place + ": is fetched behind op " + Twine(way.behind->op) + " of region " +
                   Twine(regionOf[way.behind->op]) + ", whose values do not leave it");
  if (llvm::Error error = checkTransfer(way.fetch, place))
    return error;
  if (way.store)
    if (llvm::Error error = checkTransfer(*way.store, place))
      return error;
  if (!way.store && way.copy.bytes)
    return failure(place + ": has a copy and nothing that stores it");
  return addBuffer(way.copy, place, "copy");
}

llvm::Error Checker::run() {
  if (llvm::Error error = checkFrame())
    return error;
  if (llvm::Error error = checkRegions())
    return error;
  for (const PlanBuffer &resident : problem.residents)
    if (llvm::Error error = addBuffer(resident, "residents", "bytes"))
      return error;
  waitOf.assign(problem.ops.size(), -1);
  for (int32_t i = 0, count = problem.ops.size(); i < count; ++i)
    if (llvm::Error error = checkOp(i))
      return error;
  for (int32_t i = 0, count = problem.ops.size(); i < count; ++i)
    if (llvm::Error error = checkAfter(i))
      return error;
  for (size_t i = 0; i < problem.ways.size(); ++i)
    if (llvm::Error error = checkWay(i))
      return error;
  return llvm::Error::success();
}

llvm::Error memopt::planning::checkPlanProblem(const PlanProblem &problem) {
  return Checker(problem).run();
}
