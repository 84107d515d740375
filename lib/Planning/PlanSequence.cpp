//===- PlanSequence.cpp - an order with clones, quick to edit ----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanSequence.h"

#include <algorithm>

using namespace memopt::planning::search;

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
  keep();
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

/// The effect of a use at `slot`, which is not in `used` now.
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
  tree.release(end, -sign * graph.bytes[value]);
  tree.release(slot, sign * graph.bytes[value]);
}

/// The effect of an instance at `slot`, which is not in `made` now.
void Sequence::changeInstance(int32_t op, int32_t slot, int64_t sign) {
  int32_t previous = before(made[op], slot), following = after(made[op], slot);
  if (graph.workspace[op])
    tree.hold(slot, sign * graph.workspace[op]);
  for (int32_t value = graph.firstValue[op]; value < graph.firstValue[op + 1]; ++value) {
    int64_t bytes = sign * graph.bytes[value];
    if (!bytes)
      continue;
    const Slots &uses = used[value];
    auto next = std::upper_bound(uses.begin(), uses.end(), slot);
    // Uses that it serves were served by the earlier instance, which need not last until here.
    bool serves = next != uses.end() && *next < following;
    int32_t end = slot;
    if (serves && previous != none)
      end = next == uses.begin() ? previous : std::max(previous, *std::prev(next));
    else if (serves)
      end = following == numSlots ? uses.back()
                                  : *std::prev(std::lower_bound(next, uses.end(), following));
    tree.allocate(slot, bytes);
    tree.release(end, bytes);
  }
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
  tree.hold(slot, takenOver[slot] - now);
  changedTakenOver.push_back({slot, takenOver[slot]});
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

/// Writes an instance into the lists by op, value and slot.
void Sequence::list(int32_t op, int32_t slot) {
  put(made[op], slot);
  for (int32_t value : graph.inputs[op])
    put(used[value], slot);
  ops[slot] = op;
  taken[slot / 64] |= uint64_t(1) << (slot % 64);
  ++instances;
  totalCost += graph.cost[op];
}

void Sequence::unlist(int32_t op, int32_t slot) {
  take(made[op], slot);
  for (int32_t value : graph.inputs[op])
    take(used[value], slot);
  ops[slot] = none;
  taken[slot / 64] &= ~(uint64_t(1) << (slot % 64));
  --instances;
  totalCost -= graph.cost[op];
}

void Sequence::insert(int32_t op, int32_t slot) {
  changeInstance(op, slot, 1);
  for (int32_t value : graph.inputs[op])
    changeUse(value, slot, 1);
  list(op, slot);
  journal.push_back({true, op, slot});
  if (graph.hasInPlace)
    refreshAround(op, slot);
}

void Sequence::erase(int32_t slot) {
  int32_t op = ops[slot];
  unlist(op, slot);
  for (int32_t value : graph.inputs[op])
    changeUse(value, slot, -1);
  changeInstance(op, slot, -1);
  journal.push_back({false, op, slot});
  if (graph.hasInPlace)
    refreshAround(op, slot);
}

void Sequence::keep() {
  tree.keepChanges(taken);
  journal.clear();
  changedTakenOver.clear();
}
