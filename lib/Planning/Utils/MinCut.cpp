//===- MinCut.cpp - Dinic's maximum flow and the cut it leaves ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Utils/MinCut.h"

#include <algorithm>
#include <cassert>

using namespace memopt::planning;

MinCut::Node MinCut::addNode() {
  leaving.emplace_back();
  return nodes++;
}

MinCut::SplitNode MinCut::addNodeWithCapacity(int64_t capacity) {
  Node in = addNode(), out = addNode();
  return {in, out, addEdge(in, out, capacity)};
}

MinCut::Edge MinCut::addEdge(Node from, Node to, int64_t capacity) {
  assert(from >= 0 && from < nodes && to >= 0 && to < nodes && "no such node");
  Edge edge = capacities.size();
  capacity = std::clamp<int64_t>(capacity, 0, infinite);
  capacities.push_back(capacity);
  tails.push_back(from);
  leaving[from].push_back(arcs.size());
  arcs.push_back({to, capacity});
  leaving[to].push_back(arcs.size());
  arcs.push_back({from, 0});
  return edge;
}

bool MinCut::layer(Node source, Node sink) {
  level.assign(nodes, -1);
  level[source] = 0;
  std::vector<Node> queue{source};
  for (size_t at = 0; at < queue.size(); ++at)
    for (int32_t arc : leaving[queue[at]])
      if (arcs[arc].residual > 0 && level[arcs[arc].to] < 0) {
        level[arcs[arc].to] = level[queue[at]] + 1;
        queue.push_back(arcs[arc].to);
      }
  return level[sink] >= 0;
}

/// Sends flow along one path of the layered graph; 0 when none is left. No recursion: paths may be
/// as long as the graph.
int64_t MinCut::augment(Node source, Node sink) {
  std::vector<int32_t> path;
  Node at = source;
  while (at != sink) {
    int32_t &next = nextArc[at];
    if (next == int32_t(leaving[at].size())) {
      if (path.empty())
        return 0;
      level[at] = -1; // a dead end, for this phase
      at = arcs[path.back() ^ 1].to;
      path.pop_back();
      ++nextArc[at];
      continue;
    }
    const Arc &arc = arcs[leaving[at][next]];
    if (arc.residual > 0 && level[arc.to] == level[at] + 1) {
      path.push_back(leaving[at][next]);
      at = arc.to;
    } else {
      ++next;
    }
  }
  int64_t flow = infinite;
  for (int32_t arc : path)
    flow = std::min(flow, arcs[arc].residual);
  for (int32_t arc : path) {
    arcs[arc].residual -= flow;
    arcs[arc ^ 1].residual += flow;
  }
  return flow;
}

MinCut::Result MinCut::solve(Node source, Node sink, Side nearest) {
  Result result;
  if (source == sink)
    return result;
  while (layer(source, sink)) {
    nextArc.assign(nodes, 0);
    while (int64_t flow = augment(source, sink)) {
      result.value += flow;
      if (result.value >= infinite)
        return Result();
    }
  }
  result.finite = true;
  result.onSource.assign(nodes, nearest == Side::Sink);
  if (nearest == Side::Source) {
    // The last layering reached exactly the source's side.
    for (Node node = 0; node < nodes; ++node)
      result.onSource[node] = level[node] >= 0;
  } else {
    std::vector<Node> queue{sink};
    result.onSource[sink] = false;
    for (size_t at = 0; at < queue.size(); ++at)
      for (int32_t arc : leaving[queue[at]])
        if (Node from = arcs[arc].to; arcs[arc ^ 1].residual > 0 && result.onSource[from]) {
          result.onSource[from] = false;
          queue.push_back(from);
        }
  }
  for (Edge edge = 0, count = capacities.size(); edge < count; ++edge)
    if (capacities[edge] && result.onSource[tails[edge]] && !result.onSource[arcs[2 * edge].to])
      result.edges.push_back(edge);
  return result;
}
