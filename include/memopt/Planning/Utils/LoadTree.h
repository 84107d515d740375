//===- LoadTree.h - the most bytes alive in a changing order ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bytes come at one slot and go behind another, so that a change of a life touches two slots
// however far they lie apart. The bytes alive at a slot are a prefix sum, and the most alive is
// kept in a tree of (sum, best prefix). Leaves of the tree are words of 64 slots, of which few are
// taken; they are summed up again when the maximum is asked for, and the way up ends where a node
// comes out as it was: what changes within a few slots and not at the peak costs a few nodes.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_UTILS_LOADTREE_H
#define MEMOPT_PLANNING_UTILS_LOADTREE_H

#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

namespace memopt::planning::search {

class LoadTree {
public:
  /// `slots` is a power of two of at least 64; all of them become empty.
  void reset(int32_t slots) {
    loads.assign(slots, Load());
    words = slots / 64;
    nodes.assign(2 * size_t(words), Node());
    isDirty.assign(words, false);
    dirty.clear();
    changedLoads.clear();
    changedNodes.clear();
  }

  /// Alive from `slot` on.
  void allocate(int32_t slot, int64_t bytes) { change(slot, bytes, bytes); }
  /// Alive up to and including `slot`.
  void release(int32_t slot, int64_t bytes) { change(slot, 0, -bytes); }
  /// Alive at `slot` alone.
  void hold(int32_t slot, int64_t bytes) { change(slot, bytes, 0); }

  /// An instance came to `slot` or went.
  void touch(int32_t slot) {
    int32_t word = slot / 64;
    if (!isDirty[word]) {
      isDirty[word] = true;
      dirty.push_back(word);
    }
  }

  /// The most alive at a taken slot; 0 if none is. `taken` has one bit a slot.
  int64_t max(const std::vector<uint64_t> &taken) {
    update(taken);
    return std::max<int64_t>(0, nodes[1].best);
  }
  /// The first taken slot where the most is alive, or -1.
  int32_t argmax(const std::vector<uint64_t> &taken);

  /// Calls visit(slot, bytes alive) for every taken slot.
  template <typename Visit> void forEach(const std::vector<uint64_t> &taken, Visit visit) const {
    int64_t alive = 0;
    for (int32_t word = 0; word < words; ++word)
      for (uint64_t bits = taken[word]; bits; bits &= bits - 1) {
        int32_t slot = word * 64 + __builtin_ctzll(bits);
        visit(slot, alive + loads[slot].here);
        alive += loads[slot].change;
      }
  }

  /// Changes are remembered until they are kept for good or taken back.
  void keepChanges(const std::vector<uint64_t> &taken) {
    update(taken);
    changedLoads.clear();
    changedNodes.clear();
  }
  void takeChangesBack();

private:
  /// Lower than any sum, and far from overflow when a sum is added.
  static constexpr int64_t nothing = std::numeric_limits<int64_t>::min() / 2;
  struct Load {
    int64_t here = 0;   ///< alive at this slot beyond what was alive before it
    int64_t change = 0; ///< alive behind it beyond what was alive before it
  };
  struct Node {
    int64_t sum = 0, best = nothing; ///< best: the highest prefix sum at a taken slot
    bool operator==(const Node &other) const { return sum == other.sum && best == other.best; }
  };

  void change(int32_t slot, int64_t here, int64_t change) {
    changedLoads.emplace_back(slot, here, change);
    loads[slot].here += here;
    loads[slot].change += change;
    touch(slot);
  }
  Node sumUp(int32_t word, uint64_t bits) const {
    Node node;
    for (; bits; bits &= bits - 1) {
      const Load &load = loads[word * 64 + __builtin_ctzll(bits)];
      node.best = std::max(node.best, node.sum + load.here);
      node.sum += load.change;
    }
    return node;
  }
  bool set(int32_t node, Node value) {
    if (nodes[node] == value)
      return false;
    changedNodes.push_back({node, nodes[node]});
    nodes[node] = value;
    return true;
  }
  void update(const std::vector<uint64_t> &taken);

  int32_t words = 0;
  std::vector<Load> loads; ///< by slot
  std::vector<Node> nodes; ///< children of node i are 2i and 2i + 1, the leaves come last
  std::vector<uint8_t> isDirty;
  llvm::SmallVector<int32_t, 64> dirty; ///< words, then nodes, to be summed up again
  std::vector<std::tuple<int32_t, int64_t, int64_t>> changedLoads; ///< slot, what was added
  std::vector<std::pair<int32_t, Node>> changedNodes;
};

inline void LoadTree::update(const std::vector<uint64_t> &taken) {
  if (dirty.empty())
    return;
  std::sort(dirty.begin(), dirty.end());
  size_t count = 0;
  for (int32_t word : dirty) {
    isDirty[word] = false;
    if (set(words + word, sumUp(word, taken[word])))
      dirty[count++] = words + word;
  }
  // Level by level: a node whose both halves changed is summed up once.
  while (count && dirty[0] > 1) {
    size_t changed = 0;
    int32_t last = 0;
    for (size_t i = 0; i < count; ++i) {
      int32_t parent = dirty[i] / 2;
      if (parent == last)
        continue;
      last = parent;
      const Node &left = nodes[2 * parent], &right = nodes[2 * parent + 1];
      if (set(parent, {left.sum + right.sum, std::max(left.best, left.sum + right.best)}))
        dirty[changed++] = parent;
    }
    count = changed;
  }
  dirty.clear();
}

inline int32_t LoadTree::argmax(const std::vector<uint64_t> &taken) {
  update(taken);
  if (nodes[1].best == nothing)
    return -1;
  int32_t node = 1;
  int64_t wanted = nodes[1].best;
  while (node < words) {
    node *= 2;
    if (nodes[node].best == wanted)
      continue;
    wanted -= nodes[node].sum;
    ++node;
  }
  int32_t word = node - words;
  for (uint64_t bits = taken[word];; bits &= bits - 1) {
    int32_t slot = word * 64 + __builtin_ctzll(bits);
    if (loads[slot].here == wanted)
      return slot;
    wanted -= loads[slot].change;
  }
}

inline void LoadTree::takeChangesBack() {
  for (auto [slot, here, change] : changedLoads) {
    loads[slot].here -= here;
    loads[slot].change -= change;
  }
  for (size_t i = changedNodes.size(); i-- > 0;)
    nodes[changedNodes[i].first] = changedNodes[i].second;
  for (int32_t word : dirty)
    isDirty[word] = false;
  dirty.clear();
  changedLoads.clear();
  changedNodes.clear();
}

} // namespace memopt::planning::search

#endif // MEMOPT_PLANNING_UTILS_LOADTREE_H
