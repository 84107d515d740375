//===- PlanChainCuts.cpp - a chain of segments, read off an order ---------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where to cut the forward pass, which backward ops belong to a segment, and what segments keep,
// need and cost: all that the dynamic program of PlanChain.cpp knows.
//
//===----------------------------------------------------------------------===//

#include "PlanChain.h"

using namespace memopt::planning::search;

Chain::Chain(const Graph &graph, llvm::ArrayRef<int32_t> givenOrder, int32_t turn, Cuts cuts)
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
  cutSegments(turn, cuts);
  if (numSegments < 2)
    return;
  madeAgain.assign(graph.numActions, false);
  isUsable = !cuts.makeAgain || findMadeAgain(turn);
  if (!isUsable)
    return;
  assignBackward(turn);
  measureCrossings(turn);
  estimate(turn);
}

/// By position up to the turning point: bytes in front of it that wait for the backward pass, and
/// bytes that the forward pass reads behind it.
void Chain::measurePositions(int32_t turn) {
  keptBy.assign(turn + 1, 0);
  crossAt.assign(turn + 1, 0);
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
}

/// Cuts of about equal kept bytes, each moved to where the fewest bytes cross.
std::vector<int32_t> Chain::cutEqually(int32_t turn, int32_t pieces) const {
  std::vector<int32_t> cuts{0};
  int32_t at = 1;
  for (int32_t piece = 0; piece < pieces; ++piece) {
    int32_t chosen = -1;
    double end = double(keptBy[turn]) * (piece + 1) / pieces;
    double middle = double(keptBy[turn]) * (piece + 0.5) / pieces;
    for (; at < turn && double(keptBy[at]) <= end; ++at)
      if (at > cuts.back() && double(keptBy[at]) >= middle &&
          (chosen < 0 || crossAt[at] <= crossAt[chosen]))
        chosen = at;
    if (chosen > cuts.back())
      cuts.push_back(chosen);
  }
  return cuts;
}

/// Cuts where fewer bytes cross than on either side, at most so many, those of the fewest bytes: in
/// a repeated structure they fall between its repetitions, however many there are.
std::vector<int32_t> Chain::cutAtMinima(int32_t turn, int32_t most) const {
  std::vector<int32_t> cuts;
  bool falls = false;
  for (int32_t at = 1; at < turn; ++at) {
    falls = crossAt[at] < crossAt[at - 1] || (falls && crossAt[at] == crossAt[at - 1]);
    if (falls && crossAt[at] < crossAt[at + 1] && keptBy[at] > 0)
      cuts.push_back(at);
  }
  auto crossesLess = [&](int32_t a, int32_t b) { return crossAt[a] < crossAt[b]; };
  if (static_cast<int32_t>(cuts.size()) >= most) {
    std::stable_sort(cuts.begin(), cuts.end(), crossesLess);
    cuts.resize(most - 1);
    std::sort(cuts.begin(), cuts.end());
  }
  cuts.insert(cuts.begin(), 0);
  return cuts;
}

void Chain::cutSegments(int32_t turn, Cuts cuts) {
  measurePositions(turn);
  int32_t pieces = std::min(cuts.pieces, turn / 4);
  if (pieces < 2 || !keptBy[turn])
    return;
  cut = cuts.atMinima ? cutAtMinima(turn, pieces) : cutEqually(turn, pieces);
  numSegments = cut.size();
  cut.push_back(turn);
}

/// Finds what is made from what is always there, is read in the forward pass alone and costs little
/// beside a segment: a cast or a transposition of an input, say. Each segment that reads it makes
/// it, so that it does not lie there beside all others. Says whether there is any.
bool Chain::findMadeAgain(int32_t turn) {
  constexpr double kShare = 0.25;
  double cost = 0;
  for (int32_t at = 0; at < turn; ++at)
    cost += double(graph.cost[order[at]]);
  bool any = false;
  for (int32_t at = 0; at < cut[1]; ++at) {
    int32_t op = order[at];
    auto isThere = [&](int32_t value) {
      return value >= graph.numResults || graph.pinned[graph.opOf[value]];
    };
    auto isForward = [&](int32_t value) { return lastUse[value] < turn; };
    auto reachesFar = [&](int32_t value) { return lastForwardUse[value] >= cut[1]; };
    madeAgain[op] = mayRepeat(op) && double(graph.cost[op]) * numSegments <= kShare * cost &&
                    llvm::all_of(graph.inputs[op], isThere) &&
                    llvm::all_of(graph.makes[op], isForward) &&
                    llvm::any_of(graph.makes[op], reachesFar);
    any |= madeAgain[op];
  }
  return any;
}

/// Whether nesting counts a value: what cannot be made again stays where it is.
bool Chain::crosses(int32_t value, int32_t turn) const {
  int32_t op = graph.opOf[value];
  return position[op] < turn && mayRepeat(op) && !madeAgain[op];
}

/// By position before the turning point.
std::vector<int32_t> Chain::getSegments(int32_t turn) const {
  std::vector<int32_t> segmentOf(turn);
  for (int32_t segment = 0; segment < numSegments; ++segment)
    std::fill(segmentOf.begin() + cut[segment], segmentOf.begin() + cut[segment + 1], segment);
  return segmentOf;
}

void Chain::measureCrossings(int32_t turn) {
  crossings.assign(size_t(numSegments) * numSegments, 0);
  std::vector<int32_t> segmentOf = getSegments(turn);
  for (int32_t value = 0; value < graph.numResults; ++value) {
    if (!crosses(value, turn))
      continue;
    int32_t made = segmentOf[position[graph.opOf[value]]],
            last = segmentOf[std::min(lastForwardUse[value], turn - 1)];
    for (int32_t j = made + 1; j <= last; ++j)
      crossing(made, j) += graph.bytes[value];
  }
  for (int32_t a = numSegments - 2; a >= 0; --a)
    for (int32_t j = a + 2; j < numSegments; ++j)
      crossing(a, j) += crossing(a + 1, j);
}

void Chain::assignBackward(int32_t turn) {
  std::vector<int32_t> segmentOf = getSegments(turn);
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
      forwardRoom[segment] = std::max(forwardRoom[segment], load[at] - crossing(0, segment));
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
