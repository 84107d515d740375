//===- PlanList.cpp - list schedules -----------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops and the ends of regions, each once. A region is entered when all that its body waits for from
// outside has happened, and until it is left only what belongs to it is taken.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanStarts.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

using namespace memopt::planning::search;

namespace {

/// What comes directly behind what.
struct Dependences {
  explicit Dependences(const Graph &graph);
  std::vector<Rows::Row> next;  ///< by action
  std::vector<int32_t> waiting; ///< by action: how many come directly before

private:
  /// The region that holds `from` and not `to`, as far out as there is one, or -1.
  static int32_t outermost(const Graph &graph, int32_t from, int32_t to) {
    int32_t found = -1;
    for (int32_t region = graph.region[from]; !graph.isInside(graph.region[to], region);
         region = graph.parent[region])
      found = region;
    return found;
  }
  /// A dependence across the border of a region is one of its begin or end.
  void add(const Graph &graph, int32_t from, int32_t to) {
    if (int32_t region = outermost(graph, from, to); region >= 0)
      from = graph.enter[region] + 1;
    if (int32_t region = outermost(graph, to, from); region >= 0)
      to = graph.enter[region];
    link(from, to);
  }
  void link(int32_t from, int32_t to) {
    next[from].push_back(to);
    ++waiting[to];
  }
};

} // namespace

Dependences::Dependences(const Graph &graph)
    : next(graph.numActions), waiting(graph.numActions, 0) {
  for (int32_t op = 0; op < graph.numOps; ++op) {
    if (graph.kind[op] == ActionKind::Wait)
      add(graph, graph.partner[op], op);
    else
      for (int32_t value : graph.inputs[op]) {
        int32_t maker = graph.opOf[value];
        add(graph, graph.kind[maker] == ActionKind::Start ? graph.partner[maker] : maker, op);
      }
    for (int32_t earlier : graph.before[op])
      if (!graph.isOptional(earlier))
        add(graph, earlier, op);
    if (int32_t home = graph.region[op]; home >= 0) {
      link(graph.enter[home], op);
      link(op, graph.enter[home] + 1);
    }
  }
  for (int32_t region = 0; region < graph.numRegions; ++region) {
    int32_t around = graph.parent[region], enter = graph.enter[region];
    if (around < 0)
      continue;
    link(graph.enter[around], enter);
    link(enter + 1, graph.enter[around] + 1);
  }
}

namespace {

/// Actions of a list schedule that nothing holds back any more: first those that let the bytes
/// alive grow the least, those of other spaces where that of the first stay as they are, among
/// equals in the order of their ranks.
class ReadyActions {
public:
  ReadyActions(const Graph &graph, std::vector<int32_t> rank, std::vector<int32_t> waiting,
               std::vector<int64_t> growth, bool keepsRank, bool backwards = false)
      : graph(graph), rank(std::move(rank)), waiting(std::move(waiting)), growth(std::move(growth)),
        elsewhere(graph.numActions, 0), isNegligible(graph.numActions, false), keepsRank(keepsRank),
        backwards(backwards), ready(graph.numRegions + 1) {
    if (!backwards && graph.numSpaces > 1)
      measureElsewhere();
    if (!backwards && keepsRank)
      measureNegligible();
    for (int32_t action = 0; action < graph.numActions; ++action)
      if (!this->waiting[action] && !graph.isOptional(action))
        readyIn(action).insert(entryOf(action));
  }
  /// The next action of the region that is open; empty at the end.
  std::optional<int32_t> pop() {
    std::set<Entry> &here = ready[open + 1];
    if (here.empty())
      return std::nullopt;
    int32_t action = std::get<2>(*here.begin());
    here.erase(here.begin());
    ActionKind kind = graph.kind[action];
    if (kind == ActionKind::Enter || kind == ActionKind::Leave)
      open = enters(action) ? regionOfMark(action) : graph.region[action];
    return action;
  }
  /// One of the things that `action` waits for has happened.
  void release(int32_t action) {
    if (--waiting[action] == 0)
      readyIn(action).insert(entryOf(action));
  }
  void shrink(int32_t action, int64_t bytes) {
    bool listed = readyIn(action).erase(entryOf(action));
    growth[action] -= bytes;
    if (listed)
      readyIn(action).insert(entryOf(action));
  }

private:
  using Entry = std::tuple<int64_t, int32_t, int32_t>; // growth, rank, action
  /// With ranks to keep, only what shrinks the bytes alive runs ahead of them, and what makes next
  /// to nothing for others, which may shrink them: updates read scalars that follow from the number
  /// of the step.
  Entry entryOf(int32_t action) const {
    int64_t bytes = growth[action] ? growth[action] : elsewhere[action];
    if (keepsRank)
      bytes = std::min<int64_t>(bytes, isNegligible[action] ? -1 : 0);
    return {bytes, rank[action], action};
  }
  int64_t getBytesMade(int32_t op) const {
    int64_t bytes = 0;
    for (int32_t value : graph.makes[op])
      bytes += graph.size[value];
    return bytes;
  }
  /// Ops that others read make next to nothing where it is so little that what all ops that make no
  /// more allocate together is lost in the total.
  void measureNegligible() {
    constexpr double kShare = 1e-4;
    std::vector<int64_t> made;
    for (int32_t op = 0; op < graph.numOps; ++op)
      made.push_back(getBytesMade(op));
    std::vector<int64_t> ascending = made;
    llvm::sort(ascending);
    double left = kShare * std::accumulate(ascending.begin(), ascending.end(), 0.0);
    int64_t negligible = -1;
    for (int64_t bytes : ascending) {
      left -= static_cast<double>(bytes);
      if (left < 0)
        break;
      negligible = bytes;
    }
    for (int32_t op = 0; op < graph.numOps; ++op)
      isNegligible[op] =
          made[op] <= negligible &&
          llvm::any_of(graph.makes[op], [&](int32_t value) { return !graph.users[value].empty(); });
  }
  /// By action the sign of what it makes outside of space 0, less what it alone reads: an update
  /// there frees the gradient that was sent.
  void measureElsewhere() {
    for (int32_t op = 0; op < graph.numOps; ++op) {
      int64_t bytes = 0;
      for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
        bytes += graph.size[value] - graph.bytes[value];
      if (graph.kind[op] != ActionKind::Wait)
        for (int32_t value : graph.inputs[op])
          if (graph.users[value].size() == 1)
            bytes -= graph.size[value] - graph.bytes[value];
      elsewhere[op] = std::clamp<int64_t>(bytes, -1, 1);
    }
  }
  bool enters(int32_t mark) const { return (graph.kind[mark] == ActionKind::Enter) != backwards; }
  int32_t regionOfMark(int32_t mark) const {
    int32_t enter = graph.kind[mark] == ActionKind::Enter ? mark : mark - 1;
    return static_cast<int32_t>(llvm::find(graph.enter, enter) - graph.enter.begin());
  }
  /// Backwards a region opens with its end. What closes it is taken while it is open.
  std::set<Entry> &readyIn(int32_t action) {
    ActionKind kind = graph.kind[action];
    bool closes = (kind == ActionKind::Enter || kind == ActionKind::Leave) && !enters(action);
    return ready[(closes ? regionOfMark(action) : graph.region[action]) + 1];
  }

  const Graph &graph;
  std::vector<int32_t> rank, waiting; ///< by action
  std::vector<int64_t> growth;        ///< by action
  std::vector<int64_t> elsewhere;     ///< by action: -1, 0 or 1
  std::vector<bool> isNegligible;     ///< by action; backwards nothing is
  bool keepsRank, backwards;
  std::vector<std::set<Entry>> ready; ///< by region, the top first
  int32_t open = -1;
};

} // namespace

/// Ranks of actions in an order; those of ops alone by default.
static std::vector<int32_t> ranksOf(const Graph &graph, llvm::ArrayRef<int32_t> order,
                                    int32_t sign) {
  std::vector<int32_t> rank(graph.numActions, 0), given;
  if (order.empty()) {
    given = graph.givenOrder();
    order = given;
  }
  for (auto [at, action] : llvm::enumerate(order))
    rank[action] = sign * static_cast<int32_t>(at);
  return rank;
}

std::vector<int32_t> memopt::planning::search::listSchedule(const Graph &graph,
                                                            llvm::ArrayRef<int32_t> order) {
  std::vector<int32_t> unread(graph.numResults);
  std::vector<int64_t> growth(graph.numActions, 0); // bytes alive after the op, less before it
  for (int32_t value = 0; value < graph.numResults; ++value)
    unread[value] = graph.users[value].size();
  for (int32_t op = 0; op < graph.numOps; ++op) {
    for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
      if (unread[value])
        growth[op] += graph.bytes[value];
    // What a start reads is freed by its wait: to have that early, both are.
    int32_t reader = graph.kind[op] == ActionKind::Wait ? graph.partner[op] : op;
    for (int32_t value : graph.inputs[reader])
      if (unread[value] == 1)
        growth[op] -= graph.bytes[value];
  }
  Dependences dependences(graph);
  ReadyActions ready(graph, ranksOf(graph, order, 1), std::move(dependences.waiting),
                     std::move(growth), !order.empty());
  std::vector<bool> done(graph.numActions, false);
  std::vector<int32_t> scheduled;
  while (std::optional<int32_t> action = ready.pop()) {
    scheduled.push_back(*action);
    done[*action] = true;
    if (graph.kind[*action] != ActionKind::Wait)
      for (int32_t value : graph.inputs[*action]) {
        if (--unread[value] != 1)
          continue;
        // Its last reader will free it.
        for (int32_t user : graph.users[value])
          if (!done[user]) {
            ready.shrink(user, graph.bytes[value]);
            if (graph.kind[user] == ActionKind::Start)
              ready.shrink(graph.partner[user], graph.bytes[value]);
          }
      }
    for (int32_t next : dependences.next[*action])
      ready.release(next);
  }
  return scheduled;
}

std::vector<int32_t> memopt::planning::search::scheduleLate(const Graph &graph,
                                                            llvm::ArrayRef<int32_t> order) {
  std::vector<int64_t> growth(graph.numActions, 0); // bytes alive before the op, less after it
  for (int32_t op = 0; op < graph.numOps; ++op) {
    for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
      if (!graph.users[value].empty())
        growth[op] -= graph.bytes[value];
    if (graph.kind[op] != ActionKind::Wait)
      for (int32_t value : graph.inputs[op])
        growth[op] += graph.bytes[value];
  }
  Dependences dependences(graph);
  std::vector<Rows::Row> previous(graph.numActions);
  std::vector<int32_t> waiting(graph.numActions, 0);
  for (int32_t action = 0; action < graph.numActions; ++action)
    for (int32_t next : dependences.next[action]) {
      previous[next].push_back(action);
      ++waiting[action];
    }
  ReadyActions ready(graph, ranksOf(graph, order, -1), std::move(waiting), std::move(growth),
                     /*keepsRank=*/true, /*backwards=*/true);
  std::vector<bool> alive(graph.numResults, false);
  std::vector<int32_t> scheduled;
  while (std::optional<int32_t> action = ready.pop()) {
    scheduled.push_back(*action);
    if (graph.kind[*action] != ActionKind::Wait)
      for (int32_t value : graph.inputs[*action]) {
        // Whoever reads it earlier no longer makes it live longer.
        if (!alive[value])
          for (int32_t user : graph.users[value])
            ready.shrink(user, graph.bytes[value]);
        alive[value] = true;
      }
    for (int32_t earlier : previous[*action])
      ready.release(earlier);
  }
  std::reverse(scheduled.begin(), scheduled.end());
  return scheduled;
}
