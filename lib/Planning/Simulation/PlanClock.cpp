//===- PlanClock.cpp - the makespan of a changing plan -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Simulation/PlanClock.h"

using namespace memopt::planning::search;

void Clock::reset(int32_t slots) {
  Word idle;
  idle.begin.busy.assign(graph.numResources, 0);
  words.assign(slots / 64 + 1, idle);
  isDirty.assign(slots / 64, false);
  dirty.clear();
  changes.clear();
  total = 0;
}

void Clock::enter(int32_t word) {
  const State &begin = words[word].begin;
  now = 0;
  queues.assign(begin.busy.begin(), begin.busy.end());
  flying.assign(begin.flying.begin(), begin.flying.end());
}

void Clock::step(int32_t action, int64_t count) {
  ActionKind kind = graph.kind[action];
  if (kind == ActionKind::Wait)
    if (auto *found = llvm::find_if(
            flying, [&](const auto &entry) { return entry.first == graph.partner[action]; });
        found != flying.end()) {
      now = std::max(now, found->second);
      flying.erase(found);
    }
  if (!graph.cost[action] && kind != ActionKind::Plain && kind != ActionKind::Start)
    return;
  Time &queue = queues[graph.resource[action]];
  queue = std::max(now, queue) + static_cast<Time>(graph.cost[action]) * count;
  if (kind == ActionKind::Start)
    flying.push_back({action, queue});
  else
    now = queue;
}

/// Whether the next word begins otherwise than before.
bool Clock::leave(int32_t word) {
  State after;
  for (Time queue : queues)
    after.busy.push_back(since(queue, now));
  llvm::sort(flying);
  for (auto [start, arrival] : flying)
    if (arrival > now) // what is there already holds nobody up
      after.flying.push_back({start, since(arrival, now)});
  State &next = words[word + 1].begin;
  Time &elapsed = words[word].elapsed;
  bool differs = !(next == after);
  if (!differs && elapsed == now)
    return false;
  changes.push_back({word, elapsed, next});
  total += now - elapsed;
  elapsed = now;
  next = std::move(after);
  return differs;
}

void Clock::takeChangesBack() {
  for (Change &change : llvm::reverse(changes)) {
    total += change.elapsed - words[change.word].elapsed;
    words[change.word].elapsed = change.elapsed;
    words[change.word + 1].begin = std::move(change.next);
  }
  changes.clear();
  for (int32_t word : dirty)
    isDirty[word] = false;
  dirty.clear();
}
