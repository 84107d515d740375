//===- KernelCost.h - the price of a loop nest -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_SCHEDULE_KERNELCOST_H
#define MEMOPT_CONVERSION_CORE_SCHEDULE_KERNELCOST_H

#include "memopt/Conversion/Core/Schedule/KernelSchedule.h"

namespace mlir::memopt {

/// Prices the nests of one stage in units of one scalar instruction. What a row computes once is
/// counted for the first nest that needs it.
class StageCost {
public:
  StageCost(const ElementGraph &graph, std::optional<AtomId> row, const ScheduleRules &rules);

  /// The price of all rows of `nest`; with `keep` later nests get what its rows compute for
  /// nothing.
  double price(const KernelNest &nest, bool keep);
  /// The part of the last nest's price that is spent on reductions outside its own loops.
  double getSharedPrice() const { return sharedPrice; }
  /// The part that is spent on scalars of the row alone.
  double getRowPrice() const { return rowPrice; }

private:
  struct Scope {
    SmallVector<AtomId, 4> variables;
    double trips;
    std::optional<AtomId> vector;
    double lanes = 1;
    double threads = 1; ///< that run along it, where each has lanes of another loop
    double total;       ///< iterations of this scope over the whole stage, in elements
  };
  void push(ArrayRef<AtomId> variables, std::optional<AtomId> vector);
  void visit(NodeId node);
  void visitQuotients(const IndexExpr &address);
  void visitReduction(NodeId node, size_t depth);
  /// Number of scopes up to the innermost whose variable the node depends on.
  size_t getDepth(ArrayRef<AtomId> variables) const;
  double getWeight(NodeId node, std::optional<AtomId> vector) const;
  double priceOfAddress(const IndexExpr &address, std::optional<AtomId> vector) const;
  /// The loop that threads run along where each has all lanes of the vector loop of `nest`.
  std::optional<AtomId> findThreadLoop(const KernelNest &nest) const;

  const ElementGraph &graph;
  const ScheduleRules &rules;
  const ScheduleNumbers &numbers;
  SmallVector<Scope> scopes;
  llvm::DenseSet<NodeId> shared, seen, staged;
  llvm::DenseSet<AtomId> seenAtoms;
  size_t sharedDepth = 0;
  std::optional<AtomId> threadLoop; ///< of the nest that is priced
  int64_t lanesOfThread = 1;
  double sum = 0, sharedPrice = 0, rowPrice = 0;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_SCHEDULE_KERNELCOST_H
