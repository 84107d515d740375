//===- KernelAliasing.cpp - results that take an operand's buffer -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A store may hit an operand's element that nobody reads later: each read is in an earlier stage;
// or belongs to the very element that is stored; or is done once per row, before the row's stores,
// and stays within the row.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Schedule/KernelAliasing.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// A load of an operand, as one nest sees it.
struct Read {
  IndexExpr address;
  /// Inside a reduction that the nest's rows take before the nest's loops.
  bool isPerRow;
};
} // namespace

static SmallVector<Read> collectReads(const ElementGraph &graph, const KernelNest &nest,
                                      unsigned operand) {
  SmallVector<Read> reads;
  llvm::DenseSet<std::pair<NodeId, unsigned>> visited;
  std::function<void(NodeId, bool)> visit = [&](NodeId id, bool isPerRow) {
    if (!visited.insert({id, isPerRow}).second)
      return;
    const ElementNode &node = graph.getNode(id);
    bool isOutside = llvm::none_of(
        nest.loops, [&](AtomId loop) { return llvm::is_contained(node.variables, loop); });
    // What depends on no loop of the nest is computed before them.
    isPerRow |= node.kind == ElementNode::Reduce && isOutside;
    if (node.kind == ElementNode::Load && node.number == operand)
      reads.push_back({node.address, isPerRow || isOutside});
    for (NodeId child : graph.getChildren(id))
      visit(child, isPerRow);
  };
  for (const KernelStore &store : nest.stores)
    visit(store.value, false);
  return reads;
}

/// Nodes of an irregular stage that read buffers.
static SmallVector<NodeId> getInputs(const KernelStage &stage) {
  if (auto *scatter = std::get_if<KernelScatter>(&stage.irregular)) {
    SmallVector<NodeId> inputs{scatter->value};
    for (const KernelScatter::Index &index : scatter->indices)
      inputs.push_back(index.node);
    return inputs;
  }
  if (auto *order = std::get_if<KernelOrder>(&stage.irregular))
    return {order->value};
  if (auto *scan = std::get_if<KernelScan>(&stage.irregular))
    return llvm::to_vector_of<NodeId>(scan->values);
  return {};
}

static bool readsBuffer(const ElementGraph &graph, ArrayRef<NodeId> roots, unsigned operand) {
  llvm::SmallSetVector<NodeId, 32> found(roots.begin(), roots.end());
  for (size_t i = 0; i < found.size(); ++i) {
    const ElementNode &node = graph.getNode(found[i]);
    if (node.kind == ElementNode::Load && node.number == operand)
      return true;
    for (NodeId child : graph.getChildren(found[i]))
      found.insert(child);
  }
  return false;
}

/// Whether `a` and `b` touch elements of one and the same row only.
static bool stayInRow(const IndexTable &table, std::optional<AtomId> row, const IndexExpr &a,
                      const IndexExpr &b) {
  if (!row)
    return true;
  std::optional<int64_t> stride = table.getStride(a, *row);
  if (!stride || *stride <= 0 || table.getStride(b, *row) != stride)
    return false;
  IndexExpr start = IndexTable::scale(table.get(*row), -*stride);
  IndexRange x = table.getRange(IndexTable::add(a, start));
  IndexRange y = table.getRange(IndexTable::add(b, start));
  return x.low >= 0 && y.low >= 0 && x.high < *stride && y.high < *stride;
}

/// Which places of lines of `stride` elements an address has; null where they may span lines.
static std::optional<IndexRange> getRangeInLine(const IndexTable &table, const IndexExpr &address,
                                                int64_t stride) {
  IndexExpr rest;
  rest.constant = address.constant;
  for (auto [atom, coefficient] : address.terms)
    if (coefficient % stride != 0)
      rest.terms.push_back({atom, coefficient});
  IndexRange range = table.getRange(rest);
  int64_t line = llvm::divideFloorSigned(range.low, stride);
  if (line != llvm::divideFloorSigned(range.high, stride))
    return std::nullopt;
  return IndexRange{range.low - line * stride, range.high - line * stride};
}

/// Whether no element is at both, as between pieces of a result that is joined of several, one
/// behind another or side by side in each line.
static bool areApart(const IndexTable &table, const IndexExpr &a, const IndexExpr &b) {
  auto areDisjoint = [](const IndexRange &x, const IndexRange &y) {
    return x.high < y.low || y.high < x.low;
  };
  if (areDisjoint(table.getRange(a), table.getRange(b)))
    return true;
  return llvm::any_of(a.terms, [&](const auto &term) {
    int64_t stride = std::abs(term.second);
    if (stride <= 1)
      return false;
    std::optional<IndexRange> x = getRangeInLine(table, a, stride);
    std::optional<IndexRange> y = getRangeInLine(table, b, stride);
    return x && y && areDisjoint(*x, *y);
  });
}

static LogicalResult checkStage(const ElementGraph &graph, const KernelStage &stage, size_t nest,
                                const KernelStore &store, unsigned operand) {
  const IndexTable &table = graph.getTable();
  for (auto [i, other] : llvm::enumerate(stage.nests)) {
    for (const Read &read : collectReads(graph, other, operand)) {
      bool isSameElement = i == nest && read.address == store.address;
      bool isBefore = i < nest || (i == nest && read.isPerRow);
      if (isSameElement || areApart(table, read.address, store.address) ||
          (isBefore && !stage.distributesNest &&
           stayInRow(table, stage.row, read.address, store.address)))
        continue;
      return failure();
    }
  }
  return success();
}

/// Moves what `isLast` holds for behind the others; the order is kept otherwise.
template <typename List, typename Predicate> static void moveLast(List &list, Predicate isLast) {
  List first, last;
  for (auto &element : list)
    (isLast(element) ? last : first).push_back(std::move(element));
  llvm::append_range(first, last);
  list = std::move(first);
}

std::optional<unsigned> mlir::memopt::orderForAliases(const ElementGraph &graph,
                                                      KernelSchedule &schedule,
                                                      ArrayRef<int64_t> resultBuffers) {
  auto isOverOperand = [&](const KernelStore &store) { return resultBuffers[store.result] >= 0; };
  auto overwrites = [&](const KernelNest &nest) {
    return llvm::any_of(nest.stores, isOverOperand);
  };
  auto anyOverwrites = [&](const KernelStage &stage) {
    return stage.isIrregular() ? resultBuffers[0] >= 0 : llvm::any_of(stage.nests, overwrites);
  };
  for (KernelStage &stage : schedule.stages)
    moveLast(stage.nests, overwrites);
  moveLast(schedule.stages, anyOverwrites);

  // What fills a kernel has one result, and reads while it writes.
  for (const KernelStage &stage : schedule.stages)
    if (stage.isIrregular() && resultBuffers[0] >= 0 &&
        readsBuffer(graph, getInputs(stage), resultBuffers[0]))
      return 0;

  for (auto [s, stage] : llvm::enumerate(schedule.stages))
    for (auto [n, nest] : llvm::enumerate(stage.nests))
      for (const KernelStore &store : nest.stores) {
        if (!isOverOperand(store))
          continue;
        unsigned operand = resultBuffers[store.result];
        bool isFine = succeeded(checkStage(graph, stage, n, store, operand));
        for (const KernelStage &later : ArrayRef(schedule.stages).drop_front(s + 1))
          for (const KernelNest &other : later.nests)
            isFine &= llvm::all_of(collectReads(graph, other, operand), [&](const Read &read) {
              return areApart(graph.getTable(), read.address, store.address);
            });
        if (!isFine)
          return store.result;
      }
  return std::nullopt;
}
