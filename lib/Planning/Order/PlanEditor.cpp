//===- PlanEditor.cpp - the edits that searches are made of ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanEditor.h"
#include "memopt/Planning/Simulation/PlanSequence.h"

using namespace memopt::planning::search;

void Editor::restart(llvm::ArrayRef<int32_t> order) {
  sequence.assign(order);
  for (int32_t action = 0; action < graph.numActions; ++action)
    noteSpare(action);
}

/// Waits go with their starts, and stores when nothing is fetched any more.
void Editor::noteSpare(int32_t action) {
  if (!graph.mayGo[action])
    return;
  size_t needed = action < graph.numOps ? 1 : 0;
  bool isSpare = sequence.instancesOf(action).size() > needed;
  int32_t &index = spareIndex[action];
  if (isSpare == (index >= 0))
    return;
  if (isSpare) {
    index = spareActions.size();
    spareActions.push_back(action);
  } else {
    spareIndex[spareActions.back()] = index;
    spareActions[index] = spareActions.back();
    spareActions.pop_back();
    index = -1;
  }
}

void Editor::insert(int32_t action, int32_t slot) {
  sequence.insert(action, slot);
  noteSpare(action);
}

void Editor::erase(int32_t slot) {
  int32_t action = sequence.at(slot);
  sequence.erase(slot);
  noteSpare(action);
}

int32_t Editor::partnerSlot(int32_t slot) const {
  int32_t action = sequence.at(slot), partner = graph.partner[action];
  return graph.kind[action] == ActionKind::Start ? sequence.nextAfter(partner, slot)
                                                 : sequence.lastBefore(partner, slot);
}

/// No value of the instance is used but by its own wait, and a plan does without it.
bool Editor::isDead(int32_t action, int32_t slot) const {
  llvm::ArrayRef<int32_t> instances = sequence.instancesOf(action);
  if ((action < graph.numOps && instances.size() < 2) ||
      (keepOrder && instances.front() == slot && action < graph.numOps))
    return false;
  for (int32_t value : graph.makes[action]) {
    int32_t use = sequence.nextUse(value, slot);
    if (use != Sequence::none && sequence.at(use) == graph.partner[action])
      use = sequence.nextUse(value, use);
    if (use != Sequence::none)
      return false;
  }
  return true;
}

void Editor::eraseIfDead(int32_t action, int32_t slot) {
  if (isDead(action, slot))
    eraseWithOperands(slot);
}

void Editor::eraseWithOperands(int32_t slot) {
  int32_t action = sequence.at(slot);
  if (graph.partner[action] >= 0) {
    int32_t other = partnerSlot(slot);
    if (graph.kind[action] == ActionKind::Wait) {
      std::swap(slot, other);
      action = graph.partner[action];
    }
    erase(other);
  }
  erase(slot);
  for (int32_t value : graph.inputs[action])
    if (int32_t server = sequence.serverOf(value, slot); server != Sequence::none)
      eraseIfDead(sequence.at(server), server);
}

int32_t Editor::slotBefore(int32_t low, int32_t slot) {
  for (int tries = 0; tries < reach; ++tries) {
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

int32_t Editor::runBefore(int32_t op, int32_t low, int32_t use, int32_t begin) {
  int32_t target = slotBefore(low, use);
  if (target == Sequence::none || isTooLate(op, target))
    return Sequence::none;
  insert(graph.kind[op] == ActionKind::Start ? graph.partner[op] : op, target);
  if (graph.kind[op] != ActionKind::Start)
    return target;
  target = slotBefore(low, begin == Sequence::none ? target : std::clamp(begin, low + 2, target));
  if (target != Sequence::none)
    insert(op, target);
  return target;
}

/// When what an instance made may be used.
int32_t Editor::readySlot(int32_t value, int32_t instance) const {
  int32_t maker = sequence.at(instance);
  return graph.kind[maker] == ActionKind::Start ? partnerSlot(instance) : instance;
}

bool Editor::storeBefore(const Graph::Way &way, int32_t by) {
  int32_t source = sequence.serverOf(way.value, by);
  if (source == Sequence::none)
    return false;
  int32_t ready = readySlot(way.value, source);
  int32_t next = std::min(by, sequence.nextTaken(ready));
  if (next - ready < 2 || by - ready < 4) {
    crowded = true;
    return false;
  }
  int32_t start = ready + (next - ready) / 2, wait = slotBefore(start, by);
  if (wait == Sequence::none)
    return false;
  insert(way.storeStart, start);
  insert(way.storeStart + 1, wait);
  return true;
}

bool Editor::fetchBefore(int32_t way, int32_t low, int32_t use, int32_t begin, int32_t storeBy) {
  const Graph::Way &item = graph.ways[way];
  int32_t wait = slotBefore(low, use);
  if (wait == Sequence::none)
    return false;
  int32_t previous = sequence.serverOf(item.value, wait);
  insert(item.fetchStart + 1, wait);
  int32_t start =
      slotBefore(low, begin == Sequence::none ? wait : std::clamp(begin, low + 2, wait));
  if (start == Sequence::none || isTooLate(item.fetchStart, start))
    return false;
  if (item.copy >= 0) {
    int32_t copy = sequence.serverOf(item.copy, start);
    if ((copy == Sequence::none || readySlot(item.copy, copy) > start) &&
        !storeBefore(item, storeBy == Sequence::none ? low : storeBy))
      return false;
  }
  insert(item.fetchStart, start);
  if (previous != Sequence::none)
    eraseIfDead(sequence.at(previous), previous);
  return true;
}
