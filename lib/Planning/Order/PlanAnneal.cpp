//===- PlanAnneal.cpp - simulated annealing over plans -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Moves, after FastSA (Imanishi and Xu, NeurIPS 2023):
//   evict     a value that is alive at the peak, but unused there or open to be written over, is
//             dropped there and had again just before its next use: computed, with those of its
//             operands that would have to be kept over the peak instead, or fetched;
//   drop      an instance that an earlier one can stand in for goes, and what only it needed goes
//             too;
//   exchange  a drop, and evictions until the peak is back within the budget;
//   flip      a value that is computed again is fetched, or the other way round;
//   shift     an instance moves between its operands and its first use; starts and waits too.
// Every move is a list of insertions and erasures, undone in reverse when it is refused.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanAnneal.h"
#include "PlanEditor.h"
#include "memopt/Planning/Order/PlanStarts.h"
#include "memopt/Planning/Simulation/PlanSequence.h"

#include <cmath>

using namespace memopt::planning;
using namespace memopt::planning::search;

namespace {

class Annealer {
public:
  Annealer(const Graph &graph, const Plan &start, const AnnealOptions &options)
      : graph(graph), options(options), random(options.seed),
        editor(graph, options.keepOrder, /*reach=*/4), sequence(editor.get()), best(start) {
    editor.restart(start.order);
    for (int32_t value = 0; value < graph.numResults; ++value)
      mayBeHadAgain.push_back(
          graph.bytes[value] &&
          (mayRunAgain(graph.opOf[value]) || (options.transfer && !graph.waysTo[value].empty())));
  }

  Plan run();

private:
  double objective() const;
  bool isOver() const {
    return sequence.peak() > options.budget || (graph.numSpaces > 1 && sequence.excess());
  }
  void adaptWeight(int64_t move);

  /// Whether anything may be had more than once.
  bool clones() const { return options.recompute || (options.transfer && graph.hasStarts); }
  bool mayRunAgain(int32_t op) const {
    return !graph.pinned[op] &&
           (graph.kind[op] == ActionKind::Start ? options.transfer : options.recompute);
  }
  int32_t slotBetween(int32_t low, int32_t high);
  int32_t someStart(int32_t low, int32_t use);
  bool cloneBefore(int32_t op, int32_t low, int32_t slot, int &chain);
  bool haveAgain(int32_t value, int32_t low, int32_t use, int32_t other = Sequence::none);
  bool evict();
  bool drop(int32_t action, size_t which);
  bool dropOne();
  bool exchange();
  bool flip();
  int32_t lowestSlot(int32_t action, int32_t slot) const;
  int32_t highestSlot(int32_t action, int32_t slot) const;
  void count(int32_t action);
  bool shift(int32_t action, int32_t slot);
  bool shiftAny();
  bool shiftAcrossPeak();
  bool tryMove();
  void keepBest();
  bool improves() const;

  const Graph &graph;
  AnnealOptions options;
  SearchRandom random;
  Editor editor;
  const Sequence &sequence;
  std::vector<uint8_t> mayBeHadAgain; ///< by result
  Plan best;
  double peakWeight = 1;
  /// Moves since the weight was last looked at, and those of them that began above the budget.
  int64_t movesSeen = 0, movesOver = 0;
  /// Moves that the one on its way counts as, beside itself, for the lists it goes through.
  int64_t extraMoves = 0;
};

} // namespace

/// log(cost) plus what is above the budgets, in relative terms.
double Annealer::objective() const {
  double sum = std::log(double(sequence.cost()) + 1);
  for (int32_t space = 0; space < graph.numSpaces; ++space) {
    int64_t limit = space ? graph.budgets[space] : options.budget;
    double over = double(sequence.peak(space)) / double(std::max<int64_t>(limit, 1));
    if (over > 1)
      sum += peakWeight * std::log(over);
  }
  return sum;
}

bool Annealer::improves() const {
  Plan now;
  now.peak = sequence.peak();
  now.cost = sequence.cost();
  now.excess = graph.numSpaces > 1 ? sequence.excess() : 0;
  bool fits = now.fits(options.budget);
  if (fits != best.fits(options.budget))
    return fits;
  return fits ? now.cost < best.cost : now.over(options.budget) < best.over(options.budget);
}

//===----------------------------------------------------------------------===//
// Having values again
//===----------------------------------------------------------------------===//

/// A random empty slot in (low, high): often next to an end, where intervals are shortest.
int32_t Annealer::slotBetween(int32_t low, int32_t high) {
  if (high - low < 2)
    return Sequence::none;
  uint32_t kind = random.below(4);
  if (kind == 0)
    return editor.slotBefore(low, high);
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

/// Where a transfer begins that is to be done before `use`: right in front of its wait or earlier.
int32_t Annealer::someStart(int32_t low, int32_t use) {
  return use - low > 4 && random.below(4) ? low + 2 + random.below(use - low - 2) : Sequence::none;
}

/// Computes `op` again in (low, slot), before its use at `slot`. `chain` is how many more clones
/// the move may make for operands that would otherwise be kept over `low`.
bool Annealer::cloneBefore(int32_t op, int32_t low, int32_t slot, int &chain) {
  count(op);
  bool isStart = graph.kind[op] == ActionKind::Start;
  int32_t target = editor.runBefore(op, low, slot, isStart ? someStart(low, slot) : Sequence::none);
  if (target == Sequence::none)
    return false;
  int32_t previous = sequence.lastBefore(op, target);
  for (int32_t value : graph.inputs[op]) {
    int32_t producer = graph.opOf[value];
    if (chain <= 0)
      break;
    if (!mayRunAgain(producer) || !graph.bytes[value])
      continue;
    // Alive over `low` only because of us?
    int32_t server = sequence.serverOf(value, target);
    if (sequence.nextUse(value, target) != Sequence::none ||
        sequence.endBefore(value, target) > low || server >= low)
      continue;
    if (!random.chance(0.7))
      continue;
    --chain;
    if (!cloneBefore(producer, low, target, chain))
      return false;
  }
  // What was computed before may now serve nobody.
  if (previous != Sequence::none)
    editor.eraseIfDead(op, previous);
  return true;
}

/// Has a value again before `use`: by running its op or by one of its ways, but not by `other`, an
/// action.
bool Annealer::haveAgain(int32_t value, int32_t low, int32_t use, int32_t other) {
  int32_t op = graph.opOf[value];
  llvm::ArrayRef<int32_t> ways = graph.waysTo[value];
  bool mayRun = mayRunAgain(op) && op != other;
  if (!ways.empty() && options.transfer && (!mayRun || random.below(2))) {
    int32_t way = ways[random.below(ways.size())];
    return graph.ways[way].fetchStart != other &&
           editor.fetchBefore(way, low, use, someStart(low, use));
  }
  if (!mayRun)
    return false;
  static constexpr int lengths[] = {1, 4, 12};
  int chain = lengths[random.below(3)];
  return cloneBefore(op, low, use, chain);
}

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

bool Annealer::evict() {
  if (!graph.numResults)
    return false;
  int32_t peak = sequence.peakSlot();
  int32_t chosen = Sequence::none, chosenUse = 0;
  double chosenScore = -1;
  int wanted = 1 + random.below(3);
  for (int tries = 0; tries < 48 && wanted; ++tries) {
    int32_t value = random.below(graph.numResults);
    if (!mayBeHadAgain[value] || sequence.at(peak) == graph.opOf[value])
      continue;
    int32_t use = sequence.nextUse(value, peak);
    if (use == Sequence::none || sequence.serverOf(value, peak) == Sequence::none ||
        !sequence.canLeave(value, peak) || graph.kind[sequence.at(use)] == ActionKind::Wait)
      continue;
    --wanted;
    double score = double(graph.bytes[value]) / double(graph.cost[graph.opOf[value]] + 1);
    if (score > chosenScore) {
      chosenScore = score;
      chosen = value;
      chosenUse = use;
    }
  }
  return chosen != Sequence::none && haveAgain(chosen, peak, chosenUse);
}

/// Takes out an instance of an action of which there are enough; one whose values nobody has had
/// before stays.
bool Annealer::drop(int32_t action, size_t which) {
  llvm::ArrayRef<int32_t> instances = sequence.instancesOf(action);
  int32_t slot = instances[which];
  if (which == 0 && action < graph.numOps) {
    if (!editor.isDead(action, slot))
      return false;
    for (int32_t later : graph.behind[action])
      if (sequence.instancesOf(later).front() < instances[1])
        return false;
  }
  editor.eraseWithOperands(slot);
  return true;
}

bool Annealer::dropOne() {
  if (editor.spare().empty())
    return false;
  int32_t action = editor.spare()[random.below(editor.spare().size())];
  return drop(action, random.below(sequence.instancesOf(action).size()));
}

bool Annealer::exchange() {
  if (!dropOne())
    return false;
  for (int round = 0; round < 3 && isOver(); ++round)
    if (!evict())
      return false;
  return true;
}

bool Annealer::flip() {
  if (editor.spare().empty())
    return false;
  int32_t action = editor.spare()[random.below(editor.spare().size())];
  size_t which = random.below(sequence.instancesOf(action).size());
  int32_t slot = sequence.instancesOf(action)[which];
  for (int32_t value : graph.makes[action]) {
    int32_t use = sequence.nextUse(value, slot);
    if (use != Sequence::none && sequence.at(use) == graph.partner[action])
      use = sequence.nextUse(value, use);
    if (use == Sequence::none || value >= graph.numResults || graph.waysTo[value].empty())
      continue;
    if (!drop(action, which))
      return false;
    // It was not needed between its last use and here.
    return haveAgain(value, std::max(0, sequence.endBefore(value, slot)), use, action);
  }
  return false;
}

/// An edit goes through all that an action reads and makes. One of a thousand operands stands at
/// the peak more often than not: were its edits as cheap as others, time would grow with the square
/// of the graph.
void Annealer::count(int32_t action) {
  constexpr int64_t kFew = 32, kLikeOneMove = 8;
  auto values = static_cast<int64_t>(graph.inputs[action].size() + graph.makes[action].size());
  extraMoves += std::max<int64_t>(0, values - kFew) / kLikeOneMove;
}

/// The slots between which an instance may move: behind what it uses and what must come earlier.
int32_t Annealer::lowestSlot(int32_t action, int32_t slot) const {
  int32_t low = std::max(0, sequence.lastBefore(action, slot));
  if (graph.partner[action] >= 0)
    low = std::max(low, sequence.lastBefore(graph.partner[action], slot));
  for (int32_t value : graph.inputs[action]) {
    int32_t server = sequence.serverOf(value, slot);
    low = std::max(low, server);
    if (int32_t maker = sequence.at(server);
        graph.kind[maker] == ActionKind::Start && graph.partner[maker] != action)
      low = std::max(low, sequence.nextAfter(graph.partner[maker], server));
  }
  for (int32_t earlier : graph.before[action])
    if (llvm::ArrayRef<int32_t> instances = sequence.instancesOf(earlier); !instances.empty())
      low = std::max(low, instances.back());
  return low;
}

/// In front of what uses it and of what must come later.
int32_t Annealer::highestSlot(int32_t action, int32_t slot) const {
  int32_t high = std::min(sequence.slots() - 1, sequence.nextAfter(action, slot));
  if (int32_t partner = graph.partner[action]; partner >= 0) {
    high = std::min(high, sequence.nextAfter(partner, slot));
    // What a start makes is used behind its wait.
    if (graph.kind[action] == ActionKind::Wait)
      for (int32_t value : graph.makes[partner])
        if (int32_t use = sequence.nextUse(value, slot); use != Sequence::none)
          high = std::min(high, use);
  }
  for (int32_t value : graph.makes[action])
    if (int32_t use = sequence.nextUse(value, slot); use != Sequence::none)
      high = std::min(high, use);
  for (int32_t later : graph.behind[action])
    if (llvm::ArrayRef<int32_t> instances = sequence.instancesOf(later); !instances.empty())
      high = std::min(high, instances.front());
  return high;
}

bool Annealer::shift(int32_t action, int32_t slot) {
  if (graph.kind[action] == ActionKind::Enter || graph.kind[action] == ActionKind::Leave)
    return false;
  count(action);
  int32_t low = lowestSlot(action, slot), high = highestSlot(action, slot);
  if (options.keepOrder && action < graph.numOps && sequence.instancesOf(action).front() == slot) {
    if (action > 0)
      low = std::max(low, sequence.instancesOf(action - 1).front());
    if (action + 1 < graph.numOps)
      high = std::min(high, sequence.instancesOf(action + 1).front());
  }
  int32_t target = slotBetween(low, high);
  if (target == Sequence::none || target == slot)
    return false;
  editor.erase(slot);
  editor.insert(action, target);
  return true;
}

bool Annealer::shiftAny() {
  // Most transfers do not stand in the plan.
  if (!graph.ways.empty()) {
    int32_t slot = sequence.nextTaken(random.below(sequence.slots() - 1));
    return slot < sequence.slots() - 1 && shift(sequence.at(slot), slot);
  }
  int32_t action = random.below(graph.numActions);
  llvm::ArrayRef<int32_t> instances = sequence.instancesOf(action);
  return shift(action, instances[random.below(instances.size())]);
}

/// Moves an action near the peak: the one that runs there, or one of its neighbours.
bool Annealer::shiftAcrossPeak() {
  int32_t slot = sequence.peakSlot();
  for (uint32_t steps = random.below(8); steps; --steps)
    slot = random.below(2) ? sequence.nextTaken(slot) : sequence.previousTaken(slot);
  if (slot <= 0 || slot >= sequence.slots() - 1 || sequence.at(slot) == Sequence::none)
    return false;
  return shift(sequence.at(slot), slot);
}

bool Annealer::tryMove() {
  if (!graph.ways.empty() && options.transfer && random.below(8) == 0)
    return flip();
  uint32_t dice = random.below(100);
  if (!clones())
    return dice < 50 ? shiftAny() : shiftAcrossPeak();
  if (graph.numSpaces > 1 && sequence.excess() && dice < 50)
    return dropOne();
  if (isOver()) {
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

//===----------------------------------------------------------------------===//
// The search
//===----------------------------------------------------------------------===//

void Annealer::keepBest() {
  best.order = sequence.order();
  best.peak = sequence.peak();
  best.cost = sequence.cost();
  best.excess = sequence.excess();
}

/// Where one percent less peak costs more than one percent, the search would come to rest above the
/// budget: the weight of the peak grows until it does not.
void Annealer::adaptWeight(int64_t move) {
  int64_t block = std::max<int64_t>(options.moves / 256, 64);
  if (!clones() || movesSeen < block || move < options.moves / 4)
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
      for (; nextPeriod <= move; nextPeriod += period)
        temperature *= cooling;
      double weight = peakWeight;
      adaptWeight(move / period * period);
      if (weight != peakWeight)
        current = objective();
    }
    ++movesSeen;
    movesOver += isOver();
    if (unsaved) {
      keepBest();
      unsaved = false;
      if (best.fits(options.budget) && best.cost <= options.costBound)
        break;
    }
    bool changed = tryMove() && editor.areEditsValid();
    // Long chains of clones and actions with many operands count as several moves: the options then
    // stand for time.
    move += 1 + int64_t(sequence.edits().size() / 4) + extraMoves;
    extraMoves = 0;
    if (changed) {
      double next = objective();
      if (next > current && random.unit() >= std::exp((current - next) / temperature)) {
        editor.undo();
      } else {
        current = next;
        editor.keep();
        unsaved = improves();
      }
    } else {
      editor.undo();
    }
    if ((editor.crowded && sinceRespace > 8 * sequence.size()) || sequence.nearlyFull()) {
      if (unsaved)
        keepBest();
      unsaved = false;
      editor.restart(sequence.order());
      sinceRespace = 0;
      editor.crowded = false;
    }
  }
  if (unsaved)
    keepBest();
  return best;
}

Plan memopt::planning::search::anneal(const Graph &graph, const Plan &start,
                                      const AnnealOptions &options) {
  if (!graph.numOps)
    return start;
  return polish(graph, Annealer(graph, start, options).run(), options.budget, options.keepOrder);
}
