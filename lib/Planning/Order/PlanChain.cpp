//===- PlanChain.cpp - segments of the order, computed again as wholes ------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Chen et al. (2016) cut a training step into segments and keep only what crosses the cuts; rotor
// (Beaumont et al. 2019) chooses by dynamic programming, for a budget, which segments to keep whole
// and where to nest. Here the chain is read off any order: before a turning point lies what runs
// forward, cut where few bytes cross; behind it every op belongs to the earliest segment that it,
// or an op between, has read from.
//
//   Opt[a, b, m]: least cost to run segments a..b forward and their backward ops, with m bytes,
//   when what enters a is there:
//     keep a whole:  F[a] + Opt[a+1, b, m - kept(a)]
//     nest at j:     F[a..j-1] + Opt[j, b, m - crossing(j)] + Opt[a, j-1, m]
//
// The bytes are estimates, for values may reach across segments. The order that comes out is valid
// anyhow (all operands have run before) and is measured; the budget of the table is lowered by what
// it missed.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanStarts.h"

#include <algorithm>
#include <array>
#include <limits>

using namespace memopt::planning::search;

namespace {

class Chain {
public:
  Chain(const Graph &graph, llvm::ArrayRef<int32_t> order, int32_t turn, int32_t pieces);
  /// False when there is nothing to cut.
  bool usable() const { return numSegments >= 2; }
  /// An order for about this many bytes beside those that are alive throughout; empty if none.
  std::vector<int32_t> schedule(int64_t bytes);
  int64_t baseline = 0; ///< bytes alive at the turning point that no segment accounts for

private:
  static constexpr int32_t slots = 240;
  static constexpr float never = 1e30f;

  void cutSegments(int32_t turn, int32_t pieces);
  void estimate(int32_t turn);
  void assignBackward(int32_t turn);
  void fillTable(int64_t bytes);
  /// Opt[a, b, 0], with those of more bytes behind it.
  float *row(int32_t a, int32_t b) { return &table[(size_t(a) * numSegments + b) * (slots + 1)]; }
  int32_t slotsFor(int64_t bytes) const {
    return bytes <= 0 ? 0 : int32_t(std::min<int64_t>((bytes + unit - 1) / unit, slots + 1));
  }
  template <typename Offer> void forEachStep(int32_t a, int32_t b, Offer offer);
  void fillRow(int32_t a, int32_t b);
  int32_t chooseStep(int32_t a, int32_t b, int32_t m);
  void emit(int32_t a, int32_t b, int32_t m);
  void emitForward(int32_t segment);
  void emitBackward(int32_t segment);
  void dropDead();
  bool mayRepeat(int32_t action) const {
    return !graph.pinned[action] && graph.kind[action] == ActionKind::Plain;
  }

  const Graph &graph;
  std::vector<int32_t> order, position; ///< action by position and back
  std::vector<int32_t> lastUse;         ///< by value, a position
  std::vector<int32_t> lastForwardUse;  ///< by value, before the turning point
  int32_t numSteps = 0, numSegments = 0;
  std::vector<int32_t> cut;      ///< first position by segment, one past the end at the back
  std::vector<int32_t> backward; ///< first backward position by segment, descending
  std::vector<int64_t> kept, crossing, forwardRoom, backwardRoom;
  std::vector<float> forwardCost;
  std::array<float, slots + 1> free{}; ///< the cost of nothing, by bytes
  std::vector<float> table;            ///< rows of Opt by a and b
  int64_t unit = 1;
  std::vector<int32_t> result;
  std::vector<uint8_t> ran;
};

} // namespace

Chain::Chain(const Graph &graph, llvm::ArrayRef<int32_t> givenOrder, int32_t turn, int32_t pieces)
    : graph(graph), order(givenOrder.begin(), givenOrder.end()) {
  numSteps = order.size();
  position.resize(graph.numActions);
  for (int32_t at = 0; at < numSteps; ++at)
    position[order[at]] = at;
  lastUse.resize(graph.numResults);
  lastForwardUse.resize(graph.numResults);
  for (int32_t value = 0; value < graph.numResults; ++value) {
    int32_t last = position[graph.opOf[value]], forward = last;
    for (int32_t user : graph.users[value]) {
      last = std::max(last, position[user]);
      if (position[user] < turn)
        forward = std::max(forward, position[user]);
    }
    lastUse[value] = last;
    lastForwardUse[value] = forward;
  }
  cutSegments(turn, pieces);
  if (!usable())
    return;
  assignBackward(turn);
  estimate(turn);
}

/// Cuts of about equal kept bytes, each moved to where the fewest bytes cross.
void Chain::cutSegments(int32_t turn, int32_t pieces) {
  std::vector<int64_t> keptBy(turn + 1, 0), crossAt(turn + 1, 0);
  for (int32_t value = 0; value < graph.numResults; ++value) {
    int32_t at = position[graph.opOf[value]];
    if (at >= turn)
      continue;
    if (lastUse[value] >= turn)
      keptBy[at + 1] += graph.bytes[value];
    if (lastForwardUse[value] > at) {
      crossAt[at + 1] += graph.bytes[value];
      if (lastForwardUse[value] + 1 <= turn)
        crossAt[lastForwardUse[value] + 1] -= graph.bytes[value];
    }
  }
  for (int32_t at = 1; at <= turn; ++at) {
    keptBy[at] += keptBy[at - 1];
    crossAt[at] += crossAt[at - 1];
  }
  pieces = std::min(pieces, turn / 4);
  if (pieces < 2 || !keptBy[turn])
    return;
  cut.push_back(0);
  int32_t at = 1;
  for (int32_t piece = 0; piece < pieces; ++piece) {
    int32_t chosen = -1;
    double end = double(keptBy[turn]) * (piece + 1) / pieces;
    double middle = double(keptBy[turn]) * (piece + 0.5) / pieces;
    for (; at < turn && double(keptBy[at]) <= end; ++at)
      if (at > cut.back() && double(keptBy[at]) >= middle &&
          (chosen < 0 || crossAt[at] <= crossAt[chosen]))
        chosen = at;
    if (chosen > cut.back())
      cut.push_back(chosen);
  }
  numSegments = cut.size();
  cut.push_back(turn);
  for (int32_t segment = 0; segment < numSegments; ++segment)
    crossing.push_back(crossAt[cut[segment]]);
}

void Chain::assignBackward(int32_t turn) {
  // Which segment each forward position is in.
  std::vector<int32_t> segmentOf(turn);
  for (int32_t segment = 0; segment < numSegments; ++segment)
    std::fill(segmentOf.begin() + cut[segment], segmentOf.begin() + cut[segment + 1], segment);
  // Backward positions of a segment begin where the running minimum gets down to it. A value that
  // is read both early and late behind the turning point says little: only its first reader counts.
  std::vector<int32_t> need(numSteps, numSegments - 1);
  for (int32_t value = 0; value < graph.numResults; ++value) {
    int32_t made = position[graph.opOf[value]];
    if (made >= turn || !mayRepeat(graph.opOf[value]))
      continue;
    int32_t first = numSteps;
    for (int32_t user : graph.users[value])
      if (position[user] >= turn)
        first = std::min(first, position[user]);
    // Read by forward ops much later too: it belongs to those.
    int32_t segment = segmentOf[std::min(lastForwardUse[value], turn - 1)];
    if (first < numSteps)
      need[first] = std::min(need[first], segment);
  }
  backward.assign(numSegments + 1, numSteps);
  int32_t current = numSegments - 1;
  backward[current] = turn;
  for (int32_t at = turn; at < numSteps; ++at)
    while (need[at] < current)
      backward[--current] = at;
}

void Chain::estimate(int32_t turn) {
  kept.assign(numSegments, 0);
  forwardRoom.assign(numSegments, 0);
  backwardRoom.assign(numSegments, 0);
  forwardCost.assign(numSegments, 0);
  // Room: the most bytes alive at once of values of one side only.
  std::vector<int64_t> change(numSteps + 1, 0);
  for (int32_t value = 0; value < graph.numResults; ++value) {
    int32_t made = position[graph.opOf[value]];
    change[made] += graph.bytes[value];
    change[(made < turn ? lastForwardUse[value] : lastUse[value]) + 1] -= graph.bytes[value];
  }
  std::vector<int64_t> load(numSteps);
  int64_t alive = 0;
  for (int32_t at = 0; at < numSteps; ++at)
    load[at] = (alive += change[at]) + graph.workspaces[0][order[at]];
  int64_t accounted = 0;
  for (int32_t segment = 0; segment < numSegments; ++segment) {
    for (int32_t at = cut[segment]; at < cut[segment + 1]; ++at) {
      int32_t op = order[at];
      forwardRoom[segment] = std::max(forwardRoom[segment], load[at] - crossing[segment]);
      if (!mayRepeat(op))
        continue;
      forwardCost[segment] += float(graph.cost[op]);
      for (int32_t value : graph.makes[op])
        if (lastUse[value] >= turn)
          kept[segment] += graph.bytes[value];
    }
    accounted += kept[segment];
    int32_t end = segment ? backward[segment - 1] : numSteps;
    for (int32_t at = backward[segment]; at < end; ++at)
      backwardRoom[segment] = std::max(backwardRoom[segment], load[at]);
  }
  int64_t atTurn = 0;
  for (int32_t value = 0; value < graph.numResults; ++value)
    if (position[graph.opOf[value]] < turn && lastUse[value] >= turn)
      atTurn += graph.bytes[value];
  baseline = graph.resident + atTurn - accounted;
}

/// Calls offer(step, least, run, first, taken, second) for every first step of a..b: 0 keeps a
/// whole, j nests there. For m of at least `least` and `taken` slots it costs
/// run + first[m - taken] + second[m].
template <typename Offer> void Chain::forEachStep(int32_t a, int32_t b, Offer offer) {
  int32_t keeps = slotsFor(kept[a]);
  offer(0, keeps + slotsFor(backwardRoom[a]), forwardCost[a], a == b ? free.data() : row(a + 1, b),
        keeps, free.data());
  float run = 0;
  int32_t least = 0;
  for (int32_t j = a + 1; j <= b; ++j) {
    run += forwardCost[j - 1];
    least = std::max(least, slotsFor(forwardRoom[j - 1]));
    offer(j, least, run, row(j, b), slotsFor(crossing[j]), row(a, j - 1));
  }
}

/// Opt[a, b, m] for all m. All bytes of one step lie side by side, so that they are compared as
/// vectors.
void Chain::fillRow(int32_t a, int32_t b) {
  float *cost = row(a, b);
  std::fill_n(cost, slots + 1, never);
  forEachStep(a, b,
              [&](int32_t, int32_t least, float run, const float *first, int32_t taken,
                  const float *second) {
                // A sum with what is never possible is not below it, however far above.
                for (int32_t m = std::max(least, taken); m <= slots; ++m)
                  cost[m] = std::min(cost[m], run + first[m - taken] + second[m]);
              });
}

/// The first of the best first steps of a..b with m slots; -1 if nothing fits.
int32_t Chain::chooseStep(int32_t a, int32_t b, int32_t m) {
  float cost = never;
  int32_t choice = -1;
  forEachStep(a, b,
              [&](int32_t step, int32_t least, float run, const float *first, int32_t taken,
                  const float *second) {
                if (m < std::max(least, taken))
                  return;
                float total = run + first[m - taken] + second[m];
                if (total < cost) {
                  cost = total;
                  choice = step;
                }
              });
  return choice;
}

void Chain::fillTable(int64_t bytes) {
  unit = std::max<int64_t>(1, bytes / slots);
  table.resize(size_t(numSegments) * numSegments * (slots + 1));
  for (int32_t length = 0; length < numSegments; ++length)
    for (int32_t a = 0; a + length < numSegments; ++a)
      fillRow(a, a + length);
}

void Chain::emitForward(int32_t segment) {
  for (int32_t at = cut[segment]; at < cut[segment + 1]; ++at) {
    int32_t op = order[at];
    bool late = false;
    for (int32_t later : graph.behind[op])
      late |= ran[later];
    if (ran[op] && (!mayRepeat(op) || late))
      continue;
    ran[op] = true;
    result.push_back(op);
  }
}

void Chain::emitBackward(int32_t segment) {
  int32_t end = segment ? backward[segment - 1] : numSteps;
  for (int32_t at = backward[segment]; at < end; ++at) {
    ran[order[at]] = true;
    result.push_back(order[at]);
  }
}

void Chain::emit(int32_t a, int32_t b, int32_t m) {
  int32_t choice = chooseStep(a, b, m);
  if (choice <= 0) {
    emitForward(a);
    if (a < b)
      emit(a + 1, b, m - slotsFor(kept[a]));
    emitBackward(a);
    return;
  }
  for (int32_t segment = a; segment < choice; ++segment)
    emitForward(segment);
  emit(choice, b, m - slotsFor(crossing[choice]));
  emit(a, choice - 1, m);
}

/// Takes out instances whose results nobody reads before they are computed again.
void Chain::dropDead() {
  std::vector<uint8_t> wanted(graph.numValues, false); // read later, before a later instance
  std::vector<int32_t> left;
  std::vector<int32_t> first(graph.numActions, -1);
  for (size_t i = result.size(); i-- > 0;)
    first[result[i]] = i;
  for (size_t i = result.size(); i-- > 0;) {
    int32_t op = result[i];
    bool read = false;
    for (int32_t value : graph.makes[op]) {
      read |= wanted[value];
      wanted[value] = false;
    }
    // First instances stay where they are: they alone keep the given order.
    if (!read && size_t(first[op]) != i)
      continue;
    left.push_back(op);
    for (int32_t value : graph.inputs[op])
      wanted[value] = true;
  }
  std::reverse(left.begin(), left.end());
  result = std::move(left);
}

std::vector<int32_t> Chain::schedule(int64_t bytes) {
  if (bytes <= 0)
    return {};
  fillTable(bytes);
  auto all = static_cast<int32_t>(std::min<int64_t>(slots, bytes / unit));
  if (row(0, numSegments - 1)[all] >= never)
    return {};
  result.clear();
  ran.assign(graph.numActions, false);
  emit(0, numSegments - 1, all);
  dropDead();
  return result;
}

std::vector<int32_t> memopt::planning::search::turnsOf(const Graph &graph,
                                                       llvm::ArrayRef<int32_t> order) {
  int32_t steps = order.size();
  std::vector<int32_t> position(graph.numActions);
  for (int32_t at = 0; at < steps; ++at)
    position[order[at]] = at;
  std::vector<int64_t> bytes(steps + 1, 0), count(steps + 1, 0);
  for (int32_t value = 0; value < graph.numResults; ++value) {
    int32_t made = position[graph.opOf[value]], last = made;
    for (int32_t user : graph.users[value])
      last = std::max(last, position[user]);
    bytes[made + 1] += last > made ? graph.bytes[value] : 0;
    bytes[std::min(last + 1, steps)] -= last > made ? graph.bytes[value] : 0;
    count[made + 1] += last > made;
    count[std::min(last + 1, steps)] -= last > made;
  }
  for (int32_t at = 1; at <= steps; ++at) {
    bytes[at] += bytes[at - 1];
    count[at] += count[at - 1];
  }
  std::vector<int32_t> turns{int32_t(std::max_element(bytes.begin(), bytes.end()) - bytes.begin()),
                             int32_t(std::max_element(count.begin(), count.end()) - count.begin())};
  if (turns[0] == turns[1])
    turns.pop_back();
  return turns;
}

/// Where the table has nothing for a budget: what it has for the fewest bytes, between two numbers
/// of which it has something for the second alone. Nested deep, that may be very long.
static void searchLowest(const Graph &graph, Chain &chain, int64_t low, int64_t high,
                         int64_t budget, Plan &best) {
  for (int tries = 0; tries < 6 && low + 1 < high; ++tries) {
    int64_t bytes = low + (high - low) / 2;
    std::vector<int32_t> order = chain.schedule(bytes);
    if (order.empty() || static_cast<int64_t>(order.size()) > mostInstances(graph)) {
      low = bytes;
      continue;
    }
    if (!isValid(graph, order))
      return;
    high = bytes;
    Plan plan = planOf(graph, std::move(order));
    if (plan.betterThan(best, budget))
      best = std::move(plan);
  }
}

/// Finds the budget of the table that just meets the real one: the estimate misses some. Says
/// whether any plan met it; the best of all goes to `best`.
static bool searchBudget(const Graph &graph, Chain &chain, int64_t budget, Plan &best) {
  int64_t high = budget - chain.baseline, low = 0;
  bool met = false;
  for (int tries = 0; tries < 6; ++tries) {
    int64_t bytes = tries == 0 ? high : low + (high - low) / 2;
    std::vector<int32_t> order = chain.schedule(bytes);
    if (order.empty()) {
      if (tries == 0) {
        searchLowest(graph, chain, std::max<int64_t>(0, high), best.peak - chain.baseline, budget,
                     best);
        return false;
      }
      low = bytes;
      continue;
    }
    if (!isValid(graph, order))
      return met;
    Plan plan = planOf(graph, std::move(order));
    bool fits = plan.peak <= budget;
    met |= fits;
    if (plan.betterThan(best, budget))
      best = std::move(plan);
    if (fits && tries == 0)
      break;
    (fits ? low : high) = bytes;
  }
  return met;
}

Plan memopt::planning::search::segmentChain(const Graph &graph, const Plan &start, int64_t budget) {
  Plan best = start;
  if (!runsOnce(graph, start))
    return best;
  for (int32_t turn : turnsOf(graph, start.order)) {
    // Finer segments fit smaller budgets; the table grows with the cube of their number.
    for (int32_t pieces : {16, 48, 112}) {
      Chain chain(graph, start.order, turn, pieces);
      if (chain.usable() && searchBudget(graph, chain, budget, best) && pieces > 16)
        break;
    }
  }
  return best;
}
