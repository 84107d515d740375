//===- PlanChain.h - an order as a chain of segments ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_ORDER_PLANCHAIN_H
#define MEMOPT_LIB_PLANNING_ORDER_PLANCHAIN_H

#include "memopt/Planning/Order/PlanStarts.h"

#include <algorithm>
#include <array>

namespace memopt::planning::search {

/// Where to cut the forward pass, into at most so many segments, and whether what many of them read
/// and is cheap to make is made by each.
struct Cuts {
  int32_t pieces;
  bool atMinima, makeAgain;
};

/// An order of ops that each run once, as a chain of segments of the forward pass with the backward
/// ops of each (PlanChainCuts.cpp), and the dynamic program over it (PlanChain.cpp).
class Chain {
public:
  Chain(const Graph &graph, llvm::ArrayRef<int32_t> order, int32_t turn, Cuts cuts);
  /// False when there is nothing to cut, or nothing that each segment would make.
  bool usable() const { return isUsable; }
  /// An order for about this many bytes beside those that are alive throughout; empty if none.
  std::vector<int32_t> schedule(int64_t bytes);
  int64_t baseline = 0; ///< bytes alive at the turning point that no segment accounts for

private:
  static constexpr int32_t slots = 240;
  static constexpr float never = 1e30f;

  void measurePositions(int32_t turn);
  std::vector<int32_t> cutEqually(int32_t turn, int32_t pieces) const;
  std::vector<int32_t> cutAtMinima(int32_t turn, int32_t most) const;
  void cutSegments(int32_t turn, Cuts cuts);
  void estimate(int32_t turn);
  void assignBackward(int32_t turn);
  bool findMadeAgain(int32_t turn);
  bool crosses(int32_t value, int32_t turn) const;
  void measureCrossings(int32_t turn);
  std::vector<int32_t> getSegments(int32_t turn) const;
  void fillTable(int64_t bytes);
  /// Bytes made in segments a..j-1 that later ones read while they run forward.
  int64_t &crossing(int32_t a, int32_t j) { return crossings[size_t(a) * numSegments + j]; }
  /// Opt[a, b, 0], with those of more bytes behind it.
  float *row(int32_t a, int32_t b) { return &table[(size_t(a) * numSegments + b) * (slots + 1)]; }
  int32_t slotsFor(int64_t bytes) const {
    return bytes <= 0 ? 0 : int32_t(std::min<int64_t>((bytes + unit - 1) / unit, slots + 1));
  }
  template <typename Offer> void forEachStep(int32_t a, int32_t b, Offer offer);
  void fillRow(int32_t a, int32_t b);
  int32_t chooseStep(int32_t a, int32_t b, int32_t m);
  void emit(int32_t a, int32_t b, int32_t m);
  void emitOp(int32_t op);
  void emitForward(int32_t segment);
  void emitBackward(int32_t segment);
  void dropDead();
  bool mayRepeat(int32_t action) const {
    return !graph.pinned[action] && graph.kind[action] == ActionKind::Plain;
  }

  const Graph &graph;
  std::vector<int32_t> order, position; ///< action by position and back
  std::vector<int32_t> lastUse;         ///< by value, a position
  std::vector<int32_t> lastForwardUse;  ///< by value, before the turning point
  std::vector<int64_t> keptBy, crossAt; ///< by position, before the turning point
  int32_t numSteps = 0, numSegments = 0;
  bool isUsable = false;
  std::vector<int32_t> cut;       ///< first position by segment, one past the end at the back
  std::vector<int32_t> backward;  ///< first backward position by segment, descending
  std::vector<uint8_t> madeAgain; ///< by action: by each segment that reads what it makes
  std::vector<int64_t> kept, forwardRoom, backwardRoom;
  std::vector<int64_t> crossings; ///< by first segment and cut
  std::vector<float> forwardCost;
  std::array<float, slots + 1> free{}; ///< the cost of nothing, by bytes
  std::vector<float> table;            ///< rows of Opt by a and b
  int64_t unit = 1;
  std::vector<int32_t> result;
  std::vector<uint8_t> ran;
};

} // namespace memopt::planning::search

#endif // MEMOPT_LIB_PLANNING_ORDER_PLANCHAIN_H
