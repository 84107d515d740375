//===- Timeline.cpp - queued work, done in a drawn order ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/memory/Timeline.h"
#include <algorithm>

using namespace memopt::emulator;
using namespace memopt::cuda;

void AncestorSet::insert(size_t position) {
  if (words.size() <= position / 64)
    words.resize(position / 64 + 1);
  words[position / 64] |= uint64_t(1) << position % 64;
}

void AncestorSet::join(const AncestorSet &other) {
  if (words.size() < other.words.size())
    words.resize(other.words.size());
  for (size_t i = 0; i < other.words.size(); ++i)
    words[i] |= other.words[i];
}

size_t AncestorSet::count() const {
  size_t total = 0;
  for (uint64_t word : words)
    total += size_t(__builtin_popcountll(word));
  return total;
}

OperationId Timeline::submit(std::string name, Work work,
                             const std::vector<OperationId> &dependencies) {
  Operation operation;
  operation.id = first + operations.size();
  operation.name = std::move(name) + " #" + std::to_string(operation.id);
  operation.work = std::move(work);
  operation.before = hostKnows;
  for (OperationId id : dependencies) {
    if (id < first)
      continue;
    operation.before.join(get(id).before);
    operation.before.insert(id - first);
    if (!get(id).isDone) {
      get(id).next.push_back(operation.id);
      ++operation.waitsFor;
    }
  }
  if (operation.waitsFor == 0)
    ready.push_back(operation.id);
  operations.push_back(std::move(operation));
  return operations.back().id;
}

std::vector<OperationId> Timeline::getPending() const {
  std::vector<OperationId> pending;
  for (const Operation &operation : operations)
    if (!operation.isDone)
      pending.push_back(operation.id);
  return pending;
}

CUresult Timeline::runReady(size_t index) {
  Operation &operation = get(ready[index]);
  ready.erase(ready.begin() + long(index));
  CUresult result = operation.work(operation);
  operation.work = nullptr;
  operation.isDone = true;
  for (OperationId id : operation.next)
    if (--get(id).waitsFor == 0)
      ready.push_back(id);
  return result;
}

/// Mixes the bits of a number: the order of what it gives for 1, 2, 3... is a drawn one.
static uint64_t mix(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

/// The ready operation of the highest drawn priority, of those needed.
size_t Timeline::drawReady(uint64_t salt, const std::vector<char> *needed) const {
  size_t best = ready.size();
  for (size_t i = 0; i < ready.size(); ++i)
    if (!needed || (*needed)[ready[i] - first])
      if (best == ready.size() || mix(ready[i] ^ salt) < mix(ready[best] ^ salt))
        best = i;
  return best;
}

std::vector<char> Timeline::findNeeded(const std::vector<OperationId> &goals) {
  std::vector<char> needed(operations.size());
  for (OperationId goal : goals)
    if (goal >= first)
      for (size_t i = 0; i < operations.size(); ++i)
        if (i == goal - first || get(goal).before.has(i))
          needed[i] = 1;
  return needed;
}

/// Half of all waits are answered with the least that will do; in the others the rest goes on too,
/// each operation by a priority of its own, so that what is late stays late.
CUresult Timeline::finish(const std::vector<OperationId> &goals) {
  bool isLazy = random() % 2;
  uint64_t salt = random();
  std::vector<char> needed = findNeeded(goals);
  auto isReached = [&] {
    return std::all_of(goals.begin(), goals.end(), [&](OperationId id) { return isDone(id); });
  };
  while (!isReached())
    if (CUresult result = runReady(drawReady(salt, isLazy ? &needed : nullptr))) {
      drop();
      return result;
    }
  for (OperationId goal : goals)
    if (goal >= first) {
      hostKnows.join(get(goal).before);
      hostKnows.insert(goal - first);
    }
  settle();
  return CUDA_SUCCESS;
}

CUresult Timeline::advance() {
  if (ready.empty())
    return CUDA_SUCCESS;
  CUresult result = runReady(drawReady(random(), nullptr));
  if (result)
    drop();
  return result;
}

/// A device that is lost does nothing more.
void Timeline::drop() {
  for (Operation &operation : operations) {
    operation.isDone = true;
    operation.work = nullptr;
  }
  ready.clear();
}

/// When the host knows of everything, all that comes is behind it.
void Timeline::settle() {
  if (hostKnows.count() < operations.size())
    return;
  first += operations.size();
  operations.clear();
  ready.clear();
  hostKnows = AncestorSet();
  onSettled();
}
