//===- RematSequence.cpp - an order with clones, edited in logarithmic time --===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RematSequence.h"

#include <algorithm>

using namespace memopt::planning::remat;

void Sequence::assign(llvm::ArrayRef<int32_t> order) {
  numSlots = 64;
  while (numSlots < int64_t(order.size() + 4) * 12)
    numSlots *= 2;
  ops.assign(numSlots, none);
  taken.assign(numSlots / 64, 0);
  made.assign(graph.numOps, {});
  used.assign(graph.numValues, {});
  tree.reset(numSlots);
  if (graph.hasInPlace)
    takenOver.assign(numSlots, 0);
  instances = 0;
  totalCost = 0;
  for (size_t i = 0; i < order.size(); ++i)
    insert(order[i], 1 + int64_t(i + 1) * (numSlots - 2) / int64_t(order.size() + 1));
}

std::vector<int32_t> Sequence::order() const {
  std::vector<int32_t> result;
  result.reserve(instances);
  for (size_t word = 0; word < taken.size(); ++word)
    for (uint64_t bits = taken[word]; bits; bits &= bits - 1)
      result.push_back(ops[word * 64 + __builtin_ctzll(bits)]);
  return result;
}

int32_t Sequence::nextTaken(int32_t slot) const {
  size_t word = size_t(slot + 1) / 64;
  if (word >= taken.size())
    return numSlots - 1;
  uint64_t bits = taken[word] & (~uint64_t(0) << ((slot + 1) % 64));
  while (!bits)
    if (++word == taken.size())
      return numSlots - 1;
    else
      bits = taken[word];
  return word * 64 + __builtin_ctzll(bits);
}

int32_t Sequence::previousTaken(int32_t slot) const {
  int32_t word = slot / 64;
  uint64_t bits = taken[word] & ~(~uint64_t(0) << (slot % 64));
  while (!bits)
    if (--word < 0)
      return 0;
    else
      bits = taken[word];
  return word * 64 + 63 - __builtin_clzll(bits);
}

/// The effect on the load of a use at `slot`, which is not in `used` now.
void Sequence::changeUse(int32_t value, int32_t slot, int64_t sign) {
  int32_t op = graph.opOf[value];
  int32_t instance = before(made[op], slot);
  if (instance == none || !graph.bytes[value])
    return;
  const Slots &uses = used[value];
  auto next = std::upper_bound(uses.begin(), uses.end(), slot);
  if (next != uses.end() && *next < after(made[op], slot))
    return; // alive beyond anyway
  int32_t end = instance;
  if (next != uses.begin())
    end = std::max(end, *std::prev(next));
  tree.add(end + 1, slot, sign * graph.bytes[value]);
}

/// The effect on the load of an instance at `slot`, which is not in `made` now.
void Sequence::changeInstance(int32_t op, int32_t slot, int64_t sign) {
  int32_t previous = before(made[op], slot), following = after(made[op], slot);
  int64_t here = graph.workspace[op];
  for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value) {
    int64_t bytes = graph.bytes[value];
    if (!bytes)
      continue;
    const Slots &uses = used[value];
    auto next = std::upper_bound(uses.begin(), uses.end(), slot);
    int32_t end = slot; // of the interval that begins here
    if (next != uses.end() && *next < following)
      end = std::min(following, numSlots) == numSlots
                ? uses.back()
                : *std::prev(std::lower_bound(next, uses.end(), following));
    if (previous == none || end == slot) {
      if (end == slot)
        here += bytes;
      else
        tree.add(slot, end, sign * bytes);
      continue;
    }
    // The earlier instance need not last until here.
    int32_t stop = previous;
    if (next != uses.begin())
      stop = std::max(stop, *std::prev(next));
    if (stop + 1 < slot)
      tree.add(stop + 1, slot - 1, -sign * bytes);
  }
  if (here)
    tree.add(slot, slot, sign * here);
}

void Sequence::refreshTakenOver(int32_t slot) {
  if (slot == none)
    return;
  int64_t now = 0;
  if (ops[slot] != none)
    now = graph.bytesTakenOver(ops[slot],
                               [&](int32_t operand) { return nextUse(operand, slot) == none; });
  if (now == takenOver[slot])
    return;
  tree.add(slot, slot, takenOver[slot] - now);
  takenOver[slot] = now;
}

/// An instance of `op` came to `slot` or went: what the uses before it may take over changes.
void Sequence::refreshAround(int32_t op, int32_t slot) {
  refreshTakenOver(slot);
  for (int32_t value : graph.inputs[op])
    if (graph.takeable[value])
      refreshTakenOver(before(used[value], slot));
  for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value)
    if (graph.takeable[value])
      refreshTakenOver(before(used[value], slot));
}

static void put(Sequence::Slots &slots, int32_t slot) {
  slots.insert(std::upper_bound(slots.begin(), slots.end(), slot), slot);
}

static void take(Sequence::Slots &slots, int32_t slot) {
  slots.erase(std::lower_bound(slots.begin(), slots.end(), slot));
}

void Sequence::insert(int32_t op, int32_t slot) {
  changeInstance(op, slot, 1);
  put(made[op], slot);
  for (int32_t value : graph.inputs[op]) {
    changeUse(value, slot, 1);
    put(used[value], slot);
  }
  ops[slot] = op;
  taken[slot / 64] |= uint64_t(1) << (slot % 64);
  ++instances;
  totalCost += graph.cost[op];
  if (graph.hasInPlace)
    refreshAround(op, slot);
}

void Sequence::erase(int32_t slot) {
  int32_t op = ops[slot];
  for (int32_t value : graph.inputs[op]) {
    take(used[value], slot);
    changeUse(value, slot, -1);
  }
  take(made[op], slot);
  changeInstance(op, slot, -1);
  ops[slot] = none;
  taken[slot / 64] &= ~(uint64_t(1) << (slot % 64));
  --instances;
  totalCost -= graph.cost[op];
  if (graph.hasInPlace)
    refreshAround(op, slot);
}
