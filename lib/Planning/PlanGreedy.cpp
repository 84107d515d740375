//===- PlanGreedy.cpp - list schedules and greedy eviction ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanStarts.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

using namespace memopt::planning::search;

namespace {

/// Ops of a list schedule that nothing holds back any more: first those that let the bytes alive
/// grow the least, among equals in the order of their ranks.
class ReadyOps {
public:
  ReadyOps(std::vector<int32_t> rank, std::vector<int32_t> waiting, std::vector<int64_t> growth,
           bool keepsRank)
      : rank(std::move(rank)), waiting(std::move(waiting)), growth(std::move(growth)),
        keepsRank(keepsRank) {
    for (size_t op = 0; op < this->waiting.size(); ++op)
      if (!this->waiting[op])
        ready.insert(entryOf(op));
  }
  bool empty() const { return ready.empty(); }
  int32_t pop() {
    int32_t op = std::get<2>(*ready.begin());
    ready.erase(ready.begin());
    return op;
  }
  /// One of the things that `op` waits for has happened.
  void release(int32_t op) {
    if (--waiting[op] == 0)
      ready.insert(entryOf(op));
  }
  void shrink(int32_t op, int64_t bytes) {
    bool listed = ready.erase(entryOf(op));
    growth[op] -= bytes;
    if (listed)
      ready.insert(entryOf(op));
  }

private:
  using Entry = std::tuple<int64_t, int32_t, int32_t>; // growth, rank, op
  /// With ranks to keep, only what shrinks the bytes alive runs ahead of them.
  Entry entryOf(int32_t op) const {
    return {keepsRank ? std::min<int64_t>(growth[op], 0) : growth[op], rank[op], op};
  }

  std::vector<int32_t> rank, waiting; ///< by op
  std::vector<int64_t> growth;        ///< by op
  bool keepsRank;
  std::set<Entry> ready;
};

} // namespace

std::vector<int32_t> memopt::planning::search::listSchedule(const Graph &graph,
                                                            llvm::ArrayRef<int32_t> order) {
  std::vector<int32_t> rank(graph.numOps), waiting(graph.numOps), unread(graph.numValues);
  std::iota(rank.begin(), rank.end(), 0);
  for (auto [at, op] : llvm::enumerate(order))
    rank[op] = at;
  std::vector<int64_t> growth(graph.numOps, 0); // bytes alive after the op, less before it
  for (int32_t value = 0; value < graph.numValues; ++value)
    unread[value] = graph.users[value].size();
  for (int32_t op = 0; op < graph.numOps; ++op) {
    waiting[op] = graph.inputs[op].size() + graph.before[op].size();
    for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
      if (unread[value])
        growth[op] += graph.bytes[value];
    for (int32_t value : graph.inputs[op])
      if (unread[value] == 1)
        growth[op] -= graph.bytes[value];
  }
  ReadyOps ready(std::move(rank), std::move(waiting), std::move(growth), !order.empty());
  std::vector<bool> done(graph.numOps, false);
  std::vector<int32_t> scheduled;
  while (!ready.empty()) {
    int32_t op = ready.pop();
    scheduled.push_back(op);
    done[op] = true;
    for (int32_t value : graph.inputs[op]) {
      if (--unread[value] != 1)
        continue;
      // Its last reader will free it.
      for (int32_t user : graph.users[value])
        if (!done[user])
          ready.shrink(user, graph.bytes[value]);
    }
    for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
      for (int32_t user : graph.users[value])
        ready.release(user);
    for (int32_t later : graph.behind[op])
      ready.release(later);
  }
  return scheduled;
}

std::vector<int32_t> memopt::planning::search::scheduleLate(const Graph &graph,
                                                            llvm::ArrayRef<int32_t> order) {
  std::vector<int32_t> rank(graph.numOps), waiting(graph.numOps);
  for (auto [at, op] : llvm::enumerate(order))
    rank[op] = -static_cast<int32_t>(at);
  std::vector<int64_t> growth(graph.numOps, 0); // bytes alive before the op, less after it
  for (int32_t op = 0; op < graph.numOps; ++op) {
    waiting[op] = graph.behind[op].size();
    for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value) {
      waiting[op] += graph.users[value].size();
      if (!graph.users[value].empty())
        growth[op] -= graph.bytes[value];
    }
    for (int32_t value : graph.inputs[op])
      growth[op] += graph.bytes[value];
  }
  ReadyOps ready(std::move(rank), std::move(waiting), std::move(growth), /*keepsRank=*/true);
  std::vector<bool> alive(graph.numValues, false);
  std::vector<int32_t> scheduled;
  while (!ready.empty()) {
    int32_t op = ready.pop();
    scheduled.push_back(op);
    for (int32_t value : graph.inputs[op]) {
      // Whoever reads it earlier no longer makes it live longer.
      if (!alive[value])
        for (int32_t user : graph.users[value])
          ready.shrink(user, graph.bytes[value]);
      alive[value] = true;
      ready.release(graph.opOf[value]);
    }
    for (int32_t earlier : graph.before[op])
      ready.release(earlier);
  }
  std::reverse(scheduled.begin(), scheduled.end());
  return scheduled;
}

namespace {

class Evictor {
public:
  Evictor(const Graph &graph, const Plan &start, int64_t budget, bool keepOrder)
      : graph(graph), budget(budget), keepOrder(keepOrder), sequence(graph), best(start) {
    sequence.assign(start.order);
  }

  Plan run();

private:
  /// What it takes to compute a value again before `slot` instead of keeping it over the peak.
  struct Price {
    int64_t cost = 0;
    int64_t kept = 0; ///< bytes of operands that are kept over the peak for it
    int32_t clones = 0;
  };
  bool estimate(int32_t op, int32_t peak, int32_t slot, int64_t worth, int depth,
                Price &price) const;
  struct Candidate {
    int32_t value, use; ///< its next use, a slot
  };
  void collectCandidates(int32_t peak);
  bool evictBest(int32_t peak);
  bool clone(int32_t op, int32_t peak, int32_t slot, int64_t worth, int depth);
  bool mayClone(int32_t op, int32_t slot) const {
    return !graph.pinned[op] && llvm::none_of(graph.behind[op], [&](int32_t later) {
      return sequence.instancesOf(later).front() < slot;
    });
  }
  bool mustKeep(int32_t value, int32_t slot, int64_t worth, int depth) const {
    return !mayClone(graph.opOf[value], slot) || depth >= maxDepth ||
           graph.bytes[value] * 4 <= worth;
  }
  /// Kept over the peak only if a clone at `slot` reads it.
  bool stretches(int32_t value, int32_t peak, int32_t slot) const {
    return graph.bytes[value] && sequence.nextUse(value, slot) == Sequence::none &&
           sequence.endBefore(value, slot) <= peak;
  }
  int32_t slotBefore(int32_t low, int32_t slot);
  void dropDead(int32_t op, int32_t slot);

  static constexpr int maxDepth = 8, maxClones = 24;
  static constexpr size_t maxCandidates = 400;
  const Graph &graph;
  int64_t budget;
  bool keepOrder;
  Sequence sequence;
  Plan best;
  std::vector<Candidate> candidates;
  size_t turn = 0;
};

} // namespace

bool Evictor::estimate(int32_t op, int32_t peak, int32_t slot, int64_t worth, int depth,
                       Price &price) const {
  price.cost += graph.cost[op];
  if (++price.clones > maxClones)
    return false;
  for (int32_t value : graph.inputs[op]) {
    if (!stretches(value, peak, slot))
      continue;
    if (mustKeep(value, slot, worth, depth))
      price.kept += graph.bytes[value];
    else if (!estimate(graph.opOf[value], peak, slot, worth, depth + 1, price))
      return false;
    if (price.kept >= worth)
      return false;
  }
  return true;
}

int32_t Evictor::slotBefore(int32_t low, int32_t slot) {
  while (true) {
    int32_t previous = std::max(low, sequence.previousTaken(slot));
    if (slot - previous >= 2)
      return previous + (slot - previous) / 2;
    if (previous == low)
      return Sequence::none;
    slot = previous;
  }
}

void Evictor::dropDead(int32_t op, int32_t slot) {
  llvm::ArrayRef<int32_t> instances = sequence.instancesOf(op);
  if (instances.size() < 2 || (keepOrder && instances.front() == slot))
    return;
  for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
    if (sequence.nextUse(value, slot) != Sequence::none)
      return;
  sequence.erase(slot);
  for (int32_t value : graph.inputs[op])
    if (int32_t made = sequence.lastBefore(graph.opOf[value], slot); made != Sequence::none)
      dropDead(graph.opOf[value], made);
}

bool Evictor::clone(int32_t op, int32_t peak, int32_t slot, int64_t worth, int depth) {
  int32_t target = slotBefore(peak, slot);
  if (target == Sequence::none)
    return false;
  int32_t previous = sequence.lastBefore(op, target);
  sequence.insert(op, target);
  for (int32_t value : graph.inputs[op])
    if (stretches(value, peak, target) && !mustKeep(value, target, worth, depth) &&
        !clone(graph.opOf[value], peak, target, worth, depth + 1))
      return false;
  if (previous != Sequence::none)
    dropDead(op, previous);
  return true;
}

/// Values that could go at `peak`; of very many an evenly spread part, another one each time.
void Evictor::collectCandidates(int32_t peak) {
  candidates.clear();
  for (int32_t value = 0; value < graph.numValues; ++value) {
    int32_t op = graph.opOf[value];
    if (!graph.bytes[value] || graph.pinned[op] || sequence.at(peak) == op ||
        sequence.lastBefore(op, peak) == Sequence::none)
      continue;
    int32_t use = sequence.nextUse(value, peak);
    if (use != Sequence::none && sequence.nextTaken(peak) != use && mayClone(op, use) &&
        sequence.canLeave(value, peak))
      candidates.push_back({value, use});
  }
  size_t stride = candidates.size() / maxCandidates + 1, kept = 0;
  for (size_t at = turn++ % stride; at < candidates.size(); at += stride)
    candidates[kept++] = candidates[at];
  candidates.resize(kept);
}

bool Evictor::evictBest(int32_t peak) {
  collectCandidates(peak);
  Candidate chosen{Sequence::none, 0};
  double chosenScore = 0;
  for (Candidate candidate : candidates) {
    auto [value, use] = candidate;
    Price price;
    if (!estimate(graph.opOf[value], peak, use, graph.bytes[value], 0, price))
      continue;
    double gap = use - sequence.endBefore(value, peak);
    double score = double(graph.bytes[value] - price.kept) * gap / (double(price.cost) + 1e-3);
    if (score > chosenScore) {
      chosenScore = score;
      chosen = candidate;
    }
  }
  if (chosen.value == Sequence::none)
    return false;
  return clone(graph.opOf[chosen.value], peak, chosen.use, graph.bytes[chosen.value], 0);
}

Plan Evictor::run() {
  int64_t stale = 0;
  std::vector<int32_t> before;
  while (sequence.peak() > budget && stale < 64 + graph.numOps / 4 &&
         sequence.size() < 8 * graph.numOps + 64) {
    int32_t peak = sequence.peakSlot();
    if (!evictBest(peak)) {
      // Out of empty slots, or of anything that helps: spread out once, then give up.
      std::vector<int32_t> now = sequence.order();
      if (now == before)
        break;
      before = std::move(now);
      sequence.assign(before);
      continue;
    }
    sequence.keep();
    ++stale;
    Plan now;
    now.peak = sequence.peak();
    now.cost = sequence.cost();
    if (now.betterThan(best, budget)) {
      now.order = sequence.order();
      best = std::move(now);
      stale = 0;
    }
  }
  return best;
}

Plan memopt::planning::search::evictGreedily(const Graph &graph, const Plan &start, int64_t budget,
                                             bool keepOrder) {
  return Evictor(graph, start, budget, keepOrder).run();
}
