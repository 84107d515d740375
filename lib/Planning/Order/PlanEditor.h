//===- PlanEditor.h - the edits that searches are made of ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_ORDER_PLANEDITOR_H
#define MEMOPT_LIB_PLANNING_ORDER_PLANEDITOR_H

#include "memopt/Planning/Simulation/PlanSequence.h"
#include "memopt/Planning/Utils/SearchRandom.h"

namespace memopt::planning::search {

/// A plan under change: instances come and go with what they need and with what only they needed.
/// Edits are kept or undone together; in graphs that are not plain they may be invalid, which is
/// found out at the end.
class Editor {
public:
  /// `reach`: past how many instances an edit may look for an empty slot.
  Editor(const Graph &graph, bool keepOrder, int reach)
      : graph(graph), keepOrder(keepOrder), reach(reach), sequence(graph) {
    spareIndex.assign(graph.numActions, -1);
  }

  const Sequence &get() const { return sequence; }
  void restart(llvm::ArrayRef<int32_t> order);
  void keep() { sequence.keep(); }
  void undo() {
    sequence.undo([&](int32_t action) { noteSpare(action); });
  }
  bool areEditsValid() const { return graph.isPlain() || sequence.areEditsValid(); }
  /// A move found no empty slot where it wanted one.
  bool crowded = false;

  /// Actions of which an instance may go: ops that run again, and fetches.
  llvm::ArrayRef<int32_t> spare() const { return spareActions; }

  void insert(int32_t action, int32_t slot);
  void erase(int32_t slot);
  /// Takes an instance out, with its start or wait and with all that nothing else needs then.
  void eraseWithOperands(int32_t slot);
  /// The same for an instance that may be needed, or be the only one: then nothing happens.
  void eraseIfDead(int32_t action, int32_t slot);
  bool isDead(int32_t action, int32_t slot) const;

  /// An empty slot in (low, slot), near `slot` with few instances between; none if there is none.
  int32_t slotBefore(int32_t low, int32_t slot);
  /// Whether something has run before `slot` that must come after every instance of `action`.
  bool isTooLate(int32_t action, int32_t slot) const {
    return llvm::any_of(graph.behind[action], [&](int32_t later) {
      llvm::ArrayRef<int32_t> instances = sequence.instancesOf(later);
      return !instances.empty() && instances.front() < slot;
    });
  }
  /// Runs `op` again in (low, use), near `use`; a start in front of `begin`, or by default of its
  /// wait. Returns the slot in which its results are made, or none.
  int32_t runBefore(int32_t op, int32_t low, int32_t use, int32_t begin = Sequence::none);
  /// Fetches the value of a way likewise. Where there is no copy it is stored between what makes
  /// the value and `storeBy`, by default `low`.
  bool fetchBefore(int32_t way, int32_t low, int32_t use, int32_t begin = Sequence::none,
                   int32_t storeBy = Sequence::none);

private:
  bool storeBefore(const Graph::Way &way, int32_t low);
  void noteSpare(int32_t action);
  /// The wait of a start, the start of a wait.
  int32_t partnerSlot(int32_t slot) const;
  int32_t readySlot(int32_t value, int32_t instance) const;

  const Graph &graph;
  bool keepOrder;
  int reach;
  Sequence sequence;
  std::vector<int32_t> spareActions, spareIndex;
};

} // namespace memopt::planning::search

#endif // MEMOPT_LIB_PLANNING_ORDER_PLANEDITOR_H
