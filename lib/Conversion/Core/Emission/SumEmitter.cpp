//===- SumEmitter.cpp - reductions of kernels --------------*- C++ -*-===//
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
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/SumEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::memopt;

/// How many reductions, itself included, the longest chain has that `reduction` is made of.
static unsigned measureDepth(const ElementGraph &graph, unsigned reduction,
                             const llvm::DenseMap<unsigned, unsigned> &depthsBefore) {
  const ElementReduction &info = graph.getReduction(reduction);
  llvm::SmallSetVector<NodeId, 32> found(info.next.begin(), info.next.end());
  found.insert(info.initial.begin(), info.initial.end());
  unsigned depth = 1;
  for (size_t i = 0; i < found.size(); ++i) {
    const ElementNode &node = graph.getNode(found[i]);
    if (node.kind == ElementNode::Reduce)
      depth = std::max(depth, depthsBefore.lookup(node.reduction) + 1);
    else
      for (NodeId child : graph.getChildren(found[i]))
        found.insert(child);
  }
  return depth;
}

SumEmitter::SumEmitter(NodeEmitter &nodes, const KernelStage &stage, const ScheduleRules &rules)
    : EmitterPart(nodes), rules(rules), reductions(collectReductions(graph, stage)) {
  for (unsigned reduction : reductions)
    depths[reduction] = measureDepth(graph, reduction, depths);
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// Reductions that have to be there before the loops of `reduction`: its inside reads them, or that
/// of one that is computed in these loops. `hasInner`: whether there are such.
static SmallVector<NodeId> collectInputs(const ElementGraph &graph, unsigned reduction,
                                         bool *hasInner = nullptr) {
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
    if (node.kind != ElementNode::Reduce) {
      for (NodeId child : graph.getChildren(found[i]))
        found.insert(child);
    } else if (llvm::any_of(node.variables,
                            [&](AtomId variable) { return inLoops.contains(variable); })) {
      enter(graph.getReduction(node.reduction));
      if (hasInner)
        *hasInner = true;
    } else {
      inputs.push_back(found[i]);
    }
  }
  return inputs;
}

bool SumEmitter::areInputsReady(unsigned reduction) {
  return llvm::all_of(collectInputs(graph, reduction), [&](NodeId input) {
    const ElementNode &node = graph.getNode(input);
    return nodes.findHome(node.variables)->reductions.contains(node.reduction);
  });
}

/// Whether others are computed in the loops of `reduction`.
bool SumEmitter::hasInnerReductions(unsigned reduction) {
  bool hasInner = false;
  collectInputs(graph, reduction, &hasInner);
  return hasInner;
}

void SumEmitter::emitInputs(unsigned reduction) {
  for (NodeId input : collectInputs(graph, reduction))
    nodes.emitNode(input);
}

/// Reductions that can share the loops of `reduction`, itself first.
SmallVector<unsigned> SumEmitter::chooseCompanions(unsigned reduction, Scope *home) {
  SmallVector<unsigned> group{reduction};
  const ElementReduction &info = graph.getReduction(reduction);
  bool inLanes = nodes.findVectorScope(info.freeVariables) != nullptr;
  std::optional<LaneChoice> lanes = getLanesOfSum(graph, info, rules);
  SmallVector<SumLoop> loops = getSumLoops(info, lanes);
  for (unsigned other : reductions) {
    const ElementReduction &candidate = graph.getReduction(other);
    if (other == reduction || candidate.variables != info.variables ||
        home->reductions.contains(other) ||
        !nodes.bindsAll(nodes.current, candidate.freeVariables) ||
        nodes.findHome(candidate.freeVariables) != home || !areInputsReady(other))
      continue;
    if ((nodes.findVectorScope(candidate.freeVariables) != nullptr) != inLanes)
      continue;
    // A deeper one may be made of this one, for each turn of a loop of its own: it would ask for
    // itself there.
    if (depths.lookup(other) > depths.lookup(reduction) && hasInnerReductions(other))
      continue;
    if (getLanesOfSum(graph, candidate, rules) == lanes && getSumLoops(candidate, lanes) == loops)
      group.push_back(other);
  }
  return group;
}

Value SumEmitter::emit(const ElementNode &node) {
  auto known = nodes.current->reductions.find(node.reduction);
  if (known != nodes.current->reductions.end())
    return known->second[node.number];
  emitInputs(node.reduction);
  SmallVector<unsigned> group = chooseCompanions(node.reduction, nodes.current);
  const ElementReduction &info = graph.getReduction(node.reduction);
  Scope *lanesOf = nodes.findVectorScope(info.freeVariables);
  std::optional<LaneChoice> choice = getLanesOfSum(graph, info, rules);
  if (!choice)
    emitSequential(group, lanesOf);
  else
    emitWithLanes(group, *choice, lanesOf);
  return nodes.current->reductions.find(node.reduction)->second[node.number];
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

Value SumEmitter::combine(const Combiner &combiner, Value a, Value b) {
  OperationState state(location, combiner.name);
  state.addOperands({a, b});
  state.addAttributes(cast<DictionaryAttr>(combiner.attributes).getValue());
  state.addTypes(a.getType());
  return builder.create(state)->getResult(0);
}

Value SumEmitter::emitNeutral(const Combiner &combiner, int64_t lanes) {
  TypedAttr value = combiner.neutral;
  if (auto integer = dyn_cast<IntegerAttr>(value); integer && integer.getType().isIndex())
    value = builder.getI64IntegerAttr(integer.getInt());
  if (lanes)
    value = DenseElementsAttr::get(cast<ShapedType>(getVectorType(value.getType(), lanes)),
                                   ArrayRef<Attribute>(value));
  return arith::ConstantOp::create(builder, location, value);
}

/// Null for what is not associative.
SmallVector<const Combiner *> SumEmitter::getCombiners(ArrayRef<unsigned> group) {
  SmallVector<const Combiner *> combiners;
  for (unsigned reduction : group)
    for (const std::optional<Combiner> &combiner : graph.getReduction(reduction).combiners)
      combiners.push_back(combiner ? &*combiner : nullptr);
  return combiners;
}

/// One iteration of all loops: new accumulators from `carried`.
SmallVector<Value> SumEmitter::emitOneIteration(ArrayRef<unsigned> group, bool inLanes,
                                                ValueRange carried) {
  SmallVector<Value> next;
  for (unsigned reduction : group) {
    const ElementReduction &info = graph.getReduction(reduction);
    ValueRange own = carried.slice(next.size(), info.next.size());
    if (inLanes) {
      for (auto [contribution, combiner, accumulator] :
           llvm::zip_equal(info.contributions, info.combiners, own)) {
        Value value = nodes.emitLanesOf(contribution, nodes.current->lanes);
        value = widen(value, emitNeutral(*combiner, getLanes(accumulator)));
        next.push_back(combine(*combiner, accumulator, value));
      }
      continue;
    }
    // The body reads the accumulators where the innermost loop binds them.
    for (auto [node, accumulator] : llvm::zip_equal(info.accumulators, own))
      nodes.current->nodes[node] = accumulator;
    for (auto [node, accumulator] : llvm::zip_equal(info.next, own)) {
      Value value = nodes.emitNode(node);
      if (isa<VectorType>(accumulator.getType()))
        value = splat(value, getLanes(accumulator));
      next.push_back(value);
    }
  }
  return next;
}

/// Runs a loop of many additions as blocks of `block`, whose sums are added.
SmallVector<Value> SumEmitter::emitInBlocks(ArrayRef<unsigned> group, int64_t size, int64_t block,
                                            ValueRange carried, LoopFn body) {
  SmallVector<const Combiner *> combiners = getCombiners(group);
  return nodes.emitLoop(
      constant(0), constant(size), block, carried, [&](Value first, ValueRange totals) {
        ScopeGuard blockScope(nodes);
        Value last = arith::AddIOp::create(builder, location, first, constant(block));
        last = arith::MinSIOp::create(builder, location, last, constant(size));
        SmallVector<Value> neutral;
        for (auto [combiner, total] : llvm::zip_equal(combiners, totals))
          neutral.push_back(
              emitNeutral(*combiner, isa<VectorType>(total.getType()) ? getLanes(total) : 0));
        SmallVector<Value> sums = nodes.emitLoop(first, last, 1, neutral, body);
        for (auto [combiner, total, sum] : llvm::zip_equal(combiners, totals, sums))
          sum = combine(*combiner, total, sum);
        return sums;
      });
}

SumEmitter::GroupLoops SumEmitter::getLoops(ArrayRef<unsigned> group,
                                            std::optional<LaneChoice> choice) {
  return {group, getSumLoops(graph.getReduction(group.front()), choice), choice};
}

/// The loop over lanes, from `base` on, which is a multiple of its size: rounds of all lanes, then
/// what is left.
SmallVector<Value> SumEmitter::emitLaneRun(const GroupLoops &all, Value base, ValueRange carried) {
  const SumLoop &loop = all.loops.back();
  int64_t width = all.choice->getWidth(), rounds = loop.size / width, rest = loop.size % width;
  auto emitRoundAt = [&](Value first, int64_t count, ValueRange arguments) {
    if (base)
      first = arith::AddIOp::create(builder, location, base, first);
    return emitRound(all, first, count, arguments);
  };
  if (!loop.block)
    return nodes.emitLaneBlocks(loop.size, width, carried, emitRoundAt);
  SmallVector<Value> totals =
      emitInBlocks(all.group, rounds, loop.block, carried, [&](Value round, ValueRange arguments) {
        Value first = arith::MulIOp::create(builder, location, round, constant(width));
        return emitRoundAt(first, width, arguments);
      });
  return rest ? emitRoundAt(constant(rounds * width), rest, totals) : totals;
}

/// `base`: of the variable that the loop runs over, what loops around it have made of it; null: 0.
SmallVector<Value> SumEmitter::emitReductionLoops(const GroupLoops &all, size_t level, Value base,
                                                  ValueRange carried) {
  if (level == all.loops.size())
    return emitOneIteration(all.group, /*inLanes=*/false, carried);
  const SumLoop &loop = all.loops[level];
  AtomId variable = graph.getReduction(all.group.front()).variables[loop.variable];
  bool isWhole = level + 1 == all.loops.size() || all.loops[level + 1].variable != loop.variable;
  if (loop.isInLanes)
    return emitLaneRun(all, base, carried);
  auto body = [&](Value iteration, ValueRange arguments) {
    ScopeGuard scope(nodes);
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
  return nodes.emitLoop(constant(0), constant(loop.size), 1, carried, body);
}

/// Every accumulator as its body has it, with the lanes of `lanesOf` or as scalars.
void SumEmitter::emitSequential(ArrayRef<unsigned> group, Scope *lanesOf) {
  SmallVector<Value> carried;
  for (unsigned reduction : group)
    for (NodeId initial : graph.getReduction(reduction).initial) {
      Value value = nodes.emitNode(initial);
      carried.push_back(lanesOf ? splat(value, lanesOf->lanes) : value);
    }
  SmallVector<Value> results =
      emitReductionLoops(getLoops(group, std::nullopt), 0, Value(), carried);
  size_t next = 0;
  for (unsigned reduction : group) {
    SmallVector<Value> &own = nodes.current->reductions[reduction];
    for (size_t i = 0; i < graph.getReduction(reduction).next.size(); ++i)
      own.push_back(results[next++]);
  }
}

//===----------------------------------------------------------------------===//
// Lanes along the reduction
//===----------------------------------------------------------------------===//

/// Fills a shorter vector up with `neutral`, which has the wanted length.
Value SumEmitter::widen(Value value, Value neutral) {
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
Value SumEmitter::combineLanes(const Combiner &combiner, Value value) {
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
void SumEmitter::setResults(ArrayRef<unsigned> group, ArrayRef<Value> sums, Scope *lanesOf) {
  for (unsigned reduction : group) {
    const ElementReduction &info = graph.getReduction(reduction);
    SmallVector<Value> results;
    for (auto [initial, combiner] : llvm::zip_equal(info.initial, info.combiners)) {
      Value before = nodes.emitNode(initial);
      if (lanesOf)
        before = splat(before, lanesOf->lanes);
      results.push_back(combine(*combiner, before, sums.front()));
      sums = sums.drop_front();
    }
    nodes.current->reductions[reduction] = results;
  }
}

void SumEmitter::emitInLanes(ArrayRef<unsigned> group, const LaneChoice &choice) {
  SmallVector<const Combiner *> combiners = getCombiners(group);
  SmallVector<Value> carried;
  for (const Combiner *combiner : combiners)
    carried.push_back(emitNeutral(*combiner, choice.lanes));
  SmallVector<Value> sums = emitReductionLoops(getLoops(group, choice), 0, Value(), carried);
  if (choice.sharers > 1)
    combineSharers(combiners, sums, choice.sharers);
  for (auto [combiner, sum] : llvm::zip_equal(combiners, sums))
    sum = combineLanes(*combiner, sum);
  setResults(group, sums, /*lanesOf=*/nullptr);
}
