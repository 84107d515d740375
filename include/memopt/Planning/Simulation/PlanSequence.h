//===- PlanSequence.h - a plan that is quick to edit -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Instances of actions stand in slots with empty ones between them. The life of a value from an
// instance to its last use is two changes in a tree over slots, one at each end; inserting or
// erasing an instance changes the ends of the lives of what it makes and of what it reads, most of
// them nearby.
//
// At an empty slot no more is alive than at the next instance, results in place of operands
// included, so the maximum over instances is the peak.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_SIMULATION_PLANSEQUENCE_H
#define MEMOPT_PLANNING_SIMULATION_PLANSEQUENCE_H

#include "memopt/Planning/Simulation/PlanClock.h"
#include "memopt/Planning/Simulation/PlanGraph.h"
#include "memopt/Planning/Utils/LoadTree.h"

namespace memopt::planning::search {

class Sequence {
public:
  using Slots = llvm::SmallVector<int32_t, 4>;
  static constexpr int32_t none = -1;

  explicit Sequence(const Graph &graph) : graph(graph), clock(graph) {}

  /// Lays a valid plan out evenly and forgets everything else.
  void assign(llvm::ArrayRef<int32_t> order);
  std::vector<int32_t> order() const;
  /// Spreads the instances evenly again. Invalidates all slots.
  void respace() { assign(order()); }

  int64_t peak(int32_t space = 0) const {
    return graph.residents[space] + loads[space].most.max(taken);
  }
  /// Bytes above the budgets of the spaces beyond the first.
  int64_t excess() const;
  /// The makespan.
  int64_t cost() const {
    return graph.hasStarts ? getMakespan()
                           : int64_t(std::min<__int128>(sumOfCosts, Graph::tooLong));
  }
  int32_t size() const { return instances; }
  int32_t slots() const { return numSlots; }
  bool nearlyFull() const { return instances > numSlots / 4; }
  /// The action in a slot, or none.
  int32_t at(int32_t slot) const { return actions[slot]; }
  /// The first instance at which the peak stands; none in an empty sequence.
  int32_t peakSlot(int32_t space = 0) const { return loads[space].most.argmax(taken); }

  /// Calls visit(slot, bytes alive in the space) for every instance.
  template <typename Visit> void forEachLoad(Visit visit, int32_t space = 0) const {
    loads[space].most.forEach(
        taken, [&](int32_t slot, int64_t alive) { visit(slot, graph.residents[space] + alive); });
  }

  llvm::ArrayRef<int32_t> instancesOf(int32_t action) const { return made[action]; }
  llvm::ArrayRef<int32_t> usesOf(int32_t value) const { return used[value]; }
  /// Last instance of `action` before `slot`, or none.
  int32_t lastBefore(int32_t action, int32_t slot) const { return before(made[action], slot); }
  /// First instance of `action` after `slot`, or the end.
  int32_t nextAfter(int32_t action, int32_t slot) const { return after(made[action], slot); }
  /// The instance whose `value` a use at `slot` gets, or none.
  int32_t serverOf(int32_t value, int32_t slot) const {
    const Slots &makers = makersOf(value);
    return graph.numRegions ? visibleBefore(makers, slot) : before(makers, slot);
  }
  /// First use of `value` after `slot` that the instance alive at `slot` serves, or none.
  int32_t nextUse(int32_t value, int32_t slot) const {
    if (graph.numRegions)
      return nextUseInRegions(value, slot);
    int32_t use = after(used[value], slot);
    return use < after(makersOf(value), slot) && use < numSlots ? use : none;
  }
  /// Last use before `slot` by the instance that would serve it; the instance itself if it has no
  /// use.
  int32_t endBefore(int32_t value, int32_t slot) const {
    return std::max(before(used[value], slot), serverOf(value, slot));
  }
  /// The innermost region that `slot` lies in, or -1.
  int32_t regionAt(int32_t slot) const;
  /// Whether a use at `slot` may get what was made at `instance`, an earlier slot.
  bool isVisible(int32_t instance, int32_t slot) const {
    return !graph.numRegions || graph.isInside(regionAt(slot), regionAt(instance));
  }

  /// Whether a value alive at `slot` would take less there if its next use were served by a clone:
  /// nothing there reads it, or what does may write a result over it.
  bool canLeave(int32_t value, int32_t slot) const {
    return !std::binary_search(used[value].begin(), used[value].end(), slot) ||
           (graph.takeable[value] && graph.mayTakeOver(actions[slot], value));
  }

  /// Puts `action` into an empty inner slot; takes it out again. Between calls uses may stand
  /// before every instance of what they use: they then keep nothing alive.
  void insert(int32_t action, int32_t slot);
  void erase(int32_t slot);

  /// What was inserted or erased since the last call of `keep`.
  struct Edit {
    bool inserted;
    int32_t action, slot;
  };
  llvm::ArrayRef<Edit> edits() const { return journal; }
  /// Whether the edits have left everything in place: every use behind what it uses, starts and
  /// waits in pairs that hold what they share, everything in its region. In a plain graph that is
  /// for the caller to see to.
  bool areEditsValid() const;
  /// Makes the edits for good.
  void keep();
  /// Takes all of them back, the last one first; `seen(action)` is called behind each.
  template <typename Seen> void undo(Seen seen) {
    for (Load &load : loads)
      load.most.takeChangesBack();
    while (!journal.empty()) {
      Edit edit = journal.pop_back_val();
      edit.inserted ? unlist(edit.action, edit.slot) : list(edit.action, edit.slot);
      seen(edit.action);
    }
    for (const TakenOver &change : llvm::reverse(changedTakenOver))
      loads[change.space].takenOver[change.slot] = change.before;
    changedTakenOver.clear();
    clock.takeChangesBack();
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
  const Slots &makersOf(int32_t value) const { return made[graph.listOf[value]]; }
  int32_t visibleBefore(const Slots &slots, int32_t slot) const;
  int32_t nextUseInRegions(int32_t value, int32_t slot) const;
  int32_t endOfUse(int32_t instance, int32_t use) const;
  Slots endsOf(int32_t value) const;
  void list(int32_t action, int32_t slot);
  void unlist(int32_t action, int32_t slot);
  void changeUse(int32_t value, int32_t slot, int64_t sign);
  void changeInstance(int32_t action, int32_t slot, int64_t sign);
  void changeLives(int32_t value, int64_t sign);
  void changeLivesAround(int32_t action, int64_t sign);
  void changeWorkspaces(int32_t action, int32_t slot, int64_t sign);
  bool endsAt(int32_t value, int32_t slot) const;
  void refreshTakenOver(int32_t slot);
  void refreshAround(int32_t action, int32_t slot);
  int64_t getMakespan() const;
  bool isPlaceValid(int32_t action, int32_t slot) const;
  bool arePairsValid(int32_t start) const;
  bool areUsesValid(int32_t value) const;

  struct Load {
    mutable LoadTree most;          ///< summed up when it is asked
    std::vector<int64_t> takenOver; ///< by slot: bytes off for results in place of operands
  };
  struct TakenOver {
    int32_t space, slot;
    int64_t before;
  };

  const Graph &graph;
  int32_t numSlots = 0, instances = 0;
  __int128 sumOfCosts = 0;
  std::vector<int32_t> actions;       ///< by slot
  std::vector<uint64_t> taken;        ///< one bit a slot
  std::vector<Slots> made;            ///< by list of instances, ascending
  std::vector<Slots> used;            ///< by value, ascending
  std::vector<int32_t> entered, left; ///< by region: slots
  std::vector<Load> loads;            ///< by space
  llvm::SmallVector<Edit, 32> journal;
  llvm::SmallVector<TakenOver, 32> changedTakenOver;
  mutable Clock clock; ///< goes on when it is asked; stands still in a graph without starts
};

} // namespace memopt::planning::search

#endif // MEMOPT_PLANNING_SIMULATION_PLANSEQUENCE_H
