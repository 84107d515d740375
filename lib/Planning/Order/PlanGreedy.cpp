//===- PlanGreedy.cpp - greedy eviction --------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanEditor.h"
#include "memopt/Planning/Order/PlanStarts.h"
#include "memopt/Planning/Simulation/PlanSequence.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace memopt::planning::search;

namespace {

class Evictor {
public:
  Evictor(const Graph &graph, const Plan &start, int64_t budget, const EvictOptions &options)
      : graph(graph), budget(budget), options(options),
        editor(graph, options.keepOrder, /*reach=*/graph.numActions), sequence(editor.get()),
        best(start), spanOf(graph.numValues, -1) {
    for (int32_t value = 0; value < graph.numResults; ++value)
      if (int32_t op = graph.opOf[value];
          graph.bytes[value] && !graph.pinned[op] && graph.kind[op] == ActionKind::Plain) {
        spanOf[value] = static_cast<int32_t>(evictable.size());
        evictable.push_back(value);
      }
    restart(start.order);
  }

  Plan run();

private:
  /// What it takes to compute a value again before `slot` instead of keeping it over the peak.
  struct Price {
    int64_t cost = 0;
    int64_t kept = 0; ///< bytes of operands that are kept over the peak for it
    int32_t clones = 0;
  };
  struct Candidate {
    int32_t value, use; ///< its next use, a slot
    double score = 0;
  };
  /// Slots between two neighbouring events of a value, its instances and its uses.
  struct Gap {
    int32_t begin = 0, end = 0;   ///< the events; the same where none are known
    int32_t use = Sequence::none; ///< the end if it reads what is alive in the gap
  };
  void restart(llvm::ArrayRef<int32_t> order);
  void noteEdits();
  Gap gapAround(int32_t value, int32_t slot) const;
  int32_t useBehind(size_t span, int32_t peak);
  bool estimate(int32_t op, int32_t peak, int32_t slot, int64_t worth, int depth,
                Price &price) const;
  void collectCandidates(int32_t peak);
  double scoreOf(const Candidate &candidate, int32_t peak) const;
  bool evictBest(int32_t peak);
  bool clone(int32_t op, int32_t peak, int32_t slot, int64_t worth, int depth);
  bool mayClone(int32_t op, int32_t slot) const {
    return !graph.pinned[op] && graph.kind[op] == ActionKind::Plain && !editor.isTooLate(op, slot);
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

  static constexpr int maxDepth = 8, maxClones = 24, maxAttempts = 8;
  static constexpr size_t maxCandidates = 400;
  const Graph &graph;
  int64_t budget;
  EvictOptions options;
  Editor editor;
  const Sequence &sequence;
  Plan best;
  std::vector<int32_t> evictable; ///< results that have bytes and may be computed again
  std::vector<int32_t> spanOf;    ///< by value: its number among those, or -1
  /// By evictable value: slots before which it is not made and behind which it is not read.
  std::vector<int32_t> firstMade, lastRead;
  std::vector<Gap> gaps; ///< by evictable value: where a peak stood last
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

bool Evictor::clone(int32_t op, int32_t peak, int32_t slot, int64_t worth, int depth) {
  int32_t target = editor.runBefore(op, peak, slot);
  if (target == Sequence::none)
    return false;
  int32_t previous = sequence.lastBefore(op, target);
  for (int32_t value : graph.inputs[op])
    if (stretches(value, peak, target) && !mustKeep(value, target, worth, depth) &&
        !clone(graph.opOf[value], peak, target, worth, depth + 1))
      return false;
  if (previous != Sequence::none)
    editor.eraseIfDead(op, previous);
  return true;
}

void Evictor::restart(llvm::ArrayRef<int32_t> order) {
  editor.restart(order);
  firstMade.clear();
  lastRead.clear();
  gaps.assign(evictable.size(), {});
  for (int32_t value : evictable) {
    llvm::ArrayRef<int32_t> uses = sequence.usesOf(value);
    firstMade.push_back(sequence.instancesOf(graph.opOf[value]).front());
    lastRead.push_back(uses.empty() ? Sequence::none : uses.back());
  }
}

/// Clones stand behind the first instance of their op, and may read later than anything before.
void Evictor::noteEdits() {
  for (const Sequence::Edit &edit : sequence.edits())
    for (llvm::ArrayRef<int32_t> values : {graph.inputs[edit.action], graph.makes[edit.action]})
      for (int32_t value : values) {
        int32_t span = spanOf[value];
        if (span < 0)
          continue;
        gaps[span] = {};
        if (edit.inserted && graph.opOf[value] != edit.action)
          lastRead[span] = std::max(lastRead[span], edit.slot);
      }
}

/// Empty where the value is made or read at `slot` itself.
Evictor::Gap Evictor::gapAround(int32_t value, int32_t slot) const {
  llvm::ArrayRef<int32_t> made = sequence.instancesOf(graph.opOf[value]),
                          uses = sequence.usesOf(value);
  const int32_t *nextMade = llvm::lower_bound(made, slot), *nextUse = llvm::lower_bound(uses, slot);
  Gap gap{Sequence::none, sequence.slots(), Sequence::none};
  if (nextMade != made.begin())
    gap.begin = nextMade[-1];
  if (nextUse != uses.begin())
    gap.begin = std::max(gap.begin, nextUse[-1]);
  if (nextMade != made.end())
    gap.end = *nextMade;
  if (nextUse != uses.end() && *nextUse < gap.end) {
    gap.end = *nextUse;
    if (nextMade != made.begin())
      gap.use = gap.end;
  }
  return gap.end == slot ? Gap() : gap;
}

/// The next use of a value that is alive over the peak and could be left out there, or none.
int32_t Evictor::useBehind(size_t span, int32_t peak) {
  int32_t value = evictable[span];
  Gap &gap = gaps[span];
  if (!graph.numRegions && !(gap.begin < peak && peak < gap.end))
    gap = gapAround(value, peak);
  if (gap.begin < peak && peak < gap.end)
    return gap.use;
  if (sequence.at(peak) == graph.opOf[value] || sequence.serverOf(value, peak) == Sequence::none ||
      !sequence.canLeave(value, peak))
    return Sequence::none;
  return sequence.nextUse(value, peak);
}

/// Values that could go at `peak`; of very many an evenly spread part, another one each time.
void Evictor::collectCandidates(int32_t peak) {
  candidates.clear();
  int32_t following = sequence.nextTaken(peak);
  for (size_t span = 0; span < evictable.size(); ++span) {
    // Most lie on one side of the peak.
    if (firstMade[span] >= peak || lastRead[span] <= peak)
      continue;
    int32_t use = useBehind(span, peak);
    if (use != Sequence::none && following != use && mayClone(graph.opOf[evictable[span]], use))
      candidates.push_back({evictable[span], use});
  }
  size_t stride = candidates.size() / maxCandidates + 1, kept = 0;
  for (size_t at = turn++ % stride; at < candidates.size(); at += stride)
    candidates[kept++] = candidates[at];
  candidates.resize(kept);
}

/// Bytes freed, for as long as they are, by what it costs; 0 if it does not help.
double Evictor::scoreOf(const Candidate &candidate, int32_t peak) const {
  int64_t bytes = graph.bytes[candidate.value];
  Price price;
  if (!estimate(graph.opOf[candidate.value], peak, candidate.use, bytes, 0, price))
    return 0;
  double gap = candidate.use - sequence.endBefore(candidate.value, peak);
  return double(bytes - price.kept) * gap / (double(price.cost) + 1e-3);
}

bool Evictor::evictBest(int32_t peak) {
  collectCandidates(peak);
  for (Candidate &candidate : candidates)
    candidate.score = scoreOf(candidate, peak);
  // Outside plain graphs an edit may turn out to be invalid.
  int attempts = graph.isPlain() ? 1 : maxAttempts;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    auto chosen =
        std::max_element(candidates.begin(), candidates.end(),
                         [](const Candidate &a, const Candidate &b) { return a.score < b.score; });
    if (chosen == candidates.end() || chosen->score <= 0)
      return false;
    bool done = clone(graph.opOf[chosen->value], peak, chosen->use, graph.bytes[chosen->value], 0);
    if (graph.isPlain() || (done && editor.areEditsValid()))
      return done;
    editor.undo();
    chosen->score = 0;
  }
  return false;
}

Plan Evictor::run() {
  int64_t stale = 0;
  std::vector<int32_t> before;
  while (sequence.peak() > budget && stale < 64 + graph.numOps / 4 &&
         sequence.size() < mostInstances(graph)) {
    int32_t peak = sequence.peakSlot();
    if (!evictBest(peak)) {
      // Out of empty slots, or of anything that helps: spread out once, then give up.
      std::vector<int32_t> now = sequence.order();
      if (now == before)
        break;
      before = std::move(now);
      restart(before);
      continue;
    }
    noteEdits();
    editor.keep();
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

Plan memopt::planning::search::evictGreedily(const Graph &graph, const Plan &start, int64_t budget,
                                             const EvictOptions &options) {
  if (options.transfer && graph.hasStarts)
    return evictByAllMeans(graph, start, budget, options);
  return options.recompute ? Evictor(graph, start, budget, options).run() : start;
}
