//===- PlanAnneal.cpp - simulated annealing over orders with clones ---------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Moves, after FastSA (Imanishi and Xu, NeurIPS 2023):
//   evict     a value that is alive at the peak, but unused there or open to be written over, is
//             dropped there and computed again just before its next use, with those of its operands
//             that would have to be kept over the peak instead;
//   drop      an instance that an earlier one can stand in for goes, and what only it needed goes
//             too;
//   exchange  a drop, and evictions until the peak is back within the budget;
//   shift     an instance moves between its operands and its first use.
// Every move is a list of insertions and erasures, undone in reverse when it is refused.
//
//===----------------------------------------------------------------------===//

#include "PlanAnneal.h"
#include "SearchRandom.h"

#include <cmath>

using namespace memopt::planning;
using namespace memopt::planning::search;

namespace {

class Annealer {
public:
  Annealer(const Graph &graph, const Plan &start, const AnnealOptions &options)
      : graph(graph), options(options), random(options.seed), sequence(graph), best(start) {
    cloneIndex.assign(graph.numOps, -1);
    restart(start.order);
  }

  Plan run();

private:
  void restart(llvm::ArrayRef<int32_t> order) {
    sequence.assign(order);
    for (int32_t op = 0; op < graph.numOps; ++op)
      noteClones(op);
  }
  void insert(int32_t op, int32_t slot) {
    sequence.insert(op, slot);
    noteClones(op);
  }
  void erase(int32_t slot) {
    int32_t op = sequence.at(slot);
    sequence.erase(slot);
    noteClones(op);
  }
  void rollback() {
    sequence.undo([&](int32_t op) { noteClones(op); });
  }
  /// Keeps the list of ops with more than one instance.
  void noteClones(int32_t op) {
    bool cloned = sequence.instancesOf(op).size() > 1;
    int32_t &index = cloneIndex[op];
    if (cloned == (index >= 0))
      return;
    if (cloned) {
      index = clonedOps.size();
      clonedOps.push_back(op);
    } else {
      cloneIndex[clonedOps.back()] = index;
      clonedOps[index] = clonedOps.back();
      clonedOps.pop_back();
      index = -1;
    }
  }

  /// log(cost) plus what is above the budget, in relative terms.
  double objective() const {
    double budget = double(std::max<int64_t>(options.budget, 1));
    double over = std::max(1.0, double(sequence.peak()) / budget);
    return std::log(double(sequence.cost()) + 1) + (over > 1 ? peakWeight * std::log(over) : 0.0);
  }
  void adaptWeight(int64_t move);

  int32_t slotBefore(int32_t low, int32_t slot);
  int32_t slotBetween(int32_t low, int32_t high);
  bool cloneBefore(int32_t op, int32_t low, int32_t slot, int &chain);
  void eraseIfDead(int32_t op, int32_t slot);
  bool isDead(int32_t op, int32_t slot) const;
  bool evict();
  bool dropOne();
  bool exchange();
  bool shift(int32_t op, int32_t slot);
  bool shiftAny();
  bool shiftAcrossPeak();
  bool tryMove();
  void keepBest();
  bool improves() const {
    bool fits = sequence.peak() <= options.budget;
    if (fits != (best.peak <= options.budget))
      return fits;
    return fits ? sequence.cost() < best.cost : sequence.peak() < best.peak;
  }

  const Graph &graph;
  AnnealOptions options;
  SearchRandom random;
  Sequence sequence;
  Plan best;
  std::vector<int32_t> clonedOps, cloneIndex;
  bool crowded = false; ///< a move found no empty slot
  double peakWeight = 1;
  /// Moves since the weight was last looked at, and those of them that began above the budget.
  int64_t movesSeen = 0, movesOver = 0;
};

} // namespace

/// An empty slot in (low, slot), near `slot` with as few instances between as can be; none if there
/// is none.
int32_t Annealer::slotBefore(int32_t low, int32_t slot) {
  for (int tries = 0; tries < 4; ++tries) {
    int32_t previous = std::max(sequence.previousTaken(slot), low);
    if (slot - previous >= 2)
      return previous + (slot - previous) / 2;
    if (previous == low)
      break;
    slot = previous;
  }
  crowded = true;
  return Sequence::none;
}

/// A random empty slot in (low, high): often next to an end, where intervals are shortest.
int32_t Annealer::slotBetween(int32_t low, int32_t high) {
  if (high - low < 2)
    return Sequence::none;
  uint32_t kind = random.below(4);
  if (kind == 0)
    return slotBefore(low, high);
  if (kind == 1) {
    int32_t next = std::min(sequence.nextTaken(low), high);
    if (next - low >= 2)
      return low + (next - low) / 2;
    return Sequence::none;
  }
  int32_t slot = low + 1 + random.below(high - low - 1);
  for (int32_t at = slot; at < std::min(high, slot + 8); ++at)
    if (sequence.at(at) == Sequence::none)
      return at;
  return Sequence::none;
}

/// Computes `op` again in (low, slot), before its use at `slot`. `chain` is how many more clones
/// the move may make for operands that would otherwise be kept over `low`.
bool Annealer::cloneBefore(int32_t op, int32_t low, int32_t slot, int &chain) {
  int32_t target = slotBefore(low, slot);
  if (target == Sequence::none)
    return false;
  for (int32_t later : graph.behind[op])
    if (sequence.instancesOf(later).front() < target)
      return false;
  int32_t previous = sequence.lastBefore(op, target);
  insert(op, target);
  for (int32_t value : graph.inputs[op]) {
    int32_t producer = graph.opOf[value];
    if (chain <= 0)
      break;
    if (graph.pinned[producer] || !graph.bytes[value])
      continue;
    // Alive over `low` only because of us?
    if (sequence.nextUse(value, target) != Sequence::none ||
        sequence.endBefore(value, target) > low || sequence.lastBefore(producer, target) >= low)
      continue;
    if (!random.chance(0.7))
      continue;
    --chain;
    if (!cloneBefore(producer, low, target, chain))
      return false;
  }
  // What was computed before may now serve nobody.
  if (previous != Sequence::none)
    eraseIfDead(op, previous);
  return true;
}

/// No result of the instance is used, and the op runs elsewhere too.
bool Annealer::isDead(int32_t op, int32_t slot) const {
  if (sequence.instancesOf(op).size() < 2 ||
      (options.keepOrder && sequence.instancesOf(op).front() == slot))
    return false;
  for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
    if (sequence.nextUse(value, slot) != Sequence::none)
      return false;
  return true;
}

void Annealer::eraseIfDead(int32_t op, int32_t slot) {
  if (!isDead(op, slot))
    return;
  erase(slot);
  for (int32_t value : graph.inputs[op]) {
    int32_t producer = graph.opOf[value];
    int32_t instance = sequence.lastBefore(producer, slot);
    if (instance != Sequence::none)
      eraseIfDead(producer, instance);
  }
}

bool Annealer::evict() {
  int32_t peak = sequence.peakSlot();
  int32_t chosen = Sequence::none, chosenUse = 0;
  double chosenScore = -1;
  int wanted = 1 + random.below(3);
  for (int tries = 0; tries < 48 && wanted; ++tries) {
    int32_t value = random.below(graph.numValues), op = graph.opOf[value];
    if (!graph.bytes[value] || graph.pinned[op])
      continue;
    int32_t instance = sequence.lastBefore(op, peak);
    if (instance == Sequence::none || sequence.at(peak) == op)
      continue;
    int32_t use = sequence.nextUse(value, peak);
    if (use == Sequence::none)
      continue;
    if (!sequence.canLeave(value, peak))
      continue;
    --wanted;
    double score = double(graph.bytes[value]) / double(graph.cost[op] + 1);
    if (score > chosenScore) {
      chosenScore = score;
      chosen = value;
      chosenUse = use;
    }
  }
  if (chosen == Sequence::none)
    return false;
  static constexpr int lengths[] = {1, 4, 12};
  int chain = lengths[random.below(3)];
  return cloneBefore(graph.opOf[chosen], peak, chosenUse, chain);
}

bool Annealer::dropOne() {
  if (clonedOps.empty())
    return false;
  int32_t op = clonedOps[random.below(clonedOps.size())];
  llvm::ArrayRef<int32_t> instances = sequence.instancesOf(op);
  uint32_t which = random.below(instances.size());
  int32_t slot = instances[which];
  if (which == 0) {
    if (options.keepOrder)
      return false;
    for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
      if (sequence.nextUse(value, slot) != Sequence::none)
        return false;
    for (int32_t later : graph.behind[op])
      if (sequence.instancesOf(later).front() < instances[1])
        return false;
  }
  erase(slot);
  for (int32_t value : graph.inputs[op]) {
    int32_t producer = graph.opOf[value];
    int32_t instance = sequence.lastBefore(producer, slot);
    if (instance != Sequence::none)
      eraseIfDead(producer, instance);
  }
  return true;
}

bool Annealer::exchange() {
  if (!dropOne())
    return false;
  for (int round = 0; round < 3 && sequence.peak() > options.budget; ++round)
    if (!evict())
      return false;
  return true;
}

bool Annealer::shift(int32_t op, int32_t slot) {
  int32_t low = std::max(0, sequence.lastBefore(op, slot));
  int32_t high = std::min(sequence.slots() - 1, sequence.nextAfter(op, slot));
  for (int32_t value : graph.inputs[op])
    low = std::max(low, sequence.lastBefore(graph.opOf[value], slot));
  for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
    if (int32_t use = sequence.nextUse(value, slot); use != Sequence::none)
      high = std::min(high, use);
  for (int32_t earlier : graph.before[op])
    low = std::max(low, sequence.instancesOf(earlier).back());
  for (int32_t later : graph.behind[op])
    high = std::min(high, sequence.instancesOf(later).front());
  if (options.keepOrder && sequence.instancesOf(op).front() == slot) {
    if (op > 0)
      low = std::max(low, sequence.instancesOf(op - 1).front());
    if (op + 1 < graph.numOps)
      high = std::min(high, sequence.instancesOf(op + 1).front());
  }
  int32_t target = slotBetween(low, high);
  if (target == Sequence::none || target == slot)
    return false;
  erase(slot);
  insert(op, target);
  return true;
}

bool Annealer::shiftAny() {
  int32_t op = random.below(graph.numOps);
  llvm::ArrayRef<int32_t> instances = sequence.instancesOf(op);
  return shift(op, instances[random.below(instances.size())]);
}

/// Moves an op near the peak: the one that runs there, or one of its neighbours.
bool Annealer::shiftAcrossPeak() {
  int32_t slot = sequence.peakSlot();
  for (uint32_t steps = random.below(8); steps; --steps)
    slot = random.below(2) ? sequence.nextTaken(slot) : sequence.previousTaken(slot);
  if (slot <= 0 || slot >= sequence.slots() - 1 || sequence.at(slot) == Sequence::none)
    return false;
  return shift(sequence.at(slot), slot);
}

bool Annealer::tryMove() {
  uint32_t dice = random.below(100);
  if (!options.recompute)
    return dice < 50 ? shiftAny() : shiftAcrossPeak();
  if (sequence.peak() > options.budget) {
    if (dice < 55)
      return evict();
    if (dice < 75)
      return dropOne();
    return dice < 88 ? shiftAny() : shiftAcrossPeak();
  }
  if (dice < 15)
    return evict();
  if (dice < 45)
    return dropOne();
  if (dice < 65)
    return exchange();
  return dice < 88 ? shiftAny() : shiftAcrossPeak();
}

void Annealer::keepBest() {
  best.order = sequence.order();
  best.peak = sequence.peak();
  best.cost = sequence.cost();
}

/// Where one percent less peak costs more than one percent, the search would come to rest above the
/// budget: the weight of the peak grows until it does not.
void Annealer::adaptWeight(int64_t move) {
  int64_t block = std::max<int64_t>(options.moves / 256, 64);
  if (!options.recompute || movesSeen < block || move < options.moves / 4)
    return;
  if (movesOver * 10 > movesSeen * 9)
    peakWeight = std::min(64.0, peakWeight * 1.15);
  else if (movesOver * 10 < movesSeen)
    peakWeight = std::max(1.0, peakWeight / 1.15);
  movesOver = movesSeen = 0;
}

Plan Annealer::run() {
  double current = objective();
  double temperature = options.hot;
  const int64_t period = 64;
  double cooling =
      std::pow(options.cold, double(period) / double(std::max<int64_t>(options.moves, 1)));
  bool unsaved = false; // the sequence is better than `best`, which is copied before it changes
  int64_t sinceRespace = 0;
  int64_t nextPeriod = 0;
  for (int64_t move = 0; move < options.moves; ++sinceRespace) {
    if (move >= nextPeriod) {
      nextPeriod = move / period * period + period;
      temperature *= cooling;
      double weight = peakWeight;
      adaptWeight(move / period * period);
      if (weight != peakWeight)
        current = objective();
    }
    ++movesSeen;
    movesOver += sequence.peak() > options.budget;
    if (unsaved) {
      keepBest();
      unsaved = false;
      if (best.peak <= options.budget && best.cost <= options.costBound)
        break;
    }
    bool changed = tryMove();
    // Long chains of clones count as several moves: the options then stand for time.
    move += 1 + int64_t(sequence.edits().size() / 4);
    if (changed) {
      double next = objective();
      if (next > current && random.unit() >= std::exp((current - next) / temperature)) {
        rollback();
      } else {
        current = next;
        sequence.keep();
        unsaved = improves();
      }
    } else {
      rollback();
    }
    if ((crowded && sinceRespace > 8 * sequence.size()) || sequence.nearlyFull()) {
      if (unsaved)
        keepBest();
      unsaved = false;
      restart(sequence.order());
      sinceRespace = 0;
      crowded = false;
    }
  }
  if (unsaved)
    keepBest();
  return best;
}

Plan memopt::planning::search::planOf(const Graph &graph, std::vector<int32_t> order) {
  Sequence sequence(graph);
  sequence.assign(order);
  return {std::move(order), sequence.peak(), sequence.cost()};
}

Plan memopt::planning::search::anneal(const Graph &graph, const Plan &start,
                                      const AnnealOptions &options) {
  if (!graph.numOps)
    return start;
  return Annealer(graph, start, options).run();
}
