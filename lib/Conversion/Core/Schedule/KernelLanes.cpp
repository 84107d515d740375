//===- KernelLanes.cpp - lanes of loops; printing -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What of a schedule is no search: how many lanes a loop gets, and how a schedule prints.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Schedule/KernelSchedule.h"

#include "memopt/Dialect/Memopt.h"

using namespace mlir;
using namespace mlir::memopt;

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
                                  AtomId variable, int64_t size, const ScheduleRules &rules,
                                  int64_t together) {
  int64_t widest = 1, widestStored = 1;
  bool hasSums = false;
  auto widen = [](int64_t &bytes, Type type) {
    if (type.isIntOrFloat())
      bytes = std::max<int64_t>(bytes, llvm::divideCeil(type.getIntOrFloatBitWidth(), 8));
  };
  for (NodeId root : roots)
    widen(widestStored, graph.getNode(root).type);
  bool isOneAccess = size * widestStored <= rules.getNumbers().accessBytes;
  for (NodeId id : collectVarying(graph, roots, variable)) {
    const ElementNode &node = graph.getNode(id);
    if (node.kind == ElementNode::Load) {
      together = std::max(together, graph.getStorage(node).elements);
      widen(widestStored, node.type);
    }
    if (node.kind != ElementNode::Index)
      widen(widest, node.type);
    hasSums |= node.kind == ElementNode::Reduce || node.kind == ElementNode::Accumulator;
  }
  // Lanes of sums are those of their order; what is computed wide of numbers of 16 bits, and stored
  // so, fills an access with these.
  constexpr int64_t narrow = 2;
  if (!hasSums && widestStored <= narrow)
    together = std::max(together, rules.getNumbers().accessBytes / narrow);
  // A short loop is one access of one thread, and threads run along the loop around it.
  if (!hasSums && isOneAccess)
    together = std::max(together, size);
  return rules.fitLanes(size, widest, together);
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

static void printIrregular(const IndexTable &table, const KernelStage &stage, raw_ostream &os) {
  auto printSizes = [&](StringRef what, ArrayRef<AtomId> variables) {
    if (variables.empty())
      return;
    os << " " << what;
    for (AtomId variable : variables)
      os << " " << table.getSize(variable);
  };
  const KernelPoints &points = stage.getPoints();
  if (auto *scatter = std::get_if<KernelScatter>(&stage.irregular)) {
    os << "stage scatter";
    printSizes("tokens", scatter->tokens);
  } else if (auto *order = std::get_if<KernelOrder>(&stage.irregular)) {
    os << "stage order first " << table.getSize(order->place) << " of "
       << table.getSize(order->along);
  } else {
    os << "stage scan " << table.getSize(std::get<KernelScan>(stage.irregular).along);
  }
  printSizes("points", points.outer);
  if (points.column)
    os << " columns " << table.getSize(*points.column) << "/" << points.lanes;
}

void KernelSchedule::print(const ElementGraph &graph, raw_ostream &os,
                           llvm::function_ref<void(size_t stage)> printMore) const {
  const IndexTable &table = graph.getTable();
  for (auto [number, stage] : llvm::enumerate(stages)) {
    if (stage.isIrregular()) {
      printIrregular(table, stage, os);
      printMore(number);
      os << "\n";
      continue;
    }
    os << "stage rows=" << (stage.row ? table.getSize(*stage.row) : 1);
    if (stage.distributesNest)
      os << " distributes-nest";
    printMore(number);
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
