//===- MinCutTest.cpp - minimum cuts against brute force ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Utils/MinCut.h"

#include "memopt/Planning/Utils/SearchRandom.h"

#include <gtest/gtest.h>

using namespace memopt::planning;

TEST(MinCut, CutsTheNarrowPlace) {
  MinCut graph;
  auto source = graph.addNode(), a = graph.addNode(), b = graph.addNode(), sink = graph.addNode();
  graph.addEdge(source, a, 5);
  auto narrow = graph.addEdge(a, b, 2);
  graph.addEdge(b, sink, 7);
  MinCut::Result cut = graph.solve(source, sink);
  ASSERT_TRUE(cut.finite);
  EXPECT_EQ(cut.value, 2);
  EXPECT_EQ(cut.edges, std::vector<MinCut::Edge>{narrow});
  EXPECT_TRUE(cut.onSource[a]);
  EXPECT_FALSE(cut.onSource[b]);
}

TEST(MinCut, SaysWhenNoFiniteCutExists) {
  MinCut graph;
  auto source = graph.addNode(), middle = graph.addNode(), sink = graph.addNode();
  graph.addEdge(source, middle, MinCut::infinite);
  graph.addEdge(middle, sink, MinCut::infinite);
  graph.addEdge(source, sink, 3);
  EXPECT_FALSE(graph.solve(source, sink).finite);
  MinCut loop;
  auto only = loop.addNode();
  EXPECT_FALSE(loop.solve(only, only).finite);
}

TEST(MinCut, PicksTheSideAmongEqualCuts) {
  for (MinCut::Side side : {MinCut::Side::Source, MinCut::Side::Sink}) {
    MinCut graph;
    auto source = graph.addNode(), middle = graph.addNode(), sink = graph.addNode();
    auto first = graph.addEdge(source, middle, 4), second = graph.addEdge(middle, sink, 4);
    MinCut::Result cut = graph.solve(source, sink, side);
    EXPECT_EQ(cut.edges, std::vector<MinCut::Edge>{side == MinCut::Side::Source ? first : second});
  }
}

/// Keeping the value after a cheap op costs fewer bytes than the value before it.
TEST(MinCut, ChoosesTheSmallerValueToKeep) {
  MinCut graph;
  auto source = graph.addNode(), sink = graph.addNode();
  auto wide = graph.addNodeWithCapacity(400), slim = graph.addNodeWithCapacity(100);
  graph.addEdge(source, wide.in, MinCut::infinite);
  graph.addEdge(wide.out, slim.in, MinCut::infinite);
  graph.addEdge(slim.out, sink, MinCut::infinite);
  EXPECT_EQ(graph.solve(source, sink).edges, std::vector<MinCut::Edge>{slim.edge});
}

TEST(MinCut, AgreesWithBruteForce) {
  SearchRandom random(7);
  for (int round = 0; round < 300; ++round) {
    int nodes = 2 + random.below(6), edges = random.below(15);
    struct Edge {
      int from, to;
      int64_t capacity;
    };
    std::vector<Edge> list;
    MinCut graph;
    for (int i = 0; i < nodes; ++i)
      graph.addNode();
    for (int i = 0; i < edges; ++i) {
      list.push_back({int(random.below(nodes)), int(random.below(nodes)), random.below(10)});
      graph.addEdge(list.back().from, list.back().to, list.back().capacity);
    }
    int64_t best = INT64_MAX;
    for (unsigned side = 0; side < 1u << nodes; ++side) {
      if (!(side & 1) || (side >> 1 & 1))
        continue; // node 0 is the source, node 1 the sink
      int64_t value = 0;
      for (const Edge &edge : list)
        if ((side >> edge.from & 1) && !(side >> edge.to & 1))
          value += edge.capacity;
      best = std::min(best, value);
    }
    MinCut::Result cut = graph.solve(0, 1, round % 2 ? MinCut::Side::Sink : MinCut::Side::Source);
    ASSERT_TRUE(cut.finite);
    EXPECT_EQ(cut.value, best);
    int64_t sum = 0;
    for (MinCut::Edge edge : cut.edges)
      sum += list[edge].capacity;
    EXPECT_EQ(sum, best);
  }
}

TEST(MinCut, LongChainsNeedNoStack) {
  MinCut graph;
  auto previous = graph.addNode(), source = previous;
  for (int i = 0; i < 200000; ++i) {
    auto next = graph.addNode();
    graph.addEdge(previous, next, 10 + i % 7);
    previous = next;
  }
  EXPECT_EQ(graph.solve(source, previous).value, 10);
}
