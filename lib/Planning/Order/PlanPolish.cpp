//===- PlanPolish.cpp - transfers in their best places -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What random moves leave behind: everything that can go goes, starts move towards the front and
// the waits of stores towards the back as far as the plan gets faster, and at last as far as it
// costs nothing and the bytes allow, which is slack against links that turn out to be slow.
//
//===----------------------------------------------------------------------===//

#include "PlanEditor.h"
#include "memopt/Planning/Order/PlanStarts.h"
#include "memopt/Planning/Simulation/PlanSequence.h"

using namespace memopt::planning::search;

namespace {

class Polisher {
public:
  Polisher(const Graph &graph, const Plan &plan, int64_t budget, bool keepOrder)
      : graph(graph), budget(budget), editor(graph, keepOrder, /*reach=*/graph.numActions),
        sequence(editor.get()), plan(plan) {
    editor.restart(plan.order);
    limit = std::max(budget, plan.peak);
    cost = plan.cost;
  }

  Plan run();

private:
  bool settle(bool mayBeEqual);
  bool dropAll();
  bool shift(int32_t slot, bool mayBeEqual);
  bool shiftTransfers(bool mayBeEqual);
  std::vector<int32_t> slots() const;

  const Graph &graph;
  int64_t budget, limit = 0, cost = 0;
  Editor editor;
  const Sequence &sequence;
  Plan plan;
};

} // namespace

/// Keeps the edits if the plan got faster, or where that is enough no slower.
bool Polisher::settle(bool mayBeEqual) {
  bool better = editor.areEditsValid() && sequence.peak() <= limit &&
                sequence.excess() <= plan.excess &&
                (mayBeEqual ? sequence.cost() <= cost : sequence.cost() < cost);
  if (!better) {
    editor.undo();
    return false;
  }
  cost = sequence.cost();
  editor.keep();
  return true;
}

std::vector<int32_t> Polisher::slots() const {
  std::vector<int32_t> result;
  for (int32_t slot = sequence.nextTaken(0); slot < sequence.slots() - 1;
       slot = sequence.nextTaken(slot))
    result.push_back(slot);
  return result;
}

bool Polisher::dropAll() {
  bool changed = false;
  std::vector<int32_t> spare(editor.spare().begin(), editor.spare().end());
  llvm::sort(spare);
  for (int32_t action : spare)
    for (size_t which = 0; which < sequence.instancesOf(action).size(); ++which) {
      if (action < graph.numOps && which == 0)
        continue; // where an op runs first is left to it
      editor.eraseWithOperands(sequence.instancesOf(action)[which]);
      changed |= settle(/*mayBeEqual=*/true);
    }
  return changed;
}

/// A start towards the front, a wait towards the back, in steps that double.
bool Polisher::shift(int32_t slot, bool mayBeEqual) {
  int32_t action = sequence.at(slot);
  bool isStart = graph.kind[action] == ActionKind::Start, changed = false;
  int32_t target = slot;
  for (int32_t steps = 1; steps < sequence.size(); steps *= 2) {
    for (int32_t i = 0; i < steps; ++i)
      target = isStart ? sequence.previousTaken(target) : sequence.nextTaken(target);
    int32_t beyond = isStart ? sequence.previousTaken(target) : sequence.nextTaken(target);
    if (target <= 0 || target >= sequence.slots() - 1 || std::abs(target - beyond) < 2)
      break;
    editor.erase(slot);
    int32_t place = (target + beyond) / 2;
    editor.insert(action, place);
    if (!settle(mayBeEqual))
      break;
    changed = true;
    slot = target = place;
  }
  return changed;
}

bool Polisher::shiftTransfers(bool mayBeEqual) {
  bool changed = false;
  for (int32_t slot : slots()) {
    int32_t action = sequence.at(slot);
    if (action == Sequence::none)
      continue;
    bool isStoreWait = graph.isOptional(action) && graph.kind[action] == ActionKind::Wait &&
                       !graph.isFetchStart(action - 1);
    if (graph.kind[action] == ActionKind::Start || isStoreWait)
      changed |= shift(slot, mayBeEqual);
  }
  return changed;
}

Plan Polisher::run() {
  constexpr int kRounds = 8;
  bool changed = true;
  for (int round = 0; round < kRounds && changed; ++round) {
    changed = dropAll();
    changed |= shiftTransfers(/*mayBeEqual=*/false);
  }
  shiftTransfers(/*mayBeEqual=*/true);
  Plan polished = planOf(graph, sequence.order());
  return polished.betterThan(plan, budget) || polished.cost == plan.cost ? polished : plan;
}

Plan memopt::planning::search::polish(const Graph &graph, const Plan &plan, int64_t budget,
                                      bool keepOrder) {
  return graph.hasStarts ? Polisher(graph, plan, budget, keepOrder).run() : plan;
}
