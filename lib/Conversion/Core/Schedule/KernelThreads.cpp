//===- KernelThreads.cpp - iterations and threads of stages -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How many iterations a stage's parallel loop has, and on a device how many threads share one. They
// share it where lanes of a loop inside, or of a sum, are theirs: a part of a warp, a warp, or a
// block, as long as the longest such loop is. Where iterations are single lanes, or no lanes are
// shared, each thread has one of its own.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Schedule/SumOrder.h"

using namespace mlir;
using namespace mlir::memopt;

SmallVector<unsigned> mlir::memopt::collectReductions(const ElementGraph &graph,
                                                      const KernelStage &stage) {
  SmallVector<unsigned> order;
  llvm::DenseSet<NodeId> visited;
  std::function<void(NodeId)> visit = [&](NodeId node) {
    if (!visited.insert(node).second)
      return;
    for (NodeId child : graph.getChildren(node))
      visit(child);
    if (graph.getNode(node).kind == ElementNode::Reduce &&
        !llvm::is_contained(order, graph.getNode(node).reduction))
      order.push_back(graph.getNode(node).reduction);
  };
  for (const KernelNest &nest : stage.nests)
    for (const KernelStore &store : nest.stores)
      visit(store.value);
  return order;
}

//===----------------------------------------------------------------------===//
// Iterations
//===----------------------------------------------------------------------===//

int64_t mlir::memopt::countBlocks(const IndexTable &table, const KernelStage &stage) {
  const KernelNest &nest = stage.nests.front();
  if (nest.loops.empty())
    return 1;
  int64_t size = table.getSize(nest.loops.front());
  if (nest.vectorLoop == 0u)
    return llvm::divideCeil(size, nest.lanes * stage.groupThreads);
  if (nest.tileLoop != 0u)
    return size;
  int64_t rows = llvm::divideCeil(size, nest.tile);
  if (!stage.blockThreads)
    return rows;
  return rows * llvm::divideCeil(table.getSize(nest.loops.back()), nest.tile);
}

int64_t mlir::memopt::countBlocks(const IndexTable &table, const KernelPoints &points) {
  return points.column ? llvm::divideCeil(table.getSize(*points.column), points.lanes) : 1;
}

static int64_t countPoints(const IndexTable &table, ArrayRef<AtomId> variables) {
  int64_t count = 1;
  for (AtomId variable : variables)
    count *= table.getSize(variable);
  return count;
}

/// The scatter of a stage whose parallel loop is over tokens.
static const KernelScatter *getTokenScatter(const KernelStage &stage) {
  auto *scatter = std::get_if<KernelScatter>(&stage.irregular);
  return scatter && scatter->isByTokens ? scatter : nullptr;
}

int64_t mlir::memopt::countTrips(const IndexTable &table, const KernelStage &stage) {
  if (const KernelScatter *scatter = getTokenScatter(stage))
    return countPoints(table, scatter->tokens);
  if (stage.isIrregular()) {
    const KernelPoints &points = stage.getPoints();
    return countBlocks(table, points) * countPoints(table, points.outer);
  }
  int64_t rows = stage.row ? table.getSize(*stage.row) : 1;
  return stage.distributesNest ? rows * countBlocks(table, stage) : rows;
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

int64_t mlir::memopt::countSharingThreads(int64_t vectors) {
  // A warp goes through rows of four kilobytes faster than a block is brought together.
  constexpr int64_t kLongestOfWarp = 256;
  if (vectors > kLongestOfWarp)
    return kBlockThreads;
  return std::min(kWarpThreads, static_cast<int64_t>(llvm::PowerOf2Ceil(vectors)));
}

/// Threads for the longest loop and the longest sum that they share; a block where they share
/// tiles.
static int64_t countGroupThreads(const ElementGraph &graph, const KernelStage &stage,
                                 const ScheduleTarget &target) {
  if (stage.isIrregular())
    return getTokenScatter(stage) ? kWarpThreads : 1;
  const IndexTable &table = graph.getTable();
  int64_t threads = 1;
  llvm::SmallDenseSet<AtomId> lanes;
  for (const KernelNest &nest : stage.nests) {
    if (nest.tileLoop)
      return kBlockThreads;
    if (!nest.vectorLoop)
      continue;
    AtomId loop = nest.loops[*nest.vectorLoop];
    lanes.insert(loop);
    if (!stage.distributesNest || nest.vectorLoop != 0u)
      threads = std::max(threads, countSharingThreads(table.getSize(loop) / nest.lanes));
  }
  for (unsigned number : collectReductions(graph, stage)) {
    const ElementReduction &reduction = graph.getReduction(number);
    // One whose result varies along lanes has an accumulator for each.
    if (llvm::any_of(reduction.freeVariables, [&](AtomId atom) { return lanes.contains(atom); }))
      continue;
    if (std::optional<LaneChoice> choice = getLanesOfSum(graph, reduction, target))
      threads = std::max(threads, choice->threads);
  }
  return threads;
}

void mlir::memopt::chooseThreads(const ElementGraph &graph, KernelStage &stage,
                                 const ScheduleTarget &target) {
  stage.blockThreads = kBlockThreads;
  stage.groupThreads = countGroupThreads(graph, stage, target);
  // Few threads go to as many multiprocessors as there are.
  int64_t threads = countTrips(graph.getTable(), stage) * stage.groupThreads;
  auto share = static_cast<int64_t>(llvm::PowerOf2Ceil(llvm::divideCeil(threads, target.sms)));
  stage.blockThreads = std::clamp(share, std::max(kWarpThreads, stage.groupThreads), kBlockThreads);
}
