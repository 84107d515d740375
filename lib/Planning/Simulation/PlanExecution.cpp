//===- PlanExecution.cpp - what happens while a plan runs --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Simulation/PlanExecution.h"

#include "memopt/Planning/Simulation/MeasuredPlan.h"
#include "memopt/Planning/Utils/Failure.h"

#include "llvm/ADT/Twine.h"

#include <set>

using namespace memopt::planning;
using namespace memopt::planning::search;
using llvm::Twine;

static llvm::Error failureAt(int64_t position, const Twine &message) {
  return failure("position " + Twine(position) + ": " + message);
}

static std::string describe(const Graph &graph, int32_t action) {
  if (action < graph.numOps)
    return ("op " + Twine(action)).str();
  static constexpr const char *transfers[] = {"the store", "the wait for the store", "the fetch",
                                              "the wait for the fetch"};
  int32_t transfer = action - graph.numOps, mark = transfer - 4 * int32_t(graph.ways.size());
  if (mark < 0)
    return (Twine(transfers[transfer % 4]) + " of way " + Twine(transfer / 4)).str();
  return (Twine(mark % 2 ? "the end" : "the begin") + " of region " + Twine(mark / 2)).str();
}

//===----------------------------------------------------------------------===//
// Is it valid
//===----------------------------------------------------------------------===//

/// Regions are entered and left in their order, and everything stands in the region it belongs to.
llvm::Error Execution::checkPlace(int64_t position) const {
  int32_t action = order[position], home = graph.region[action];
  ActionKind kind = graph.kind[action];
  if (kind == ActionKind::Leave) {
    if (open.empty() || graph.enter[here()] + 1 != action)
      return failureAt(position, describe(graph, action) + ", which is not the innermost one");
    for (int32_t start = 0; start < graph.numActions; ++start)
      if (inFlight[start] >= 0 && startedIn[start] == open.back().entered)
        return failureAt(position, describe(graph, start) + " is in flight beyond its region");
    return llvm::Error::success();
  }
  if (graph.pinned[action] && lastRun[action] >= 0)
    return failureAt(position, "pinned " + describe(graph, action) + " runs again");
  if (graph.pinned[action] ? here() != home : !graph.isInside(here(), home))
    return failureAt(position, describe(graph, action) + " stands outside its region" +
                                   (home < 0 ? "" : " " + std::to_string(home)));
  return llvm::Error::success();
}

/// What must come earlier has run, and nothing of it runs in an iteration that comes later.
llvm::Error Execution::checkOrder(int64_t position) {
  int32_t action = order[position];
  if (closed[action])
    return failureAt(position,
                     describe(graph, action) + " runs after an op that must come after it");
  for (int32_t earlier : graph.before[action]) {
    if (lastRun[earlier] < 0 && !graph.isOptional(earlier))
      return failureAt(position,
                       describe(graph, action) + " runs before " + describe(graph, earlier));
    closed[earlier] = true;
    for (const Open &around : open)
      if (lastRun[earlier] > around.entered &&
          !(graph.isInside(graph.region[earlier], around.region) &&
            graph.isInside(graph.region[action], around.region)))
        return failureAt(position, describe(graph, earlier) + " runs again in region " +
                                       Twine(around.region) + " behind " + describe(graph, action));
  }
  return llvm::Error::success();
}

llvm::Error Execution::startOrWait(int64_t position) {
  int32_t action = order[position], partner = graph.partner[action];
  int64_t region = open.empty() ? -1 : open.back().entered;
  if (graph.kind[action] == ActionKind::Start) {
    if (inFlight[action] >= 0)
      return failureAt(position, describe(graph, action) + " starts again before its wait");
    if (graph.isFetchStart(action) && lastRun[graph.opOf[graph.wayOf(action).value]] < 0)
      return failureAt(position, describe(graph, action) + " comes before " +
                                     describe(graph, graph.opOf[graph.wayOf(action).value]) +
                                     " has run");
    inFlight[action] = position;
    startedIn[action] = region;
    return llvm::Error::success();
  }
  int64_t start = inFlight[partner];
  if (start < 0)
    return failureAt(position, describe(graph, action) + " waits for what is not in flight");
  if (startedIn[partner] != region)
    return failureAt(position, describe(graph, action) + " stands in another region than " +
                                   describe(graph, partner));
  bool same = true;
  for (auto [value, maker] : llvm::zip(graph.inputs[partner], operandsOf[start]))
    same &= latest[value] == maker;
  for (int32_t value : graph.makes[partner])
    same &= latest[value] == start;
  if (!same)
    return failureAt(position,
                     "what " + describe(graph, partner) + " holds was made again before its wait");
  inFlight[partner] = -1;
  return llvm::Error::success();
}

llvm::Error Execution::read(int64_t position, int32_t value) {
  int64_t maker = latest[value];
  if (maker < 0)
    return failureAt(position, describe(graph, order[position]) + " uses " +
                                   describe(graph, graph.opOf[value]) + ", which has not run");
  if (inFlight[order[maker]] == maker)
    return failureAt(position, describe(graph, order[position]) + " uses " +
                                   describe(graph, order[maker]) + ", which is in flight");
  use(maker, value, position);
  operandsOf[position].push_back(maker);
  return llvm::Error::success();
}

llvm::Error Execution::runAction(int64_t position) {
  int32_t action = order[position];
  if (action < 0 || action >= graph.numActions)
    return failureAt(position, "there is no action " + Twine(action));
  if (graph.isOptional(action) && graph.wayOf(action).copy < 0 &&
      action < graph.wayOf(action).fetchStart)
    return failureAt(position, describe(graph, action) + ", which has a home");
  if (llvm::Error error = checkPlace(position))
    return error;
  if (llvm::Error error = checkOrder(position))
    return error;
  if (graph.partner[action] >= 0)
    if (llvm::Error error = startOrWait(position))
      return error;
  for (int32_t value : graph.inputs[action])
    if (llvm::Error error = read(position, value))
      return error;
  for (int32_t value : graph.makes[action])
    make(position, value);
  enterOrLeave(position);
  lastRun[action] = position;
  return llvm::Error::success();
}

llvm::Error Execution::checkEnd() const {
  for (int32_t action = 0; action < graph.numActions; ++action) {
    if (lastRun[action] < 0 && !graph.isOptional(action))
      return failure(describe(graph, action) + " never runs");
    if (inFlight[action] >= 0)
      return failure(describe(graph, action) + " is never waited for");
  }
  return llvm::Error::success();
}

llvm::Error Execution::run() {
  operandsOf.resize(order.size());
  lastUse.resize(order.size());
  counts.assign(order.size(), 1);
  latest.assign(graph.numValues, -1);
  lastRun.assign(graph.numActions, -1);
  inFlight.assign(graph.numActions, -1);
  startedIn.assign(graph.numActions, -1);
  closed.assign(graph.numActions, false);
  for (int64_t position = 0, end = order.size(); position < end; ++position)
    if (llvm::Error error = runAction(position))
      return error;
  return checkEnd();
}

//===----------------------------------------------------------------------===//
// Lives
//===----------------------------------------------------------------------===//

int32_t Execution::numberOf(int64_t position, int32_t value) const {
  llvm::ArrayRef<int32_t> made = graph.makes[order[position]];
  return static_cast<int32_t>(llvm::find(made, value) - made.begin());
}

/// What was made in front of a region and is used inside is needed until it ends.
void Execution::use(int64_t maker, int32_t value, int64_t until) {
  int64_t &last = lastUse[maker][numberOf(maker, value)];
  last = std::max(last, until);
  if (!open.empty() && maker < open.back().entered)
    open.back().needed.push_back({maker, value});
}

void Execution::make(int64_t position, int32_t value) {
  lastUse[position].push_back(position);
  if (!open.empty())
    open.back().shadowed.push_back({value, latest[value]});
  latest[value] = position;
}

void Execution::enterOrLeave(int64_t position) {
  int32_t action = order[position];
  counts[position] = graph.countOf(here());
  if (graph.kind[action] == ActionKind::Enter)
    open.push_back({static_cast<int32_t>(llvm::find(graph.enter, action) - graph.enter.begin()),
                    position,
                    {},
                    {}});
  if (graph.kind[action] != ActionKind::Leave)
    return;
  Open left = std::move(open.back());
  open.pop_back();
  for (auto [value, maker] : llvm::reverse(left.shadowed))
    latest[value] = maker;
  for (auto [maker, value] : left.needed)
    use(maker, value, position);
}

std::vector<Execution::Takeover> Execution::getTakeovers(int64_t position) const {
  int32_t action = order[position];
  llvm::ArrayRef<int32_t> pairs = graph.inPlace[action], inputs = graph.inputs[action];
  std::vector<Takeover> takeovers;
  std::set<int32_t> matched;
  for (size_t i = 0; i < pairs.size(); i += 2) {
    int32_t result = pairs[i], operand = pairs[i + 1];
    int64_t maker = operandsOf[position][llvm::find(inputs, operand) - inputs.begin()];
    int32_t number = numberOf(maker, operand);
    if (matched.count(result) || matched.count(operand) || lastUse[maker][number] != position)
      continue;
    matched.insert({result, operand});
    takeovers.push_back({numberOf(position, result), maker, number});
  }
  return takeovers;
}

std::vector<int64_t> Execution::getLoads(int32_t space) const {
  int64_t end = order.size();
  std::vector<int64_t> change(end + 1, 0), loads;
  auto isHere = [&](int32_t value) { return graph.space[value] == space; };
  for (int64_t position = 0; position < end; ++position)
    for (auto [number, value] : llvm::enumerate(graph.makes[order[position]]))
      if (isHere(value)) {
        change[position] += graph.size[value];
        change[lastUse[position][number] + 1] -= graph.size[value];
      }
  int64_t alive = graph.residents[space];
  for (int64_t position = 0; position < end; ++position) {
    alive += change[position];
    int64_t now = alive + graph.workspaces[space][order[position]];
    for (const Takeover &takeover : getTakeovers(position))
      if (int32_t result = graph.makes[order[position]][takeover.result]; isHere(result))
        now -= graph.size[result];
    loads.push_back(now);
  }
  return loads;
}

llvm::Expected<PlanMeasure> Execution::measure() const {
  Timeline time(graph);
  for (auto [position, action] : llvm::enumerate(order))
    if (!time.step(action, counts[position]))
      return failureAt(position, "time does not fit 63 bits");
  PlanMeasure measure;
  measure.cost = time.getTime();
  for (int32_t space = 0; space < graph.numSpaces; ++space) {
    int64_t peak = graph.residents[space];
    for (auto [position, load] : llvm::enumerate(getLoads(space))) {
      if (load > peak && space == 0)
        measure.position = position;
      peak = std::max(peak, load);
    }
    if (space == 0)
      measure.peak = peak;
    else
      measure.otherPeaks.push_back(peak);
  }
  return measure;
}

bool memopt::planning::search::isValid(const Graph &graph, llvm::ArrayRef<int32_t> order) {
  if (graph.isPlain())
    return true;
  llvm::Error error = Execution(graph, order).run();
  bool valid = !error;
  llvm::consumeError(std::move(error));
  return valid;
}

llvm::Expected<PlanMeasure> memopt::planning::measurePlan(const PlanProblem &problem,
                                                          llvm::ArrayRef<int32_t> order) {
  Graph graph(problem);
  Execution execution(graph, order);
  if (llvm::Error error = execution.run())
    return std::move(error);
  return execution.measure();
}

llvm::Expected<std::vector<int64_t>> memopt::planning::measureLoads(const PlanProblem &problem,
                                                                    llvm::ArrayRef<int32_t> order) {
  Graph graph(problem);
  Execution execution(graph, order);
  if (llvm::Error error = execution.run())
    return std::move(error);
  return execution.getLoads(0);
}
