//===- KernelLanes.cpp - lanes of loops; scatters; printing -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What of a schedule is no search: how many lanes a loop gets, which loop of a reduction runs over
// them, the one form of a scatter, and how a schedule prints.
//
//===----------------------------------------------------------------------===//

#include "KernelSchedule.h"

#include "memopt/Dialect/Memopt.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Scatters
//===----------------------------------------------------------------------===//

FailureOr<KernelSchedule> mlir::memopt::scheduleScatter(ElementGraph &graph, Operation *op,
                                                        const ScheduleTarget &target) {
  auto scatter = cast<EmbeddingBackwardOp>(op);
  IndexTable &table = graph.getTable();
  ArrayRef<int64_t> tokens = cast<RankedTensorType>(scatter.getIndices().getType()).getShape();
  ArrayRef<int64_t> shape = cast<RankedTensorType>(scatter.getResult().getType()).getShape();
  int64_t count = llvm::product_of(tokens), columns = shape[1];
  KernelScatter info{0,       shape[0], table.addVariable(count), table.addVariable(columns), 1,
                     kNoNode, kNoNode,  scatter.getPaddingIndex()};
  SmallVector<IndexExpr> indices = table.delinearize(table.get(info.token), tokens);
  FailureOr<NodeId> index = graph.build(scatter.getIndices(), indices);
  indices.push_back(table.get(info.column));
  FailureOr<NodeId> value = graph.build(scatter.getGradient(), indices);
  if (failed(index) || failed(value))
    return failure();
  info.index = *index;
  info.value = *value;
  if (!target.isScalar)
    info.lanes = chooseLanes(graph, *value, info.column, columns, target);
  KernelSchedule schedule;
  schedule.stages.emplace_back().scatter = info;
  schedule.stages.back().cost = double(columns) * (3 * count + shape[0]) / 8;
  return schedule;
}

//===----------------------------------------------------------------------===//
// Lanes
//===----------------------------------------------------------------------===//

/// The nodes under `roots` that depend on `variable`, reductions' insides included.
static SmallVector<NodeId> collectVarying(const ElementGraph &graph, ArrayRef<NodeId> roots,
                                          AtomId variable) {
  llvm::SmallSetVector<NodeId, 32> found(roots.begin(), roots.end());
  for (size_t i = 0; i < found.size(); ++i)
    for (NodeId child : graph.getChildren(found[i]))
      found.insert(child);
  SmallVector<NodeId> varying;
  for (NodeId node : found)
    if (llvm::is_contained(graph.getNode(node).variables, variable))
      varying.push_back(node);
  return varying;
}

int64_t mlir::memopt::chooseLanes(const ElementGraph &graph, ArrayRef<NodeId> roots,
                                  AtomId variable, int64_t size, const ScheduleTarget &target) {
  int64_t widest = 1;
  for (NodeId id : collectVarying(graph, roots, variable)) {
    const ElementNode &node = graph.getNode(id);
    if (node.kind != ElementNode::Index && node.type.isIntOrFloat())
      widest = std::max<int64_t>(widest, llvm::divideCeil(node.type.getIntOrFloatBitWidth(), 8));
  }
  int64_t lanes = std::max<int64_t>(1, target.blockBytes / std::max<int64_t>(widest, 4));
  if (size <= lanes)
    return size;
  // Half as many lanes and no tail beat a tail.
  return size % lanes && size % (lanes / 2) == 0 ? lanes / 2 : lanes;
}

std::optional<LaneChoice> mlir::memopt::chooseReductionLanes(const ElementGraph &graph,
                                                             const ElementReduction &reduction,
                                                             const ScheduleTarget &target) {
  if (!reduction.isAssociative() || target.isScalar)
    return std::nullopt;
  std::optional<LaneChoice> best;
  int64_t bestScore = -1;
  for (auto [loop, variable] : llvm::enumerate(reduction.variables)) {
    int64_t size = graph.getTable().getSize(variable);
    if (size < 4)
      continue;
    int64_t score = 0, strided = 0;
    bool isNested = false;
    for (NodeId id : collectVarying(graph, reduction.contributions, variable)) {
      const ElementNode &node = graph.getNode(id);
      isNested |= node.kind == ElementNode::Reduce;
      if (node.kind != ElementNode::Load)
        continue;
      bool isContiguous = graph.getTable().getStride(node.address, variable) == 1;
      score += isContiguous;
      strided += !isContiguous;
    }
    // A reduction inside has lanes of its own, which may be contiguous.
    if (isNested && strided > score)
      continue;
    // Among equals the last loop: it is the longest after merging more often than not.
    if (score < bestScore)
      continue;
    bestScore = score;
    best = LaneChoice{unsigned(loop),
                      chooseLanes(graph, reduction.contributions, variable, size, target)};
  }
  return best;
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

void KernelSchedule::print(const ElementGraph &graph, raw_ostream &os) const {
  const IndexTable &table = graph.getTable();
  for (const KernelStage &stage : stages) {
    if (stage.scatter) {
      os << "stage scatter " << table.getSize(stage.scatter->token) << " tokens, columns "
         << table.getSize(stage.scatter->column) << "/" << stage.scatter->lanes << "\n";
      continue;
    }
    os << "stage rows=" << (stage.row ? table.getSize(*stage.row) : 1);
    if (stage.distributesNest)
      os << " distributes-nest";
    os << "\n";
    for (const KernelNest &nest : stage.nests) {
      os << "  nest";
      for (auto [i, loop] : llvm::enumerate(nest.loops)) {
        os << " " << table.getSize(loop);
        if (nest.vectorLoop == i)
          os << "/" << nest.lanes;
        else if (nest.tileLoop == i)
          os << "/tile " << nest.tile;
      }
      os << "\n";
      for (const KernelStore &store : nest.stores) {
        os << "    result " << store.result << " at ";
        table.print(store.address, os);
        os << "\n";
      }
    }
  }
}
