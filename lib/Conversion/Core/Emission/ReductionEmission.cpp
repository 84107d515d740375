//===- ReductionEmission.cpp - accumulators of kernels -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A reduction whose order has lanes (SumOrder.h) sums them along its own loop and folds them at the
// end, in a fixed tree; a short one may do so in each lane of an enclosing loop. Any other goes
// through its loops one number after the other, as a scalar or with one accumulator for each lane
// of an enclosing loop. Reductions of one order that are ready at the same time share their loops.
//
// On a device the lanes belong to threads of the group. Where the group has fewer, or its threads
// are at different elements, each thread makes the sum of all lanes by itself, one lane after the
// other.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/KernelEmission.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// Reductions that have to be there before the loops of `reduction`: its inside reads them, or that
/// of one that is computed in these loops.
static SmallVector<NodeId> collectInputs(const ElementGraph &graph, unsigned reduction) {
  llvm::SmallSetVector<NodeId, 32> found;
  llvm::SmallDenseSet<AtomId> inLoops;
  auto enter = [&](const ElementReduction &info) {
    found.insert(info.next.begin(), info.next.end());
    found.insert(info.initial.begin(), info.initial.end());
    inLoops.insert(info.variables.begin(), info.variables.end());
  };
  enter(graph.getReduction(reduction));
  SmallVector<NodeId> inputs;
  for (size_t i = 0; i < found.size(); ++i) {
    const ElementNode &node = graph.getNode(found[i]);
    if (node.kind != ElementNode::Reduce)
      for (NodeId child : graph.getChildren(found[i]))
        found.insert(child);
    else if (llvm::any_of(node.variables,
                          [&](AtomId variable) { return inLoops.contains(variable); }))
      enter(graph.getReduction(node.reduction));
    else
      inputs.push_back(found[i]);
  }
  return inputs;
}

bool StageEmitter::areInputsReady(unsigned reduction) {
  return llvm::all_of(collectInputs(graph, reduction), [&](NodeId input) {
    const ElementNode &node = graph.getNode(input);
    return findHome(node.variables)->reductions.contains(node.reduction);
  });
}

void StageEmitter::emitInputs(unsigned reduction) {
  for (NodeId input : collectInputs(graph, reduction))
    emitNode(input);
}

/// Reductions that can share the loops of `reduction`, itself first.
SmallVector<unsigned> StageEmitter::chooseCompanions(unsigned reduction, Scope *home) {
  SmallVector<unsigned> group{reduction};
  const ElementReduction &info = graph.getReduction(reduction);
  bool inLanes = findVectorScope(info.freeVariables) != nullptr;
  std::optional<LaneChoice> lanes = getLanesOfSum(graph, info, target);
  SmallVector<SumLoop> loops = getSumLoops(info, lanes);
  for (unsigned other : reductions) {
    const ElementReduction &candidate = graph.getReduction(other);
    if (other == reduction || candidate.variables != info.variables ||
        home->reductions.contains(other) || !bindsAll(current, candidate.freeVariables) ||
        findHome(candidate.freeVariables) != home || !areInputsReady(other))
      continue;
    if ((findVectorScope(candidate.freeVariables) != nullptr) != inLanes)
      continue;
    if (getLanesOfSum(graph, candidate, target) == lanes && getSumLoops(candidate, lanes) == loops)
      group.push_back(other);
  }
  return group;
}

Value StageEmitter::emitReduce(const ElementNode &node) {
  auto known = current->reductions.find(node.reduction);
  if (known != current->reductions.end())
    return known->second[node.number];
  emitInputs(node.reduction);
  SmallVector<unsigned> group = chooseCompanions(node.reduction, current);
  const ElementReduction &info = graph.getReduction(node.reduction);
  Scope *lanesOf = findVectorScope(info.freeVariables);
  std::optional<LaneChoice> choice = getLanesOfSum(graph, info, target);
  if (!choice)
    emitSequential(group, lanesOf);
  else if (target.isDevice() &&
           (lanesOf || areThreadsApart() || choice->threads > stage.groupThreads))
    emitLaneByLane(group, *choice, lanesOf);
  else if (lanesOf)
    emitFolded(group, lanesOf);
  else
    emitInLanes(group, *choice);
  return current->reductions.find(node.reduction)->second[node.number];
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

Value StageEmitter::combine(const Combiner &combiner, Value a, Value b) {
  OperationState state(location, combiner.name);
  state.addOperands({a, b});
  state.addAttributes(cast<DictionaryAttr>(combiner.attributes).getValue());
  state.addTypes(a.getType());
  return builder.create(state)->getResult(0);
}

Value StageEmitter::emitNeutral(const Combiner &combiner, int64_t lanes) {
  TypedAttr value = combiner.neutral;
  if (auto integer = dyn_cast<IntegerAttr>(value); integer && integer.getType().isIndex())
    value = builder.getI64IntegerAttr(integer.getInt());
  if (lanes)
    value = DenseElementsAttr::get(cast<ShapedType>(getVectorType(value.getType(), lanes)),
                                   ArrayRef<Attribute>(value));
  return arith::ConstantOp::create(builder, location, value);
}

/// Null for what is not associative.
SmallVector<const Combiner *> StageEmitter::getCombiners(ArrayRef<unsigned> group) {
  SmallVector<const Combiner *> combiners;
  for (unsigned reduction : group)
    for (const std::optional<Combiner> &combiner : graph.getReduction(reduction).combiners)
      combiners.push_back(combiner ? &*combiner : nullptr);
  return combiners;
}

/// One iteration of all loops: new accumulators from `carried`.
SmallVector<Value> StageEmitter::emitOneIteration(ArrayRef<unsigned> group, bool inLanes,
                                                  ValueRange carried) {
  SmallVector<Value> next;
  for (unsigned reduction : group) {
    const ElementReduction &info = graph.getReduction(reduction);
    ValueRange own = carried.slice(next.size(), info.next.size());
    if (inLanes) {
      for (auto [contribution, combiner, accumulator] :
           llvm::zip_equal(info.contributions, info.combiners, own)) {
        Value value = emitLanesOf(contribution, current->lanes);
        value = widen(value, emitNeutral(*combiner, getLanes(accumulator)));
        next.push_back(combine(*combiner, accumulator, value));
      }
      continue;
    }
    // The body reads the accumulators where the innermost loop binds them.
    for (auto [node, accumulator] : llvm::zip_equal(info.accumulators, own))
      current->nodes[node] = accumulator;
    for (auto [node, accumulator] : llvm::zip_equal(info.next, own)) {
      Value value = emitNode(node);
      if (isa<VectorType>(accumulator.getType()))
        value = splat(value, getLanes(accumulator));
      next.push_back(value);
    }
  }
  return next;
}

/// Runs a loop of many additions as blocks of `block`, whose sums are added.
SmallVector<Value> StageEmitter::emitInBlocks(ArrayRef<unsigned> group, int64_t size, int64_t block,
                                              ValueRange carried, LoopFn body) {
  SmallVector<const Combiner *> combiners = getCombiners(group);
  return emitLoop(constant(0), constant(size), block, carried, [&](Value first, ValueRange totals) {
    ScopeGuard blockScope(*this);
    Value last = arith::AddIOp::create(builder, location, first, constant(block));
    last = arith::MinSIOp::create(builder, location, last, constant(size));
    SmallVector<Value> neutral;
    for (auto [combiner, total] : llvm::zip_equal(combiners, totals))
      neutral.push_back(
          emitNeutral(*combiner, isa<VectorType>(total.getType()) ? getLanes(total) : 0));
    SmallVector<Value> sums = emitLoop(first, last, 1, neutral, body);
    for (auto [combiner, total, sum] : llvm::zip_equal(combiners, totals, sums))
      sum = combine(*combiner, total, sum);
    return sums;
  });
}

StageEmitter::GroupLoops StageEmitter::getLoops(ArrayRef<unsigned> group,
                                                std::optional<LaneChoice> choice) {
  return {group, getSumLoops(graph.getReduction(group.front()), choice), choice};
}

/// The loop over lanes, from `base` on, which is a multiple of its size: rounds of all lanes, then
/// what is left.
SmallVector<Value> StageEmitter::emitLaneRun(const GroupLoops &all, Value base,
                                             ValueRange carried) {
  const SumLoop &loop = all.loops.back();
  int64_t width = all.choice->getWidth(), rounds = loop.size / width, rest = loop.size % width;
  auto emitRound = [&](Value first, int64_t count, ValueRange arguments) {
    if (base)
      first = arith::AddIOp::create(builder, location, base, first);
    return target.isDevice() ? emitThreadRound(all, first, count, arguments)
                             : emitRoundOfLanes(all, first, count, arguments);
  };
  if (!loop.block)
    return emitLaneBlocks(loop.size, width, carried, emitRound);
  SmallVector<Value> totals =
      emitInBlocks(all.group, rounds, loop.block, carried, [&](Value round, ValueRange arguments) {
        Value first = arith::MulIOp::create(builder, location, round, constant(width));
        return emitRound(first, width, arguments);
      });
  return rest ? emitRound(constant(rounds * width), rest, totals) : totals;
}

/// The first `count` lanes, of numbers from `first` on.
SmallVector<Value> StageEmitter::emitRoundOfLanes(const GroupLoops &all, Value first, int64_t count,
                                                  ValueRange carried) {
  if (all.choice->isOneByOne)
    return emitOneByOne(all, first, count, carried);
  const SumLoop &loop = all.loops.back();
  int64_t lanes = all.choice->lanes;
  bool isWhole = llvm::count_if(all.loops, [&](const SumLoop &other) {
                   return other.variable == loop.variable;
                 }) == 1;
  int64_t step = isWhole ? lanes : std::gcd(loop.size, lanes);
  return emitBlock(all.getLaneVariable(graph), first, count, step, carried, [&](ValueRange sums) {
    return emitOneIteration(all.group, /*inLanes=*/true, sums);
  });
}

/// Sums inside have lanes of their own, so these are filled by a loop.
SmallVector<Value> StageEmitter::emitOneByOne(const GroupLoops &all, Value first, int64_t lanes,
                                              ValueRange carried) {
  AtomId variable = all.getLaneVariable(graph);
  SmallVector<const Combiner *> combiners = getCombiners(all.group);
  // Of the loop over blocks, if there is one.
  ScopeGuard blockScope(*this);
  SmallVector<Value> filled;
  for (const Combiner *combiner : combiners)
    filled.push_back(emitNeutral(*combiner, lanes));
  filled = emitLoop(constant(0), constant(lanes), 1, filled, [&](Value lane, ValueRange arguments) {
    ScopeGuard scope(*this);
    scope->variables.push_back({variable, arith::AddIOp::create(builder, location, first, lane)});
    SmallVector<Value> next(arguments);
    size_t number = 0;
    for (unsigned reduction : all.group)
      for (NodeId contribution : graph.getReduction(reduction).contributions) {
        Value &vector = next[number++];
        vector =
            LLVM::InsertElementOp::create(builder, location, vector, emitNode(contribution), lane);
      }
    return next;
  });
  for (auto [combiner, value, accumulator] : llvm::zip_equal(combiners, filled, carried)) {
    value = widen(value, emitNeutral(*combiner, getLanes(accumulator)));
    value = combine(*combiner, accumulator, value);
  }
  return filled;
}

/// `base`: of the variable that the loop runs over, what loops around it have made of it; null: 0.
SmallVector<Value> StageEmitter::emitReductionLoops(const GroupLoops &all, size_t level, Value base,
                                                    ValueRange carried) {
  if (level == all.loops.size())
    return emitOneIteration(all.group, /*inLanes=*/false, carried);
  const SumLoop &loop = all.loops[level];
  AtomId variable = graph.getReduction(all.group.front()).variables[loop.variable];
  bool isWhole = level + 1 == all.loops.size() || all.loops[level + 1].variable != loop.variable;
  if (loop.isInLanes)
    return emitLaneRun(all, base, carried);
  auto body = [&](Value iteration, ValueRange arguments) {
    ScopeGuard scope(*this);
    Value value = iteration;
    if (loop.stride != 1)
      value = arith::MulIOp::create(builder, location, value, constant(loop.stride));
    if (base)
      value = arith::AddIOp::create(builder, location, base, value);
    if (isWhole)
      scope->variables.push_back({variable, value});
    return emitReductionLoops(all, level + 1, isWhole ? Value() : value, arguments);
  };
  if (loop.block)
    return emitInBlocks(all.group, loop.size, loop.block, carried, body);
  return emitLoop(constant(0), constant(loop.size), 1, carried, body);
}

/// Every accumulator as its body has it, with the lanes of `lanesOf` or as scalars.
void StageEmitter::emitSequential(ArrayRef<unsigned> group, Scope *lanesOf) {
  SmallVector<Value> carried;
  for (unsigned reduction : group)
    for (NodeId initial : graph.getReduction(reduction).initial) {
      Value value = emitNode(initial);
      carried.push_back(lanesOf ? splat(value, lanesOf->lanes) : value);
    }
  SmallVector<Value> results =
      emitReductionLoops(getLoops(group, std::nullopt), 0, Value(), carried);
  size_t next = 0;
  for (unsigned reduction : group) {
    SmallVector<Value> &own = current->reductions[reduction];
    for (size_t i = 0; i < graph.getReduction(reduction).next.size(); ++i)
      own.push_back(results[next++]);
  }
}

//===----------------------------------------------------------------------===//
// Lanes along the reduction
//===----------------------------------------------------------------------===//

/// Fills a shorter vector up with `neutral`, which has the wanted length.
Value StageEmitter::widen(Value value, Value neutral) {
  int64_t lanes = getLanes(value), wanted = getLanes(neutral);
  if (lanes == wanted)
    return value;
  // Shuffles take vectors of one length: first lengthen with anything, then choose.
  SmallVector<int32_t> lengthen(wanted, -1), choose;
  for (int64_t i = 0; i < wanted; ++i) {
    if (i < lanes)
      lengthen[i] = i;
    choose.push_back(i < lanes ? i : wanted + i);
  }
  Value poison = LLVM::PoisonOp::create(builder, location, value.getType());
  value = LLVM::ShuffleVectorOp::create(builder, location, value, poison, lengthen);
  return LLVM::ShuffleVectorOp::create(builder, location, value, neutral, choose);
}

/// Folds the upper half onto the lower until one lane is left.
Value StageEmitter::combineLanes(const Combiner &combiner, Value value) {
  if (!isa<VectorType>(value.getType()))
    return value;
  int64_t lanes = llvm::PowerOf2Ceil(getLanes(value));
  if (lanes != getLanes(value))
    value = widen(value, emitNeutral(combiner, lanes));
  Value poison = LLVM::PoisonOp::create(builder, location, value.getType());
  for (; lanes > 1; lanes /= 2) {
    auto low = llvm::to_vector(llvm::seq<int32_t>(0, lanes / 2));
    auto high = llvm::to_vector(llvm::seq<int32_t>(lanes / 2, lanes));
    poison = LLVM::PoisonOp::create(builder, location, value.getType());
    Value a = LLVM::ShuffleVectorOp::create(builder, location, value, poison, low);
    Value b = LLVM::ShuffleVectorOp::create(builder, location, value, poison, high);
    value = combine(combiner, a, b);
  }
  return LLVM::ExtractElementOp::create(builder, location, value, constant(0));
}

/// What the reductions began with and `sums`, each as many as `lanesOf` has lanes, or one.
void StageEmitter::setResults(ArrayRef<unsigned> group, ArrayRef<Value> sums, Scope *lanesOf) {
  for (unsigned reduction : group) {
    const ElementReduction &info = graph.getReduction(reduction);
    SmallVector<Value> results;
    for (auto [initial, combiner] : llvm::zip_equal(info.initial, info.combiners)) {
      Value before = emitNode(initial);
      if (lanesOf)
        before = splat(before, lanesOf->lanes);
      results.push_back(combine(*combiner, before, sums.front()));
      sums = sums.drop_front();
    }
    current->reductions[reduction] = results;
  }
}

void StageEmitter::emitInLanes(ArrayRef<unsigned> group, LaneChoice choice) {
  SmallVector<const Combiner *> combiners = getCombiners(group);
  SmallVector<Value> carried;
  for (const Combiner *combiner : combiners)
    carried.push_back(emitNeutral(*combiner, choice.lanes));
  SmallVector<Value> sums = emitReductionLoops(getLoops(group, choice), 0, Value(), carried);
  if (choice.threads > 1)
    combineThreads(combiners, sums, choice.threads);
  for (auto [combiner, sum] : llvm::zip_equal(combiners, sums))
    sum = combineLanes(*combiner, sum);
  setResults(group, sums, /*lanesOf=*/nullptr);
}

/// The same in each lane of a loop around it: the lanes of a short sum are values.
void StageEmitter::emitFolded(ArrayRef<unsigned> group, Scope *lanesOf) {
  AtomId variable = graph.getReduction(group.front()).variables.front();
  SmallVector<const Combiner *> combiners = getCombiners(group);
  SmallVector<SmallVector<Value>> lanes(combiners.size());
  for (int64_t i = 0, e = table.getSize(variable); i < e; ++i) {
    ScopeGuard scope(*this);
    scope->variables.push_back({variable, constant(i)});
    size_t next = 0;
    for (unsigned reduction : group)
      for (NodeId contribution : graph.getReduction(reduction).contributions) {
        Value neutral = emitNeutral(*combiners[next], lanesOf->lanes);
        Value value = splat(emitNode(contribution), lanesOf->lanes);
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
Value StageEmitter::fold(const Combiner &combiner, SmallVector<Value> lanes) {
  Value neutral = emitNeutral(combiner, getLanes(lanes.front()));
  lanes.resize(llvm::PowerOf2Ceil(lanes.size()), neutral);
  for (size_t half = lanes.size() / 2; half; half /= 2)
    for (size_t i = 0; i < half; ++i)
      lanes[i] = combine(combiner, lanes[i], lanes[i + half]);
  return lanes.front();
}
