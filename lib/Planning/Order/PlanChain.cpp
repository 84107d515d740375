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
//     nest at j:     F[a..j-1] + Opt[j, b, m - crossing(a, j)] + Opt[a, j-1, m]
//
// What crosses j counts as far as it was made in a..j-1: the rest of it has entered a. The bytes
// are estimates, for values may reach across segments. The order that comes out is valid
// anyhow (all operands have run before) and is measured; the budget of the table is lowered by what
// it missed.
//
//===----------------------------------------------------------------------===//

#include "PlanChain.h"

using namespace memopt::planning::search;

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
    offer(j, least, run, row(j, b), slotsFor(crossing(a, j)), row(a, j - 1));
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

/// Runs `op`, again where it may.
void Chain::emitOp(int32_t op) {
  bool late = llvm::any_of(graph.behind[op], [&](int32_t later) { return ran[later]; });
  if (ran[op] && (!mayRepeat(op) || late))
    return;
  ran[op] = true;
  result.push_back(op);
}

void Chain::emitForward(int32_t segment) {
  std::vector<int32_t> made; // here, of what each segment makes
  for (int32_t at = cut[segment]; at < cut[segment + 1]; ++at) {
    for (int32_t value : graph.inputs[order[at]])
      if (int32_t op = value < graph.numResults ? graph.opOf[value] : -1;
          op >= 0 && madeAgain[op] && !llvm::is_contained(made, op)) {
        emitOp(op);
        made.push_back(op);
      }
    if (!llvm::is_contained(made, order[at]))
      emitOp(order[at]);
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
  emit(choice, b, m - slotsFor(crossing(a, choice)));
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
    for (bool makeAgain : {false, true})
      for (Cuts cuts : {Cuts{112, true, makeAgain}, Cuts{16, false, makeAgain},
                        Cuts{48, false, makeAgain}, Cuts{112, false, makeAgain}}) {
        Chain chain(graph, start.order, turn, cuts);
        if (chain.usable() && searchBudget(graph, chain, budget, best) && cuts.pieces > 16 &&
            !cuts.atMinima)
          break;
      }
  }
  return best;
}
