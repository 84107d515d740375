//===- SumOrder.cpp - the order of the additions of a sum -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Schedule/SumOrder.h"

using namespace mlir;
using namespace mlir::memopt;

/// Additions in a row before a block of them goes to the next level.
static constexpr int64_t kSumBlock = 128;
/// Numbers of a sum along lanes that may also be made in the lanes of a loop around it, each by
/// itself and then folded.
static constexpr int64_t kFoldedSum = 16;

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

/// The last variable ends with the run.
static std::optional<LaneChoice>
getLanes(const ElementGraph &graph, const ElementReduction &reduction, const ScheduleRules &rules) {
  if (!reduction.laneDims || !reduction.isAssociative() || rules.isScalar())
    return std::nullopt;
  int64_t widest = 1;
  for (NodeId accumulator : reduction.accumulators)
    widest = std::max<int64_t>(widest, graph.getNode(accumulator).type.getIntOrFloatBitWidth() / 8);
  int64_t run = llvm::product_of(ArrayRef(reduction.extents.back()).take_back(reduction.laneDims));
  int64_t lanes = rules.fitLanes(run, widest);
  return LaneChoice{unsigned(reduction.variables.size() - 1), lanes,
                    rules.countSharers(run / lanes)};
}

/// Whether an iteration makes sums of its own.
static bool holdsSums(const ElementGraph &graph, const ElementReduction &reduction) {
  llvm::SmallSetVector<NodeId, 32> found(reduction.next.begin(), reduction.next.end());
  for (size_t i = 0; i < found.size(); ++i) {
    const ElementNode &node = graph.getNode(found[i]);
    if (llvm::none_of(node.variables, [&](AtomId variable) {
          return llvm::is_contained(reduction.variables, variable);
        }))
      continue;
    if (node.kind == ElementNode::Reduce)
      return true;
    for (NodeId child : graph.getChildren(found[i]))
      found.insert(child);
  }
  return false;
}

llvm::SmallDenseSet<AtomId> mlir::memopt::collectLoopsWithoutLanes(const ElementGraph &graph,
                                                                   ArrayRef<NodeId> roots,
                                                                   const ScheduleRules &rules) {
  llvm::SmallDenseSet<AtomId> barred;
  if (rules.isScalar())
    return barred;
  llvm::SmallSetVector<NodeId, 32> found(roots.begin(), roots.end());
  for (size_t i = 0; i < found.size(); ++i) {
    const ElementNode &node = graph.getNode(found[i]);
    for (NodeId child : graph.getChildren(found[i]))
      found.insert(child);
    if (node.kind != ElementNode::Reduce)
      continue;
    const ElementReduction &reduction = graph.getReduction(node.reduction);
    std::optional<LaneChoice> lanes = getLanes(graph, reduction, rules);
    int64_t count = reduction.getTripCount(graph.getTable());
    bool isShort = lanes && lanes->getWidth() >= count && count <= kFoldedSum;
    if (lanes && !(isShort && !holdsSums(graph, reduction)))
      barred.insert(node.variables.begin(), node.variables.end());
  }
  return barred;
}

std::optional<LaneChoice> mlir::memopt::getLanesOfSum(const ElementGraph &graph,
                                                      const ElementReduction &reduction,
                                                      const ScheduleRules &rules) {
  std::optional<LaneChoice> lanes = getLanes(graph, reduction, rules);
  if (lanes)
    lanes->isOneByOne = collectLoopsWithoutLanes(graph, reduction.contributions, rules)
                            .contains(reduction.variables[lanes->loop]);
  return lanes;
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

namespace {
/// Iterations that are one dim of the order.
struct Piece {
  unsigned variable;
  int64_t size;
  bool isInLanes = false;
};
} // namespace

/// The dims of the op; lanes come last.
static SmallVector<Piece> getPieces(const ElementReduction &reduction,
                                    std::optional<LaneChoice> lanes) {
  SmallVector<Piece> pieces;
  for (auto [i, extents] : llvm::enumerate(reduction.extents))
    for (int64_t size : extents)
      pieces.push_back({unsigned(i), size});
  if (!lanes)
    return pieces;
  Piece run{lanes->loop, 1, /*isInLanes=*/true};
  for (unsigned i = 0; i < reduction.laneDims; ++i)
    run.size *= pieces.pop_back_val().size;
  pieces.push_back(run);
  return pieces;
}

/// The first piece of a block and how many of its iterations are one; the number of pieces where
/// the sum is short.
static std::pair<size_t, int64_t> cutIntoBlocks(ArrayRef<Piece> pieces,
                                                const ElementReduction &reduction,
                                                std::optional<LaneChoice> lanes) {
  bool isLongSum = llvm::all_of(reduction.combiners, [](const std::optional<Combiner> &combiner) {
    return combiner && isa<FloatType>(combiner->neutral.getType());
  });
  int64_t additions = 1;
  for (size_t i = pieces.size(); isLongSum && i-- > 0;) {
    const Piece &piece = pieces[i];
    if (piece.isInLanes) {
      additions = llvm::divideCeil(piece.size, lanes->getWidth());
      if (additions > 2 * kSumBlock)
        return {i, kSumBlock};
      continue;
    }
    if (additions * piece.size > 2 * kSumBlock)
      return {i, std::max<int64_t>(1, kSumBlock / additions)};
    additions *= piece.size;
  }
  return {pieces.size(), 0};
}

/// Neighbours of one variable are one loop, but for where blocks or lanes begin.
SmallVector<SumLoop> mlir::memopt::getSumLoops(const ElementReduction &reduction,
                                               std::optional<LaneChoice> lanes) {
  SmallVector<Piece> pieces = getPieces(reduction, lanes);
  auto [first, count] = cutIntoBlocks(pieces, reduction, lanes);
  SmallVector<SumLoop> loops;
  for (auto [i, piece] : llvm::enumerate(pieces)) {
    bool continues = !loops.empty() && loops.back().variable == piece.variable;
    if (continues)
      for (SumLoop &loop : loops)
        if (loop.variable == piece.variable)
          loop.stride *= piece.size;
    if (continues && !piece.isInLanes && i != first) {
      loops.back().size *= piece.size;
      loops.back().block *= piece.size;
      loops.back().stride /= piece.size;
      continue;
    }
    loops.push_back({piece.variable, piece.size, 1, i == first ? count : 0, piece.isInLanes});
  }
  return loops;
}
