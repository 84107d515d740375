//===- PlanTransfers.cpp - greedy eviction by all means ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a transfer costs depends on the queues of all links, so candidates are tried: for the values
// that promise most at the peak, each way to have them again is put into the plan, simulated and
// taken back. A transfer that hides costs nothing and wins, until the links are full; then what
// frees the most bytes for each unit of time (Capuchin's rule, ASPLOS 2020, judged by simulation).
//
//===----------------------------------------------------------------------===//

#include "PlanEditor.h"
#include "memopt/Planning/Order/PlanStarts.h"
#include "memopt/Planning/Simulation/PlanSequence.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace memopt::planning::search;

namespace {

class TransferEvictor {
public:
  TransferEvictor(const Graph &graph, const Plan &start, int64_t budget,
                  const EvictOptions &options)
      : graph(graph), budget(budget), options(options),
        editor(graph, options.keepOrder, /*reach=*/graph.numActions), sequence(editor.get()),
        best(start) {
    editor.restart(start.order);
  }

  Plan run();

private:
  /// One way to have a value again.
  struct Trial {
    int32_t value, low, use; ///< alive over `low` only for its use
    int32_t way = -1;        ///< -1: its op runs again
    int depth = 0;           ///< of the chain of operands that run again too
    int32_t begin = Sequence::none, storeBy = Sequence::none;
  };
  void lookAround();
  std::vector<Trial> makeTrials() const;
  void addTrials(int32_t value, int32_t use, std::vector<Trial> &trials) const;
  bool apply(const Trial &trial);
  bool clone(int32_t op, int32_t low, int32_t slot, int depth);
  bool mayClone(int32_t op, int32_t slot) const {
    return options.recompute && !graph.pinned[op] && graph.kind[op] == ActionKind::Plain &&
           !editor.isTooLate(op, slot);
  }
  double overload() const;
  bool evictBest();

  const Graph &graph;
  int64_t budget;
  EvictOptions options;
  Editor editor;
  const Sequence &sequence;
  Plan best;
  int32_t peak = 0, from = 0,
          to = 0; ///< the peak, and the slots around it that are above the budget
};

} // namespace

/// The stretch above the budget around the peak.
void TransferEvictor::lookAround() {
  peak = from = to = sequence.peakSlot();
  int32_t begin = Sequence::none;
  bool behind = false;
  sequence.forEachLoad([&](int32_t slot, int64_t alive) {
    bool isOver = alive > budget;
    if (!isOver) {
      behind |= slot > peak;
      begin = Sequence::none;
    } else if (begin == Sequence::none) {
      begin = slot;
    }
    if (slot == peak)
      from = begin;
    if (slot >= peak && !behind)
      to = slot;
  });
}

/// Bytes above the budget, summed over the plan.
double TransferEvictor::overload() const {
  double sum = 0;
  sequence.forEachLoad([&](int32_t, int64_t alive) {
    if (alive > budget)
      sum += static_cast<double>(alive - budget);
  });
  return sum;
}

void TransferEvictor::addTrials(int32_t value, int32_t use, std::vector<Trial> &trials) const {
  int32_t op = graph.opOf[value], low = sequence.endBefore(value, peak);
  Trial trial{value, std::max(low, sequence.previousTaken(from)), use};
  if (mayClone(op, use))
    for (int depth : {0, 2, 6}) {
      trial.depth = depth;
      trials.push_back(trial);
    }
  if (!options.transfer)
    return;
  // A fetch begins as early as the bytes allow, which leaves the link free later, or just in time;
  // a store is waited for as early as the bytes would have it, or later, when it is done.
  int32_t early = sequence.nextTaken(to);
  for (int32_t begin : {early, early + (use - early) / 2, Sequence::none}) {
    trial.begin = begin;
    if (graph.kind[op] == ActionKind::Start && !graph.pinned[op])
      trials.push_back(trial);
    for (int32_t way : graph.waysTo[value]) {
      trial.way = way;
      trial.storeBy = std::max(from, trial.low + 1);
      trials.push_back(trial);
      if (graph.ways[way].copy >= 0)
        for (int32_t by : {trial.low + (peak - trial.low) / 2, peak})
          if (by > trial.storeBy) {
            trial.storeBy = by;
            trials.push_back(trial);
          }
    }
    trial.way = -1;
    trial.storeBy = Sequence::none;
  }
}

std::vector<TransferEvictor::Trial> TransferEvictor::makeTrials() const {
  // Many bytes for long first; in a large graph fewer are tried, for each is simulated.
  constexpr int64_t kWork = 300000;
  auto most = static_cast<size_t>(std::max<int64_t>(24, kWork / (sequence.size() + 1)));
  std::vector<std::tuple<double, int32_t, int32_t>> promising; // gain, value, use
  for (int32_t value = 0; value < graph.numResults; ++value) {
    if (!graph.bytes[value] || sequence.at(peak) == graph.opOf[value] ||
        sequence.serverOf(value, peak) == Sequence::none)
      continue;
    int32_t use = sequence.nextUse(value, peak);
    if (use == Sequence::none || !sequence.canLeave(value, peak) ||
        graph.kind[sequence.at(use)] == ActionKind::Wait)
      continue;
    double gap = std::min(use, to) - std::max(sequence.endBefore(value, peak), from) + 1;
    promising.emplace_back(-static_cast<double>(graph.bytes[value]) * gap, value, use);
  }
  llvm::sort(promising);
  std::vector<Trial> trials;
  for (auto [gain, value, use] : promising) {
    if (trials.size() >= most)
      break;
    addTrials(value, use, trials);
  }
  return trials;
}

/// Runs `op` again in front of `slot`, with the operands that would else be kept over `low`.
bool TransferEvictor::clone(int32_t op, int32_t low, int32_t slot, int depth) {
  int32_t target = editor.runBefore(op, low, slot);
  if (target == Sequence::none)
    return false;
  int32_t previous = sequence.lastBefore(op, target);
  for (int32_t value : graph.inputs[op])
    if (depth > 0 && graph.bytes[value] && mayClone(graph.opOf[value], target) &&
        sequence.nextUse(value, target) == Sequence::none &&
        sequence.endBefore(value, target) <= low &&
        !clone(graph.opOf[value], low, target, depth - 1))
      return false;
  if (previous != Sequence::none)
    editor.eraseIfDead(op, previous);
  return true;
}

bool TransferEvictor::apply(const Trial &trial) {
  int32_t op = graph.opOf[trial.value];
  if (trial.way >= 0)
    return editor.fetchBefore(trial.way, std::max(trial.low, trial.storeBy - 1), trial.use,
                              trial.begin, trial.storeBy);
  if (graph.kind[op] == ActionKind::Start)
    return editor.runBefore(op, trial.low, trial.use, trial.begin) != Sequence::none;
  return clone(op, peak, trial.use, trial.depth);
}

bool TransferEvictor::evictBest() {
  lookAround();
  double before = overload(), bestRatio = 0;
  int64_t cost = sequence.cost(), excess = sequence.excess();
  std::vector<Trial> trials = makeTrials();
  const Trial *chosen = nullptr;
  for (const Trial &trial : trials) {
    if (apply(trial) && editor.areEditsValid() && sequence.excess() <= excess) {
      double freed = before - overload();
      auto slower = static_cast<double>(std::max<int64_t>(0, sequence.cost() - cost));
      // Among what hides, the shorter transfer; its time on the link may be wanted later.
      auto work = static_cast<double>(sequence.edits().size());
      if (trial.way >= 0)
        work += 1e-3 * static_cast<double>(graph.cost[graph.ways[trial.way].fetchStart]);
      if (double ratio = freed / (slower + 1e-3 * work + 1e-6); freed > 0 && ratio > bestRatio) {
        bestRatio = ratio;
        chosen = &trial;
      }
    }
    editor.undo();
  }
  if (!chosen)
    return false;
  apply(*chosen);
  editor.keep();
  return true;
}

Plan TransferEvictor::run() {
  int64_t stale = 0;
  std::vector<int32_t> before;
  while (sequence.peak() > budget && stale < 64 + graph.numOps / 4 &&
         sequence.size() < mostInstances(graph)) {
    if (!evictBest()) {
      // Out of empty slots, or of anything that helps: spread out once, then give up.
      std::vector<int32_t> now = sequence.order();
      if (now == before)
        break;
      before = std::move(now);
      editor.restart(before);
      continue;
    }
    ++stale;
    Plan now;
    now.peak = sequence.peak();
    now.cost = sequence.cost();
    now.excess = sequence.excess();
    if (now.betterThan(best, budget)) {
      now.order = sequence.order();
      best = std::move(now);
      stale = 0;
    }
  }
  return best;
}

Plan memopt::planning::search::evictByAllMeans(const Graph &graph, const Plan &start,
                                               int64_t budget, const EvictOptions &options) {
  return TransferEvictor(graph, start, budget, options).run();
}
