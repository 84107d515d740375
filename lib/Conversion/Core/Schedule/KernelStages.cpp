//===- KernelStages.cpp - sums and iterations of stages ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is in a stage, and how many iterations its parallel loop has.
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

const KernelScatter *mlir::memopt::getTokenScatter(const KernelStage &stage) {
  auto *scatter = std::get_if<KernelScatter>(&stage.irregular);
  return scatter && scatter->isByTokens ? scatter : nullptr;
}

int64_t mlir::memopt::countBlocks(const IndexTable &table, const KernelStage &stage) {
  const KernelNest &nest = stage.nests.front();
  if (nest.loops.empty())
    return 1;
  int64_t size = table.getSize(nest.loops.front());
  if (nest.vectorLoop == 0u)
    return llvm::divideCeil(size, nest.lanes);
  return nest.tileLoop == 0u ? llvm::divideCeil(size, nest.tile) : size;
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
