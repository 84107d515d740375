//===- RematSequence.h - an order with clones, quick to edit ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Instances stand in slots with empty ones between them. A segment tree holds the bytes alive at
// each slot: range add, maximum, position of the maximum. Inserting or erasing an instance changes
// the live interval of its results and of its operands, each by one range add: O(degree * log
// slots).
//
// At an empty slot no more is alive than at the next instance, results in place of operands
// included, so the maximum over slots is the peak.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_REMATSEQUENCE_H
#define MEMOPT_LIB_PLANNING_REMATSEQUENCE_H

#include "RematGraph.h"

#include "llvm/ADT/SmallVector.h"

namespace memopt::planning::remat {

/// Bytes by slot. Leaves 0 and slots-1 are sentinels, which lets one loop climb both ends of a
/// range (an open-interval bottom-up tree).
class LoadTree {
public:
  void reset(int32_t newSlots) {
    slots = newSlots;
    nodes.assign(2 * size_t(slots), Node());
  }
  /// Adds to the slots first..last, both inclusive, both inner.
  void add(int32_t first, int32_t last, int64_t delta) {
    uint32_t left = first - 1 + slots, right = last + 1 + slots;
    for (; left ^ right ^ 1; left >>= 1, right >>= 1) {
      if (!(left & 1))
        apply(left ^ 1, delta);
      if (right & 1)
        apply(right ^ 1, delta);
      pull(left >> 1);
      pull(right >> 1);
    }
    for (left >>= 1; left; left >>= 1)
      if (!pull(left))
        break;
  }
  int64_t max() const { return nodes[1].most; }
  /// The first slot where the maximum stands.
  int32_t argmax() const {
    uint32_t at = 1;
    while (at < uint32_t(slots))
      at = 2 * at + (nodes[2 * at].most < nodes[2 * at + 1].most);
    return at - slots;
  }

private:
  struct Node {
    int64_t most = 0;  ///< maximum below, own addend included
    int64_t added = 0; ///< added to all below
  };
  void apply(uint32_t node, int64_t delta) {
    nodes[node].most += delta;
    nodes[node].added += delta;
  }
  bool pull(uint32_t node) {
    int64_t most = std::max(nodes[2 * node].most, nodes[2 * node + 1].most) + nodes[node].added;
    bool changed = most != nodes[node].most;
    nodes[node].most = most;
    return changed;
  }
  int32_t slots = 0;
  std::vector<Node> nodes;
};

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

  int64_t peak() const { return graph.resident + tree.max(); }
  int64_t cost() const { return totalCost; }
  int32_t size() const { return instances; }
  int32_t slots() const { return numSlots; }
  bool nearlyFull() const { return instances > numSlots / 4; }
  /// The op in a slot, or none.
  int32_t at(int32_t slot) const { return ops[slot]; }
  /// The first instance at which the peak stands.
  int32_t peakSlot() const {
    int32_t slot = tree.argmax();
    return ops[slot] == none ? nextTaken(slot) : slot;
  }

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
  void changeUse(int32_t value, int32_t slot, int64_t sign);
  void changeInstance(int32_t op, int32_t slot, int64_t sign);
  void refreshTakenOver(int32_t slot);
  void refreshAround(int32_t op, int32_t slot);

  const Graph &graph;
  int32_t numSlots = 0, instances = 0;
  int64_t totalCost = 0;
  std::vector<int32_t> ops;    ///< by slot
  std::vector<uint64_t> taken; ///< one bit a slot
  std::vector<Slots> made;     ///< by op, ascending
  std::vector<Slots> used;     ///< by value, ascending
  LoadTree tree;
  std::vector<int64_t> takenOver; ///< by slot: bytes off the load for results in place of operands
};

} // namespace memopt::planning::remat

#endif // MEMOPT_LIB_PLANNING_REMATSEQUENCE_H
