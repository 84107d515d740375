//===- LoopSums.cpp - sums of processors -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoopSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

void LoopSums::emitWithLanes(ArrayRef<unsigned> group, const LaneChoice &choice, Scope *lanesOf) {
  if (lanesOf)
    emitFolded(group, lanesOf);
  else
    emitInLanes(group, choice);
}

/// The first `count` lanes, of numbers from `first` on.
SmallVector<Value> LoopSums::emitRound(const GroupLoops &all, Value first, int64_t count,
                                       ValueRange carried) {
  if (all.choice->isOneByOne)
    return emitOneByOne(all, first, count, carried);
  const SumLoop &loop = all.loops.back();
  int64_t lanes = all.choice->lanes;
  bool isWhole = llvm::count_if(all.loops, [&](const SumLoop &other) {
                   return other.variable == loop.variable;
                 }) == 1;
  int64_t step = isWhole ? lanes : std::gcd(loop.size, lanes);
  return nodes.emitBlock(
      all.getLaneVariable(graph), first, count, step, carried,
      [&](ValueRange sums) { return emitOneIteration(all.group, /*inLanes=*/true, sums); });
}

/// Sums inside have lanes of their own, so these are filled by a loop.
SmallVector<Value> LoopSums::emitOneByOne(const GroupLoops &all, Value first, int64_t lanes,
                                          ValueRange carried) {
  AtomId variable = all.getLaneVariable(graph);
  SmallVector<const Combiner *> combiners = getCombiners(all.group);
  // Of the loop over blocks, if there is one.
  ScopeGuard blockScope(nodes);
  SmallVector<Value> filled;
  for (const Combiner *combiner : combiners)
    filled.push_back(emitNeutral(*combiner, lanes));
  filled = nodes.emitLoop(
      constant(0), constant(lanes), 1, filled, [&](Value lane, ValueRange arguments) {
        ScopeGuard scope(nodes);
        scope->variables.push_back(
            {variable, arith::AddIOp::create(builder, location, first, lane)});
        SmallVector<Value> next(arguments);
        size_t number = 0;
        for (unsigned reduction : all.group)
          for (NodeId contribution : graph.getReduction(reduction).contributions) {
            Value &vector = next[number++];
            vector = LLVM::InsertElementOp::create(builder, location, vector,
                                                   nodes.emitNode(contribution), lane);
          }
        return next;
      });
  for (auto [combiner, value, accumulator] : llvm::zip_equal(combiners, filled, carried)) {
    value = widen(value, emitNeutral(*combiner, getLanes(accumulator)));
    value = combine(*combiner, accumulator, value);
  }
  return filled;
}

/// The same in each lane of a loop around it: the lanes of a short sum are values.
void LoopSums::emitFolded(ArrayRef<unsigned> group, Scope *lanesOf) {
  AtomId variable = graph.getReduction(group.front()).variables.front();
  SmallVector<const Combiner *> combiners = getCombiners(group);
  SmallVector<SmallVector<Value>> lanes(combiners.size());
  for (int64_t i = 0, e = table.getSize(variable); i < e; ++i) {
    ScopeGuard scope(nodes);
    scope->variables.push_back({variable, constant(i)});
    size_t next = 0;
    for (unsigned reduction : group)
      for (NodeId contribution : graph.getReduction(reduction).contributions) {
        Value neutral = emitNeutral(*combiners[next], lanesOf->lanes);
        Value value = splat(nodes.emitNode(contribution), lanesOf->lanes);
        lanes[next].push_back(combine(*combiners[next], neutral, value));
        ++next;
      }
  }
  SmallVector<Value> sums;
  for (auto [combiner, own] : llvm::zip_equal(combiners, lanes))
    sums.push_back(fold(*combiner, std::move(own)));
  setResults(group, sums, lanesOf);
}

/// As combineLanes does it.
Value LoopSums::fold(const Combiner &combiner, SmallVector<Value> lanes) {
  Value neutral = emitNeutral(combiner, getLanes(lanes.front()));
  lanes.resize(llvm::PowerOf2Ceil(lanes.size()), neutral);
  for (size_t half = lanes.size() / 2; half; half /= 2)
    for (size_t i = 0; i < half; ++i)
      lanes[i] = combine(combiner, lanes[i], lanes[i + half]);
  return lanes.front();
}
