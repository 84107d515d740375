//===- PlanSequence.cpp - a plan that is quick to edit -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Without regions a life ends at the last use in front of the next instance, and an edit moves few
// ends. With regions an instance may be hidden behind another one for a while and is stretched over
// the regions that use it; there the lives of the values that an edit touches are laid out anew.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Simulation/PlanSequence.h"

#include <algorithm>

using namespace memopt::planning::search;

void Sequence::assign(llvm::ArrayRef<int32_t> order) {
  numSlots = 64;
  while (numSlots < int64_t(order.size() + 4) * 12)
    numSlots *= 2;
  actions.assign(numSlots, none);
  taken.assign(numSlots / 64, 0);
  made.assign(graph.numLists, {});
  used.assign(graph.numValues, {});
  entered.assign(graph.numRegions, none);
  left.assign(graph.numRegions, none);
  loads.resize(graph.numSpaces);
  for (Load &load : loads) {
    load.most.reset(numSlots);
    load.takenOver.assign(graph.hasInPlace ? numSlots : 0, 0);
  }
  if (graph.hasStarts)
    clock.reset(numSlots);
  instances = 0;
  sumOfCosts = 0;
  std::vector<int32_t> slots;
  for (size_t i = 0; i < order.size(); ++i) {
    slots.push_back(1 + int64_t(i + 1) * (numSlots - 2) / int64_t(order.size() + 1));
    if (graph.kind[order[i]] == ActionKind::Enter)
      entered[llvm::find(graph.enter, order[i]) - graph.enter.begin()] = slots.back();
    if (graph.kind[order[i]] == ActionKind::Leave)
      left[llvm::find(graph.enter, order[i] - 1) - graph.enter.begin()] = slots.back();
  }
  for (size_t i = 0; i < order.size(); ++i) {
    list(order[i], slots[i]);
    changeWorkspaces(order[i], slots[i], 1);
  }
  for (int32_t value = 0; value < graph.numValues; ++value)
    changeLives(value, 1);
  if (graph.hasInPlace)
    for (int32_t slot : slots)
      refreshTakenOver(slot);
  keep();
}

std::vector<int32_t> Sequence::order() const {
  std::vector<int32_t> result;
  result.reserve(instances);
  for (size_t word = 0; word < taken.size(); ++word)
    for (uint64_t bits = taken[word]; bits; bits &= bits - 1)
      result.push_back(actions[word * 64 + __builtin_ctzll(bits)]);
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

int64_t Sequence::excess() const {
  int64_t sum = 0;
  for (int32_t space = 1; space < graph.numSpaces; ++space)
    sum += std::max<int64_t>(0, peak(space) - graph.budgets[space]);
  return sum;
}

int64_t Sequence::getMakespan() const {
  return clock.getTime(taken, actions, [&](int32_t slot) {
    return graph.numRegions ? graph.countOf(regionAt(slot)) : 1;
  });
}

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

/// Outer regions have smaller numbers. The ends of a region lie in the one around it.
int32_t Sequence::regionAt(int32_t slot) const {
  int32_t innermost = -1;
  for (int32_t region = 0; region < graph.numRegions; ++region)
    if (entered[region] < slot && slot < left[region])
      innermost = region;
  return innermost;
}

int32_t Sequence::visibleBefore(const Slots &slots, int32_t slot) const {
  for (auto it = std::lower_bound(slots.begin(), slots.end(), slot); it != slots.begin();)
    if (isVisible(*--it, slot))
      return *it;
  return none;
}

int32_t Sequence::nextUseInRegions(int32_t value, int32_t slot) const {
  // Alive at a slot is what was made there or what a use there would get.
  const Slots &makers = makersOf(value);
  int32_t instance =
      std::binary_search(makers.begin(), makers.end(), slot) ? slot : visibleBefore(makers, slot);
  const Slots &uses = used[value];
  for (auto it = std::upper_bound(uses.begin(), uses.end(), slot); it != uses.end(); ++it)
    if (visibleBefore(makers, *it) == instance)
      return *it;
  return none;
}

/// Where the life ends that a use asks for: what is used in a region and was made in front of it is
/// read again in the next iteration.
int32_t Sequence::endOfUse(int32_t instance, int32_t use) const {
  int32_t end = use, home = regionAt(instance);
  for (int32_t region = regionAt(use); region >= 0 && !graph.isInside(home, region);
       region = graph.parent[region])
    end = left[region];
  return end;
}

/// By instance of `value`, the end of its life.
Sequence::Slots Sequence::endsOf(int32_t value) const {
  const Slots &makers = makersOf(value);
  Slots ends = makers;
  size_t next = 0; // of the makers
  for (int32_t use : used[value]) {
    while (next < makers.size() && makers[next] < use)
      ++next;
    size_t server = next;
    while (server && graph.numRegions && !isVisible(makers[server - 1], use))
      --server;
    if (server)
      ends[server - 1] =
          std::max(ends[server - 1], graph.numRegions ? endOfUse(makers[server - 1], use) : use);
  }
  return ends;
}

void Sequence::changeLives(int32_t value, int64_t sign) {
  int64_t bytes = sign * graph.size[value];
  if (!bytes)
    return;
  LoadTree &most = loads[graph.space[value]].most;
  for (auto [instance, end] : llvm::zip(makersOf(value), endsOf(value))) {
    most.allocate(instance, bytes);
    most.release(end, bytes);
  }
}

void Sequence::changeLivesAround(int32_t action, int64_t sign) {
  for (int32_t value : graph.inputs[action])
    changeLives(value, sign);
  for (int32_t value : graph.makes[action])
    changeLives(value, sign);
}

//===----------------------------------------------------------------------===//
// Lives without regions
//===----------------------------------------------------------------------===//

/// The effect of a use at `slot`, which is not in `used` now.
void Sequence::changeUse(int32_t value, int32_t slot, int64_t sign) {
  const Slots &makers = makersOf(value);
  int32_t instance = before(makers, slot);
  if (instance == none || !graph.size[value])
    return;
  const Slots &uses = used[value];
  auto next = std::upper_bound(uses.begin(), uses.end(), slot);
  if (next != uses.end() && *next < after(makers, slot))
    return; // alive beyond anyway
  int32_t end = instance;
  if (next != uses.begin())
    end = std::max(end, *std::prev(next));
  LoadTree &most = loads[graph.space[value]].most;
  most.release(end, -sign * graph.size[value]);
  most.release(slot, sign * graph.size[value]);
}

/// The effect of an instance at `slot`, which is not in `made` now.
void Sequence::changeInstance(int32_t action, int32_t slot, int64_t sign) {
  for (int32_t value : graph.makes[action]) {
    int64_t bytes = sign * graph.size[value];
    if (!bytes)
      continue;
    const Slots &makers = makersOf(value), &uses = used[value];
    int32_t previous = before(makers, slot), following = after(makers, slot);
    auto next = std::upper_bound(uses.begin(), uses.end(), slot);
    // Uses that it serves were served by the earlier instance, which need not last until here.
    bool serves = next != uses.end() && *next < following;
    int32_t end = slot;
    if (serves && previous != none)
      end = next == uses.begin() ? previous : std::max(previous, *std::prev(next));
    else if (serves)
      end = following == numSlots ? uses.back()
                                  : *std::prev(std::lower_bound(next, uses.end(), following));
    LoadTree &most = loads[graph.space[value]].most;
    most.allocate(slot, bytes);
    most.release(end, bytes);
  }
}

//===----------------------------------------------------------------------===//
// Edits
//===----------------------------------------------------------------------===//

static void put(Sequence::Slots &slots, int32_t slot) {
  slots.insert(std::upper_bound(slots.begin(), slots.end(), slot), slot);
}

static void take(Sequence::Slots &slots, int32_t slot) {
  slots.erase(std::lower_bound(slots.begin(), slots.end(), slot));
}

/// Writes an instance into the lists by action, value and slot.
void Sequence::list(int32_t action, int32_t slot) {
  put(made[action], slot);
  if (graph.numLists > graph.numActions)
    for (int32_t value : graph.makes[action])
      if (graph.listOf[value] >= graph.numActions)
        put(made[graph.listOf[value]], slot);
  for (int32_t value : graph.inputs[action])
    put(used[value], slot);
  actions[slot] = action;
  taken[slot / 64] |= uint64_t(1) << (slot % 64);
  ++instances;
  sumOfCosts += graph.cost[action] * graph.countOf(regionAt(slot));
}

void Sequence::unlist(int32_t action, int32_t slot) {
  take(made[action], slot);
  if (graph.numLists > graph.numActions)
    for (int32_t value : graph.makes[action])
      if (graph.listOf[value] >= graph.numActions)
        take(made[graph.listOf[value]], slot);
  for (int32_t value : graph.inputs[action])
    take(used[value], slot);
  actions[slot] = none;
  taken[slot / 64] &= ~(uint64_t(1) << (slot % 64));
  --instances;
  sumOfCosts -= graph.cost[action] * graph.countOf(regionAt(slot));
}

void Sequence::changeWorkspaces(int32_t action, int32_t slot, int64_t sign) {
  for (int32_t space = 0; space < graph.numSpaces; ++space) {
    loads[space].most.touch(slot);
    if (graph.hasStarts)
      clock.touch(slot);
    if (int64_t bytes = graph.workspaces[space][action])
      loads[space].most.hold(slot, sign * bytes);
  }
}

void Sequence::insert(int32_t action, int32_t slot) {
  changeWorkspaces(action, slot, 1);
  if (graph.numRegions) {
    changeLivesAround(action, -1);
    list(action, slot);
    changeLivesAround(action, 1);
  } else {
    changeInstance(action, slot, 1);
    for (int32_t value : graph.inputs[action])
      changeUse(value, slot, 1);
    list(action, slot);
  }
  journal.push_back({true, action, slot});
  if (graph.hasInPlace)
    refreshAround(action, slot);
}

void Sequence::erase(int32_t slot) {
  int32_t action = actions[slot];
  changeWorkspaces(action, slot, -1);
  if (graph.numRegions) {
    changeLivesAround(action, -1);
    unlist(action, slot);
    changeLivesAround(action, 1);
  } else {
    unlist(action, slot);
    for (int32_t value : graph.inputs[action])
      changeUse(value, slot, -1);
    changeInstance(action, slot, -1);
  }
  journal.push_back({false, action, slot});
  if (graph.hasInPlace)
    refreshAround(action, slot);
}

void Sequence::keep() {
  for (Load &load : loads)
    load.most.keepChanges(taken);
  journal.clear();
  changedTakenOver.clear();
  if (graph.hasStarts) {
    getMakespan();
    clock.keepChanges();
  }
}

//===----------------------------------------------------------------------===//
// Results in place
//===----------------------------------------------------------------------===//

/// Whether the copy that the instance at `slot` reads ends with it.
bool Sequence::endsAt(int32_t value, int32_t slot) const {
  if (!graph.numRegions)
    return nextUse(value, slot) == none;
  const Slots &makers = makersOf(value);
  int32_t server = visibleBefore(makers, slot);
  return server != none && endsOf(value)[llvm::find(makers, server) - makers.begin()] == slot;
}

void Sequence::refreshTakenOver(int32_t slot) {
  if (slot == none)
    return;
  for (int32_t space = 0; space < graph.numSpaces; ++space) {
    int64_t now = 0, &before = loads[space].takenOver[slot];
    if (actions[slot] != none)
      now = graph.bytesTakenOver(actions[slot], space,
                                 [&](int32_t operand) { return endsAt(operand, slot); });
    if (now == before)
      continue;
    loads[space].most.hold(slot, before - now);
    changedTakenOver.push_back({space, slot, before});
    before = now;
  }
}

/// An instance of `action` came to `slot` or went: what the uses before it may take over changes;
/// with regions that of uses anywhere.
void Sequence::refreshAround(int32_t action, int32_t slot) {
  refreshTakenOver(slot);
  for (llvm::ArrayRef<int32_t> values : {graph.inputs[action], graph.makes[action]})
    for (int32_t value : values) {
      if (!graph.takeable[value])
        continue;
      if (!graph.numRegions)
        refreshTakenOver(before(used[value], slot));
      else
        for (int32_t use : used[value])
          refreshTakenOver(use);
    }
}

//===----------------------------------------------------------------------===//
// Validity
//===----------------------------------------------------------------------===//

bool Sequence::isPlaceValid(int32_t action, int32_t slot) const {
  if (!graph.isInside(regionAt(slot), graph.region[action]) ||
      (graph.pinned[action] && regionAt(slot) != graph.region[action]))
    return false;
  auto repeats = [&](int32_t early, int32_t late, int32_t earlySlot, int32_t lateSlot) {
    // In a region of both instances that is not one of both ops, the later op comes first in the
    // next iteration.
    for (int32_t region = regionAt(lateSlot); region >= 0; region = graph.parent[region])
      if (entered[region] < earlySlot && !(graph.isInside(graph.region[early], region) &&
                                           graph.isInside(graph.region[late], region)))
        return true;
    return false;
  };
  for (int32_t earlier : graph.before[action])
    for (int32_t instance : made[earlier])
      if (instance > slot || repeats(earlier, action, instance, slot))
        return false;
  for (int32_t later : graph.behind[action])
    for (int32_t instance : made[later])
      if (instance < slot || repeats(action, later, slot, instance))
        return false;
  return true;
}

/// Starts and waits take turns, each pair in one region.
bool Sequence::arePairsValid(int32_t start) const {
  const Slots &starts = made[start], &waits = made[graph.partner[start]];
  if (starts.size() != waits.size())
    return false;
  for (size_t i = 0; i < starts.size(); ++i)
    if (starts[i] > waits[i] || (i && waits[i - 1] > starts[i]) ||
        regionAt(starts[i]) != regionAt(waits[i]))
      return false;
  return true;
}

/// Every use gets an instance that is not in flight; a wait gets what its start got.
bool Sequence::areUsesValid(int32_t value) const {
  // It is fetched behind the first run of its op.
  if (value < graph.numResults)
    for (int32_t way : graph.waysTo[value])
      if (const Slots &fetches = made[graph.ways[way].fetchStart];
          !fetches.empty() && fetches.front() < made[graph.opOf[value]].front())
        return false;
  for (int32_t use : used[value]) {
    int32_t server = serverOf(value, use), user = actions[use];
    if (server == none)
      return false;
    bool isMakersWait = graph.partner[actions[server]] == user;
    if (graph.kind[actions[server]] == ActionKind::Start && !isMakersWait &&
        nextAfter(graph.partner[actions[server]], server) > use)
      return false;
    if (graph.kind[user] != ActionKind::Wait)
      continue;
    int32_t start = lastBefore(graph.partner[user], use);
    if (start == none || server != (isMakersWait ? start : serverOf(value, start)))
      return false;
  }
  return true;
}

bool Sequence::areEditsValid() const {
  for (const Edit &edit : journal) {
    if (edit.inserted && actions[edit.slot] == edit.action && !isPlaceValid(edit.action, edit.slot))
      return false;
    ActionKind kind = graph.kind[edit.action];
    if (kind == ActionKind::Start || kind == ActionKind::Wait)
      if (!arePairsValid(kind == ActionKind::Start ? edit.action : graph.partner[edit.action]))
        return false;
    for (llvm::ArrayRef<int32_t> values : {graph.inputs[edit.action], graph.makes[edit.action]})
      for (int32_t value : values)
        if (!areUsesValid(value))
          return false;
  }
  return true;
}
