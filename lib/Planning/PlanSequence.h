//===- PlanSequence.h - an order with clones, quick to edit ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Instances stand in slots with empty ones between them. The life of a value from an instance to
// its last use is two changes in a tree over slots, one at each end; inserting or erasing an
// instance changes the ends of the lives of its results and of its operands, most of them nearby.
//
// At an empty slot no more is alive than at the next instance, results in place of operands
// included, so the maximum over instances is the peak.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_PLANSEQUENCE_H
#define MEMOPT_LIB_PLANNING_PLANSEQUENCE_H

#include "LoadTree.h"
#include "PlanGraph.h"

namespace memopt::planning::search {

class Sequence {
public:
  using Slots = llvm::SmallVector<int32_t, 4>;
  static constexpr int32_t none = -1;

  explicit Sequence(const Graph &graph) : graph(graph) {}

  /// Lays a valid order out evenly and forgets everything else.
  void assign(llvm::ArrayRef<int32_t> order);
  std::vector<int32_t> order() const;
  /// Spreads the instances evenly again. Invalidates all slots.
  void respace() { assign(order()); }

  int64_t peak() const { return graph.resident + tree.max(taken); }
  int64_t cost() const { return totalCost; }
  int32_t size() const { return instances; }
  int32_t slots() const { return numSlots; }
  bool nearlyFull() const { return instances > numSlots / 4; }
  /// The op in a slot, or none.
  int32_t at(int32_t slot) const { return ops[slot]; }
  /// The first instance at which the peak stands; none in an empty sequence.
  int32_t peakSlot() const { return tree.argmax(taken); }

  llvm::ArrayRef<int32_t> instancesOf(int32_t op) const { return made[op]; }
  llvm::ArrayRef<int32_t> usesOf(int32_t value) const { return used[value]; }
  /// Last instance of `op` before `slot`, or none.
  int32_t lastBefore(int32_t op, int32_t slot) const { return before(made[op], slot); }
  /// First instance of `op` after `slot`, or the end.
  int32_t nextAfter(int32_t op, int32_t slot) const { return after(made[op], slot); }
  /// First use of `value` after `slot` that the instance alive at `slot` serves, or none.
  int32_t nextUse(int32_t value, int32_t slot) const {
    int32_t use = after(used[value], slot);
    return use < nextAfter(graph.opOf[value], slot) && use < numSlots ? use : none;
  }
  /// Last use before `slot` by the instance that would serve it; the instance itself if it has no
  /// use.
  int32_t endBefore(int32_t value, int32_t slot) const {
    return std::max(before(used[value], slot), before(made[graph.opOf[value]], slot));
  }

  /// Whether a value alive at `slot` would take less there if its next use were served by a clone:
  /// nothing there reads it, or what does may write a result over it.
  bool canLeave(int32_t value, int32_t slot) const {
    return !std::binary_search(used[value].begin(), used[value].end(), slot) ||
           (graph.takeable[value] && graph.mayTakeOver(ops[slot], value));
  }

  /// Puts `op` into an empty inner slot; takes it out again. Between calls uses may stand before
  /// every instance of what they use: they then keep nothing alive.
  void insert(int32_t op, int32_t slot);
  void erase(int32_t slot);

  /// What was inserted or erased since the last call of `keep`.
  struct Edit {
    bool inserted;
    int32_t op, slot;
  };
  llvm::ArrayRef<Edit> edits() const { return journal; }
  /// Makes the edits for good.
  void keep();
  /// Takes all of them back, the last one first; `seen(op)` is called behind each.
  template <typename Seen> void undo(Seen seen) {
    tree.takeChangesBack();
    while (!journal.empty()) {
      Edit edit = journal.pop_back_val();
      edit.inserted ? unlist(edit.op, edit.slot) : list(edit.op, edit.slot);
      seen(edit.op);
    }
    for (auto [slot, bytes] : llvm::reverse(changedTakenOver))
      takenOver[slot] = bytes;
    changedTakenOver.clear();
  }

  int32_t nextTaken(int32_t slot) const;     ///< first instance after; slots()-1 if none
  int32_t previousTaken(int32_t slot) const; ///< last instance before; 0 if none

private:
  static int32_t before(const Slots &slots, int32_t slot) {
    auto it = std::lower_bound(slots.begin(), slots.end(), slot);
    return it == slots.begin() ? none : *std::prev(it);
  }
  int32_t after(const Slots &slots, int32_t slot) const {
    auto it = std::upper_bound(slots.begin(), slots.end(), slot);
    return it == slots.end() ? numSlots : *it;
  }
  void list(int32_t op, int32_t slot);
  void unlist(int32_t op, int32_t slot);
  void changeUse(int32_t value, int32_t slot, int64_t sign);
  void changeInstance(int32_t op, int32_t slot, int64_t sign);
  void refreshTakenOver(int32_t slot);
  void refreshAround(int32_t op, int32_t slot);

  const Graph &graph;
  int32_t numSlots = 0, instances = 0;
  int64_t totalCost = 0;
  std::vector<int32_t> ops;       ///< by slot
  std::vector<uint64_t> taken;    ///< one bit a slot
  std::vector<Slots> made;        ///< by op, ascending
  std::vector<Slots> used;        ///< by value, ascending
  mutable LoadTree tree;          ///< summed up when it is asked
  std::vector<int64_t> takenOver; ///< by slot: bytes off the load for results in place of operands
  llvm::SmallVector<Edit, 32> journal;
  llvm::SmallVector<std::pair<int32_t, int64_t>, 32> changedTakenOver; ///< slot, former bytes
};

} // namespace memopt::planning::search

#endif // MEMOPT_LIB_PLANNING_PLANSEQUENCE_H
