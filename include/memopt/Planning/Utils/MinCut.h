//===- MinCut.h - minimum cut of a directed graph --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which values of a forward graph to keep for the backward pass is a minimum cut: each value is a
// node with its bytes as capacity, values that must be there anyway hang on the source, what the
// backward pass needs hangs on the sink, and the cut values are those to keep. Nodes are split by
// the caller or with addNodeCapacity.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_UTILS_MINCUT_H
#define MEMOPT_PLANNING_UTILS_MINCUT_H

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace memopt::planning {

/// A flow network under construction, and its minimum cut.
class MinCut {
public:
  /// Capacity of an edge that must not be cut. Sums of finite capacities must stay below it.
  static constexpr int64_t infinite = std::numeric_limits<int64_t>::max() / 8;

  using Node = int32_t;
  using Edge = int32_t;

  Node addNode();
  /// A node whose crossing costs `capacity`: edges enter at `in` and leave at `out`.
  struct SplitNode {
    Node in, out;
    Edge edge;
  };
  SplitNode addNodeWithCapacity(int64_t capacity);
  /// A directed edge. Negative capacities count as 0.
  Edge addEdge(Node from, Node to, int64_t capacity);

  struct Result {
    bool finite = false;        ///< false: every cut crosses an infinite edge; the rest is empty
    int64_t value = 0;          ///< sum of the capacities of the cut edges
    std::vector<Edge> edges;    ///< cut edges, ascending
    std::vector<bool> onSource; ///< by node: on the source's side
  };
  enum class Side {
    Source, ///< of all minimum cuts the one nearest to the source
    Sink,   ///< the one nearest to the sink
  };
  /// Dinic's algorithm (1970): O(V^2 E) at worst, near linear on graphs of training steps. The flow
  /// value and, given the side, the cut do not depend on the order of nodes. May be called once.
  Result solve(Node source, Node sink, Side nearest = Side::Source);

  int32_t getNumNodes() const { return nodes; }

private:
  struct Arc {
    Node to;
    int64_t residual;
  };
  bool layer(Node source, Node sink);
  int64_t augment(Node source, Node sink);

  int32_t nodes = 0;
  std::vector<Arc> arcs; ///< arc 2e is edge e, arc 2e+1 its reverse
  std::vector<int64_t> capacities;
  std::vector<Node> tails;
  std::vector<std::vector<int32_t>> leaving;
  std::vector<int32_t> level, nextArc;
};

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_UTILS_MINCUT_H
