//===- PlanExact.cpp - best-first search for small problems -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A* over states (ops that have run, values alive). The estimate of what is still to pay is the
// cost of the ops that have not run, so the least key that is open is a lower bound on the cost at
// any time. A value is dropped only when the next op needs its bytes: a state with more alive is
// never worse; or when the op takes over its bytes. Values that no op still to run depends on,
// however indirectly, are dropped at once.
//
//===----------------------------------------------------------------------===//

#include "PlanExact.h"

#include "llvm/ADT/DenseMap.h"

#include <algorithm>
#include <queue>

using namespace memopt::planning::search;

namespace {

using Mask = uint64_t;

class ExactPlanSearch {
public:
  ExactPlanSearch(const Graph &graph, int64_t budget, bool keepOrder, bool recompute);
  ExactOutcome run(int64_t limit);

private:
  struct State {
    Mask done, live;
    int64_t cost;
    int32_t parent, op;
  };
  struct Open {
    int64_t key;
    int32_t numDone; ///< ties: the deepest first, then the newest
    int32_t state;
    bool operator<(const Open &other) const {
      return std::make_tuple(-key, numDone, state) <
             std::make_tuple(-other.key, other.numDone, other.state);
    }
  };
  void expand(int32_t from);
  bool mayRun(const State &state, int32_t op) const;
  void dropAndRun(int32_t from, int32_t op, Mask droppable, Mask dropped, int64_t excess);
  void runEnding(int32_t from, int32_t op, Mask ended);
  void push(int32_t from, int32_t op, Mask live);
  Mask useful(Mask done) const;
  int64_t rest(Mask done, Mask live) const;
  int64_t bytesOf(Mask values) const {
    int64_t sum = 0;
    for (; values; values &= values - 1)
      sum += graph.bytes[__builtin_ctzll(values)];
    return sum;
  }

  const Graph &graph;
  int64_t budget;
  bool keepOrder, recompute;
  std::vector<Mask> inputs, results, before, behind; ///< by op: values, values, ops, ops
  std::vector<Mask> serves; ///< by value: ops that depend on it, however indirectly
  std::vector<State> states;
  std::priority_queue<Open> open;
  llvm::DenseMap<std::pair<Mask, Mask>, int64_t> cheapest;
  int64_t remaining = 0; ///< drop sets left to look at
};

} // namespace

ExactPlanSearch::ExactPlanSearch(const Graph &graph, int64_t budget, bool keepOrder, bool recompute)
    : graph(graph), budget(budget), keepOrder(keepOrder), recompute(recompute) {
  auto maskOf = [](llvm::ArrayRef<int32_t> items) {
    Mask mask = 0;
    for (int32_t item : items)
      mask |= Mask(1) << item;
    return mask;
  };
  serves.assign(graph.numValues, 0);
  for (int32_t op = 0; op < graph.numOps; ++op) {
    inputs.push_back(maskOf(graph.inputs[op]));
    before.push_back(maskOf(graph.before[op]));
    behind.push_back(maskOf(graph.behind[op]));
    Mask made = 0;
    for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
      made |= Mask(1) << value;
    results.push_back(made);
  }
  for (int32_t op = graph.numOps; op-- > 0;) {
    Mask reach = Mask(1) << op;
    for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
      reach |= serves[value];
    for (int32_t value : graph.inputs[op])
      serves[value] |= reach;
  }
}

Mask ExactPlanSearch::useful(Mask done) const {
  Mask mask = 0;
  for (int32_t value = 0; value < graph.numValues; ++value)
    if (serves[value] & ~done)
      mask |= Mask(1) << value;
  return mask;
}

bool ExactPlanSearch::mayRun(const State &state, int32_t op) const {
  if (inputs[op] & ~state.live)
    return false;
  bool again = state.done >> op & 1;
  if (!again)
    return !(before[op] & ~state.done) && (!keepOrder || !(~state.done & ((Mask(1) << op) - 1)));
  return recompute && !graph.pinned[op] && !(behind[op] & state.done) &&
         (results[op] & ~state.live & useful(state.done));
}

/// What is at least still to pay; negative when the state leads nowhere.
int64_t ExactPlanSearch::rest(Mask done, Mask live) const {
  int64_t sum = 0;
  Mask seen = ~done & ((Mask(1) << graph.numOps) - 1);
  for (Mask work = seen; work;) {
    int32_t op = __builtin_ctzll(work);
    work &= work - 1;
    sum += graph.cost[op];
    for (Mask gone = inputs[op] & ~live; gone; gone &= gone - 1) {
      int32_t maker = graph.opOf[__builtin_ctzll(gone)];
      if (seen >> maker & 1)
        continue;
      if (!recompute || graph.pinned[maker] || (behind[maker] & done))
        return -1;
      seen |= Mask(1) << maker;
      work |= Mask(1) << maker;
    }
  }
  return sum;
}

void ExactPlanSearch::push(int32_t from, int32_t op, Mask live) {
  const State &state = states[from];
  State next{state.done | Mask(1) << op, live, state.cost + graph.cost[op], from, op};
  next.live &= useful(next.done);
  int64_t left = rest(next.done, next.live);
  if (left < 0)
    return;
  auto [known, fresh] = cheapest.try_emplace(std::make_pair(next.done, next.live), next.cost);
  if (!fresh && known->second <= next.cost)
    return;
  known->second = next.cost;
  open.push({next.cost + left, __builtin_popcountll(next.done), int32_t(states.size())});
  states.push_back(next);
}

/// Tries every least set of values whose bytes make room for `op`.
void ExactPlanSearch::dropAndRun(int32_t from, int32_t op, Mask droppable, Mask dropped,
                                 int64_t excess) {
  if (excess <= 0) {
    push(from, op, (states[from].live & ~dropped) | results[op]);
    return;
  }
  for (; droppable && remaining > 0; droppable &= droppable - 1) {
    int32_t value = __builtin_ctzll(droppable);
    --remaining;
    if (graph.bytes[value])
      dropAndRun(from, op, droppable & (droppable - 1), dropped | Mask(1) << value,
                 excess - graph.bytes[value]);
  }
}

/// Runs `op` with the operands `ended` used for the last time.
void ExactPlanSearch::runEnding(int32_t from, int32_t op, Mask ended) {
  Mask live = states[from].live;
  int64_t bytes = graph.resident + graph.workspaces[0][op] + bytesOf(live | results[op]) -
                  graph.bytesTakenOver(op, 0, [&](int32_t value) { return ended >> value & 1; });
  dropAndRun(from, op, live & ~inputs[op] & ~results[op], ended, bytes - budget);
}

void ExactPlanSearch::expand(int32_t from) {
  State state = states[from];
  for (int32_t op = 0; op < graph.numOps; ++op) {
    if (!mayRun(state, op))
      continue;
    Mask takeable = 0;
    llvm::ArrayRef<int32_t> pairs = graph.inPlace[op];
    for (size_t i = 1; i < pairs.size(); i += 2)
      takeable |= Mask(1) << pairs[i];
    // What nothing will use ends by itself; of the others each set may be given up.
    Mask ends = takeable & ~useful(state.done | Mask(1) << op), rest = takeable & ~ends;
    for (Mask given = 0;; given = (given - rest) & rest) {
      runEnding(from, op, ends | given);
      if (given == rest || --remaining <= 0)
        break;
    }
  }
}

ExactOutcome ExactPlanSearch::run(int64_t limit) {
  ExactOutcome outcome;
  remaining = 20 * limit;
  Mask all = (Mask(1) << graph.numOps) - 1;
  states.push_back({0, 0, 0, -1, -1});
  open.push({graph.baseCost, 0, 0});
  outcome.costBound = graph.baseCost;
  while (!open.empty()) {
    Open top = open.top();
    open.pop();
    State state = states[top.state];
    outcome.costBound = std::max(outcome.costBound, top.key);
    if (state.done == all) {
      for (int32_t at = top.state; states[at].parent >= 0; at = states[at].parent)
        outcome.plan.order.push_back(states[at].op);
      std::reverse(outcome.plan.order.begin(), outcome.plan.order.end());
      outcome.plan = planOf(graph, std::move(outcome.plan.order));
      outcome.kind = ExactOutcome::Optimal;
      return outcome;
    }
    if (int64_t(states.size()) > limit || remaining <= 0)
      return outcome;
    if (cheapest.lookup(std::make_pair(state.done, state.live)) < state.cost)
      continue; // reached more cheaply since
    expand(top.state);
  }
  if (remaining > 0)
    outcome.kind = ExactOutcome::Infeasible;
  return outcome;
}

bool memopt::planning::search::fitsExactSearch(const Graph &graph) {
  return graph.isPlain() && graph.numOps > 0 && graph.numOps <= 62 && graph.numValues <= 62;
}

ExactOutcome memopt::planning::search::solveExactly(const Graph &graph, int64_t budget,
                                                    bool keepOrder, bool recompute,
                                                    int64_t states) {
  return ExactPlanSearch(graph, budget, keepOrder, recompute).run(states);
}
