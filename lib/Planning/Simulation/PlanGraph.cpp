//===- PlanGraph.cpp - planning problems in flat arrays ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Simulation/PlanGraph.h"

#include "llvm/ADT/DenseMap.h"

#include <algorithm>

using namespace memopt::planning;
using namespace memopt::planning::search;

Rows Rows::from(llvm::ArrayRef<Row> lists) {
  Rows rows;
  rows.start.reserve(lists.size() + 1);
  for (const Row &list : lists) {
    llvm::append_range(rows.items, list);
    rows.start.push_back(rows.items.size());
  }
  return rows;
}

static void makeUnique(Rows::Row &list) {
  llvm::sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

/// The rows while they grow.
struct Graph::Lists {
  std::vector<Rows::Row> inputs, makes, before, pairs, takeable, numbers; ///< by action
  std::vector<Rows::Row> ways;                                            ///< by result
};

int32_t Graph::addValue(const PlanBuffer &buffer, int32_t maker) {
  size.push_back(buffer.bytes);
  space.push_back(buffer.space);
  bytes.push_back(buffer.space == 0 ? buffer.bytes : 0);
  opOf.push_back(maker);
  takeable.push_back(false);
  return numValues++;
}

int32_t Graph::addAction(ActionKind newKind, int64_t newCost, int32_t onResource, int32_t inRegion,
                         Lists &lists) {
  kind.push_back(newKind);
  cost.push_back(newCost);
  resource.push_back(onResource);
  partner.push_back(-1);
  pinned.push_back(false);
  region.push_back(inRegion);
  for (std::vector<int64_t> &bySpace : workspaces)
    bySpace.push_back(0);
  for (auto *list :
       {&lists.inputs, &lists.makes, &lists.before, &lists.pairs, &lists.takeable, &lists.numbers})
    list->emplace_back();
  return numActions++;
}

/// The innermost region of each op, or -1. Outer regions come first.
static std::vector<int32_t> regionsOf(const PlanProblem &problem) {
  std::vector<int32_t> regions(problem.ops.size(), -1);
  for (size_t i = 0; i < problem.regions.size(); ++i)
    std::fill(regions.begin() + problem.regions[i].begin, regions.begin() + problem.regions[i].end,
              static_cast<int32_t>(i));
  return regions;
}

void Graph::addOps(const PlanProblem &problem, Lists &lists) {
  std::vector<int32_t> regions = regionsOf(problem);
  for (int32_t i = 0; i < numOps; ++i) {
    const PlanOp &op = problem.ops[i];
    addAction(ActionKind::Plain, op.cost, op.resource, regions[i], lists);
    pinned[i] = op.pinned;
    firstValue.push_back(numValues);
    for (const PlanBuffer &result : op.results)
      lists.makes[i].push_back(addValue(result, i));
  }
  firstValue.push_back(numValues);
  numResults = numValues;
  for (int32_t i = 0; i < numOps; ++i) {
    const PlanOp &op = problem.ops[i];
    for (PlanValue input : op.inputs)
      lists.inputs[i].push_back(firstValue[input.op] + input.result);
    makeUnique(lists.inputs[i]);
    llvm::append_range(lists.before[i], op.after);
    llvm::SmallDenseMap<int32_t, int32_t> numbers;
    for (const PlanInPlace &pair : op.inPlace) {
      int32_t operand = firstValue[pair.operand.op] + pair.operand.result;
      lists.pairs[i].push_back(firstValue[i] + pair.result);
      lists.pairs[i].push_back(operand);
      auto [known, isNew] = numbers.try_emplace(operand, numbers.size());
      if (isNew)
        lists.takeable[i].push_back(operand);
      lists.numbers[i].push_back(known->second);
      takeable[operand] = true;
      hasInPlace = true;
    }
  }
  std::vector<Rows::Row> readers(numResults);
  for (int32_t i = 0; i < numOps; ++i)
    for (int32_t value : lists.inputs[i])
      readers[value].push_back(i);
  users = Rows::from(readers);
}

/// What a start reads and makes stays until its wait: the wait reads it.
void Graph::addWaits(const PlanProblem &problem, Lists &lists) {
  for (int32_t wait = 0; wait < numOps; ++wait) {
    int32_t start = problem.ops[wait].waitsFor;
    if (start < 0)
      continue;
    kind[start] = ActionKind::Start;
    kind[wait] = ActionKind::Wait;
    partner[start] = wait;
    partner[wait] = start;
    for (const PlanBuffer &held : problem.ops[start].workspaces)
      lists.makes[start].push_back(addValue(held, start));
    lists.inputs[wait] = lists.inputs[start];
    llvm::append_range(lists.inputs[wait], lists.makes[start]);
    pinned[wait] = pinned[start];
    hasStarts = true;
  }
  for (int32_t i = 0; i < numOps; ++i)
    if (kind[i] != ActionKind::Start)
      for (const PlanBuffer &buffer : problem.ops[i].workspaces)
        workspaces[buffer.space][i] += buffer.bytes;
  // What comes after a start comes after its waits, too.
  for (int32_t i = 0; i < numOps; ++i)
    for (size_t k = 0, end = lists.before[i].size(); k < end; ++k)
      if (int32_t wait = partner[lists.before[i][k]];
          kind[lists.before[i][k]] == ActionKind::Start && wait != i)
        lists.before[i].push_back(wait);
}

/// The start of a transfer and its wait; returns the start.
int32_t Graph::addTransfer(const PlanTransfer &transfer, int32_t inRegion, Lists &lists) {
  int32_t start = addAction(ActionKind::Start, transfer.cost, transfer.resource, inRegion, lists);
  int32_t wait = addAction(ActionKind::Wait, 0, transfer.resource, inRegion, lists);
  partner[start] = wait;
  partner[wait] = start;
  for (const PlanBuffer &held : transfer.workspaces)
    lists.makes[start].push_back(addValue(held, start));
  return start;
}

void Graph::addWays(const PlanProblem &problem, Lists &lists) {
  lists.ways.resize(numResults);
  for (const PlanWay &way : problem.ways) {
    int32_t value = firstValue[way.value.op] + way.value.result, home = region[way.value.op];
    lists.ways[value].push_back(static_cast<int32_t>(ways.size()));
    Way item{value, -1, -1, -1};
    item.storeStart = addTransfer(way.store.value_or(PlanTransfer()), home, lists);
    item.fetchStart = addTransfer(way.fetch, home, lists);
    if (way.store) {
      item.copy = addValue(way.copy, item.storeStart);
      lists.inputs[item.storeStart] = {value};
      lists.makes[item.storeStart].push_back(item.copy);
      lists.inputs[item.fetchStart] = {item.copy};
    }
    if (way.behind)
      lists.inputs[item.fetchStart].push_back(firstValue[way.behind->op] + way.behind->result);
    lists.makes[item.fetchStart].push_back(value);
    for (int32_t start : {item.storeStart, item.fetchStart}) {
      lists.inputs[partner[start]] = lists.inputs[start];
      llvm::append_range(lists.inputs[partner[start]], lists.makes[start]);
    }
    ways.push_back(item);
    hasStarts = true;
  }
  // What comes after an op comes after all fetches of its results.
  std::vector<Rows::Row> fetches(numOps);
  for (const Way &way : ways)
    for (int32_t action : {way.fetchStart, way.fetchStart + 1})
      fetches[opOf[way.value]].push_back(action);
  for (int32_t i = 0; i < numOps; ++i)
    for (size_t k = 0, end = lists.before[i].size(); k < end; ++k)
      if (int32_t earlier = lists.before[i][k]; earlier < numOps)
        llvm::append_range(lists.before[i], fetches[earlier]);
}

/// Enter and Leave keep to their place and belong to the region around.
void Graph::addRegions(const PlanProblem &problem) {
  numRegions = problem.regions.size();
  for (int32_t i = 0; i < numRegions; ++i) {
    const PlanRegion &region = problem.regions[i];
    int32_t around = -1;
    for (int32_t outer = 0; outer < i; ++outer)
      if (problem.regions[outer].begin <= region.begin && region.end <= problem.regions[outer].end)
        around = outer;
    parent.push_back(around);
    count.push_back(region.count * countOf(around));
  }
}

Graph::Graph(const PlanProblem &problem) {
  numOps = problem.ops.size();
  numSpaces = problem.spaces.size();
  numResources = problem.resources.size();
  workspaces.resize(numSpaces);
  Lists lists;
  addOps(problem, lists);
  addWaits(problem, lists);
  addWays(problem, lists);
  addRegions(problem);
  for (int32_t i = 0; i < numRegions; ++i) {
    enter.push_back(addAction(ActionKind::Enter, 0, 0, parent[i], lists));
    addAction(ActionKind::Leave, 0, 0, parent[i], lists);
    pinned[enter[i]] = pinned[enter[i] + 1] = true;
  }
  for (int32_t i = 0; i < numActions; ++i)
    mayGo.push_back(i < numOps && kind[i] != ActionKind::Wait);
  for (const Way &way : ways)
    mayGo[way.fetchStart] = true;
  std::vector<Rows::Row> late(numActions);
  for (int32_t i = 0; i < numActions; ++i) {
    makeUnique(lists.inputs[i]);
    makeUnique(lists.before[i]);
    for (int32_t earlier : lists.before[i])
      late[earlier].push_back(i);
  }
  inputs = Rows::from(lists.inputs);
  makes = Rows::from(lists.makes);
  before = Rows::from(lists.before);
  behind = Rows::from(late);
  inPlace = Rows::from(lists.pairs);
  takeableOperands = Rows::from(lists.takeable);
  takeableNumbers = Rows::from(lists.numbers);
  waysTo = Rows::from(lists.ways);
  // A value with one maker shares the list of its instances.
  numLists = numActions;
  for (int32_t value = 0; value < numValues; ++value)
    listOf.push_back(value < numResults && !waysTo[value].empty() ? numLists++ : opOf[value]);
  residents.assign(numSpaces, 0);
  for (const PlanBuffer &buffer : problem.residents)
    residents[buffer.space] += buffer.bytes;
  resident = residents[0];
  for (const PlanSpace &each : problem.spaces)
    budgets.push_back(budgets.empty() || each.budget < 0 ? unlimited : each.budget);
  int64_t inTurn = 0;
  std::vector<int64_t> loads(numResources, 0);
  for (int32_t i = 0; i < numOps; ++i) {
    int64_t work = cost[i] * countOf(region[i]);
    loads[resource[i]] += work;
    inTurn += kind[i] == ActionKind::Start ? 0 : work;
  }
  baseCost = std::max(inTurn, *std::max_element(loads.begin(), loads.end()));
}

std::vector<int32_t> Graph::givenOrder() const {
  std::vector<int32_t> order;
  int32_t current = -1;
  auto leave = [&] {
    order.push_back(enter[current] + 1);
    current = parent[current];
  };
  for (int32_t op = 0; op < numOps; ++op) {
    while (!isInside(region[op], current))
      leave();
    llvm::SmallVector<int32_t, 4> entered;
    for (int32_t inner = region[op]; inner != current; inner = parent[inner])
      entered.push_back(inner);
    for (int32_t inner : llvm::reverse(entered))
      order.push_back(enter[inner]);
    current = region[op];
    order.push_back(op);
  }
  while (current >= 0)
    leave();
  return order;
}

std::vector<int32_t> memopt::planning::getGivenOrder(const PlanProblem &problem) {
  return search::Graph(problem).givenOrder();
}
