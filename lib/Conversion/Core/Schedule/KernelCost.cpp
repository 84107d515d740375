//===- KernelCost.cpp - the price of a loop nest -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The prices need only be right in order: a gather costs more than a load, a reduction per element
// more than one per row.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Schedule/KernelCost.h"

#include "memopt/Conversion/Core/Schedule/SumOrder.h"

#include "memopt/Dialect/Kernels/ScalarWeights.h"

using namespace mlir;
using namespace mlir::memopt;

StageCost::StageCost(const ElementGraph &graph, std::optional<AtomId> row,
                     const ScheduleRules &rules)
    : graph(graph), rules(rules), numbers(rules.getNumbers()) {
  if (row)
    push(*row, std::nullopt);
  sharedDepth = scopes.size();
}

void StageCost::push(ArrayRef<AtomId> variables, std::optional<AtomId> vector) {
  Scope scope{SmallVector<AtomId, 4>(variables), 1, vector, 1, 1, 1};
  for (AtomId variable : variables)
    scope.trips *= graph.getTable().getSize(variable);
  if (vector) {
    double size = graph.getTable().getSize(*vector);
    scope.lanes = size / std::ceil(size / numbers.lanes);
  }
  scope.total = scope.trips * (scopes.empty() ? 1 : scopes.back().total);
  scopes.push_back(std::move(scope));
  double together = scopes.back().lanes;
  if (numbers.lanesMultiply)
    for (const Scope &outer : ArrayRef(scopes).drop_back())
      together *= outer.lanes * outer.threads;
  // Counting, comparing, branching.
  sum += 0.5 * scopes.back().total / together;
}

size_t StageCost::getDepth(ArrayRef<AtomId> variables) const {
  for (size_t depth = scopes.size(); depth > 0; --depth)
    for (AtomId variable : scopes[depth - 1].variables)
      if (llvm::is_contained(variables, variable))
        return depth;
  return 0;
}

double StageCost::price(const KernelNest &nest, bool keep) {
  double before = sum;
  size_t base = scopes.size();
  seen = shared;
  seenAtoms.clear();
  staged = llvm::DenseSet<NodeId>(nest.staged.begin(), nest.staged.end());
  threadLoop = findThreadLoop(nest);
  lanesOfThread = nest.lanes;
  sharedPrice = rowPrice = 0;
  double threads = threadLoop ? numbers.lanes / double(nest.lanes) : 1;
  for (auto [i, loop] : llvm::enumerate(nest.loops)) {
    push(loop, nest.vectorLoop == i ? std::optional(loop) : std::nullopt);
    if (loop == threadLoop)
      scopes.back().threads = threads;
  }
  for (const KernelStore &store : nest.stores) {
    visit(store.value);
    visitQuotients(store.address);
    std::optional<AtomId> vector;
    if (nest.vectorLoop)
      vector = nest.loops[*nest.vectorLoop];
    double lanes = vector ? scopes[base + *nest.vectorLoop].lanes : 1;
    double all = scopes.empty() ? 1 : scopes.back().total;
    sum += all / (lanes * threads) * priceOfAddress(store.address, vector);
  }
  scopes.truncate(base);
  if (keep) {
    for (NodeId node : seen)
      if (getDepth(graph.getNode(node).variables) <= sharedDepth)
        shared.insert(node);
  }
  double price = sum - before;
  sum = before;
  return price;
}

std::optional<AtomId> StageCost::findThreadLoop(const KernelNest &nest) const {
  unsigned last = nest.vectorLoop.value_or(0);
  if (!numbers.lanesMultiply || last == 0 || nest.tileLoop || nest.lanes == 1 ||
      graph.getTable().getSize(nest.loops[last]) != nest.lanes)
    return std::nullopt;
  return nest.loops[last - 1];
}

double StageCost::priceOfAddress(const IndexExpr &address, std::optional<AtomId> vector) const {
  if (!vector)
    return 1;
  std::optional<int64_t> stride = graph.getTable().getStride(address, *vector);
  if (threadLoop) {
    std::optional<int64_t> ofThreads = graph.getTable().getStride(address, *threadLoop);
    if (ofThreads && (stride == 1 ? *ofThreads == lanesOfThread : *ofThreads == 1))
      return 1;
  }
  if (stride && (*stride == 0 || *stride == 1))
    return 1;
  return stride ? numbers.strided : numbers.scattered;
}

double StageCost::getWeight(NodeId id, std::optional<AtomId> vector) const {
  const ElementNode &node = graph.getNode(id);
  switch (node.kind) {
  case ElementNode::Load:
    if (staged.contains(id))
      return 4; // load, transpose, store, load
    return priceOfAddress(node.address, vector);
  case ElementNode::Index:
    return priceOfAddress(node.address, vector) > 1 ? 8 : 0.2;
  case ElementNode::Apply:
    return getScalarWeights(getScalarCost(*node.name)).instructions;
  default:
    return 0;
  }
}

/// A division is a multiplication and shifts, in the innermost loop of its variables.
void StageCost::visitQuotients(const IndexExpr &address) {
  for (auto [id, coefficient] : address.terms) {
    const IndexAtom &atom = graph.getTable().getAtom(id);
    if (atom.kind != IndexAtom::Quotient || !seenAtoms.insert(id).second)
      continue;
    size_t depth = getDepth(atom.variables);
    double trips = depth ? scopes[depth - 1].total / scopes[depth - 1].lanes : 1;
    sum += 4 * trips;
    visitQuotients(atom.dividend);
  }
}

void StageCost::visit(NodeId id) {
  if (!seen.insert(id).second)
    return;
  const ElementNode &node = graph.getNode(id);
  size_t depth = getDepth(node.variables);
  if (node.kind == ElementNode::Reduce)
    return visitReduction(id, depth);
  for (NodeId child : graph.getChildren(id))
    visit(child);
  visitQuotients(node.address);
  double trips = depth ? scopes[depth - 1].total : 1;
  std::optional<AtomId> vector;
  for (const Scope &scope : ArrayRef(scopes).take_front(depth)) {
    trips /= scope.threads;
    if (scope.vector && llvm::is_contained(node.variables, *scope.vector)) {
      vector = scope.vector;
      trips /= scope.lanes;
    } else if (scope.vector) {
      // Uniform across lanes: once per block.
      trips /= scope.lanes;
    }
  }
  double price = trips * getWeight(id, vector);
  sum += price;
  if (node.kind == ElementNode::Apply && depth != 0 && depth <= sharedDepth)
    rowPrice += price;
}

void StageCost::visitReduction(NodeId id, size_t depth) {
  const ElementNode &node = graph.getNode(id);
  const ElementReduction &reduction = graph.getReduction(node.reduction);
  // All results of a reduction come from the same loops.
  for (NodeId initial : reduction.initial)
    visit(initial);
  SmallVector<Scope> inner(scopes.begin() + depth, scopes.end());
  scopes.truncate(depth);
  double before = sum;
  bool inLanes = llvm::any_of(scopes, [&](const Scope &scope) {
    return scope.vector && llvm::is_contained(node.variables, *scope.vector);
  });
  std::optional<LaneChoice> lanes;
  if (!inLanes && !rules.isScalar())
    lanes = getLanesOfSum(graph, reduction, rules);
  for (auto [i, variable] : llvm::enumerate(reduction.variables))
    push(variable,
         lanes && lanes->loop == i && !lanes->isOneByOne ? std::optional(variable) : std::nullopt);
  for (NodeId next : reduction.next)
    visit(next);
  scopes.truncate(depth);
  scopes.append(inner);
  if (depth <= sharedDepth)
    sharedPrice += sum - before;
}
