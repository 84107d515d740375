//===- ReductionEmission.cpp - accumulators of kernels -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A reduction whose result varies along the lanes of an enclosing loop keeps one accumulator per
// lane. One whose result is a scalar sums lanes along its own loop and folds them at the end, in a
// fixed tree. Reductions over equal boxes that are ready at the same time share their loops. Long
// sums of floating-point numbers go through blocks, whose error grows with the block's length and
// the number of blocks and not with their product (Higham, The Accuracy of Floating Point
// Summation).
//
//===----------------------------------------------------------------------===//

#include "KernelEmission.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::memopt;

/// Additions in a row before a block of them goes to the next level.
static constexpr int64_t kSumBlock = 128;

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
  std::optional<LaneChoice> lanes = chooseLanesOf(reduction);
  for (unsigned other : reductions) {
    const ElementReduction &candidate = graph.getReduction(other);
    if (other == reduction || candidate.variables != info.variables ||
        home->reductions.contains(other) || !bindsAll(current, candidate.freeVariables) ||
        findHome(candidate.freeVariables) != home || !areInputsReady(other))
      continue;
    if ((findVectorScope(candidate.freeVariables) != nullptr) != inLanes)
      continue;
    std::optional<LaneChoice> own = chooseLanesOf(other);
    if (!inLanes && (own.has_value() != lanes.has_value() || (own && own->loop != lanes->loop)))
      continue;
    group.push_back(other);
  }
  return group;
}

/// Threads of a device that are at different elements share no lanes.
std::optional<LaneChoice> StageEmitter::chooseLanesOf(unsigned reduction) {
  if (areThreadsApart())
    return std::nullopt;
  return chooseReductionLanes(graph, graph.getReduction(reduction), target);
}

Value StageEmitter::emitReduce(const ElementNode &node) {
  auto known = current->reductions.find(node.reduction);
  if (known != current->reductions.end())
    return known->second[node.number];
  const ElementReduction &info = graph.getReduction(node.reduction);
  emitInputs(node.reduction);
  SmallVector<unsigned> group = chooseCompanions(node.reduction, current);
  Scope *lanesOf = findVectorScope(info.freeVariables);
  std::optional<LaneChoice> choice;
  if (!lanesOf)
    choice = chooseLanesOf(node.reduction);
  if (choice) {
    for (unsigned member : group)
      choice->lanes = std::min(choice->lanes, chooseLanesOf(member)->lanes);
    emitInLanes(group, *choice);
  } else {
    emitSequential(group, lanesOf);
  }
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

static SmallVector<const Combiner *> getCombiners(const ElementGraph &graph,
                                                  ArrayRef<unsigned> group) {
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
    for (auto [node, accumulator] : llvm::zip_equal(info.next, own)) {
      Value value = emitNode(node);
      if (isa<VectorType>(accumulator.getType()))
        value = splat(value, getLanes(accumulator));
      next.push_back(value);
    }
  }
  return next;
}

/// Runs a loop of many additions as blocks whose sums are added.
SmallVector<Value> StageEmitter::emitCascade(ArrayRef<unsigned> group, AtomId variable,
                                             ValueRange carried, BodyFn body) {
  SmallVector<const Combiner *> combiners = getCombiners(graph, group);
  int64_t size = table.getSize(variable);
  return emitLoop(
      constant(0), constant(size), kSumBlock, carried, [&](Value first, ValueRange totals) {
        ScopeGuard blockScope(*this);
        Value last = arith::AddIOp::create(builder, location, first, constant(kSumBlock));
        last = arith::MinSIOp::create(builder, location, last, constant(size));
        SmallVector<Value> neutral;
        for (auto [combiner, total] : llvm::zip_equal(combiners, totals))
          neutral.push_back(
              emitNeutral(*combiner, isa<VectorType>(total.getType()) ? getLanes(total) : 0));
        SmallVector<Value> block =
            emitLoop(first, last, 1, neutral, [&](Value iteration, ValueRange arguments) {
              ScopeGuard scope(*this);
              scope->variables.push_back({variable, iteration});
              return body(arguments);
            });
        for (auto [combiner, total, sum] : llvm::zip_equal(combiners, totals, block))
          sum = combine(*combiner, total, sum);
        return block;
      });
}

SmallVector<Value> StageEmitter::emitReductionLoops(ArrayRef<unsigned> group,
                                                    ArrayRef<unsigned> order, size_t level,
                                                    std::optional<LaneChoice> choice,
                                                    ValueRange carried) {
  const ElementReduction &info = graph.getReduction(group.front());
  if (level == order.size()) {
    // The body reads the accumulators where the innermost loop binds them.
    if (!choice) {
      size_t next = 0;
      for (unsigned reduction : group)
        for (NodeId accumulator : graph.getReduction(reduction).accumulators)
          current->nodes[accumulator] = carried[next++];
    }
    return emitOneIteration(group, choice.has_value(), carried);
  }
  AtomId variable = info.variables[order[level]];
  auto body = [&](ValueRange arguments) {
    return emitReductionLoops(group, order, level + 1, choice, arguments);
  };
  if (choice && choice->loop == order[level])
    return emitVectorLoop(variable, choice->lanes, carried, body);
  bool isLongSum = llvm::all_of(getCombiners(graph, group), [](const Combiner *combiner) {
    return combiner && isa<FloatType>(combiner->neutral.getType());
  });
  if (isLongSum && table.getSize(variable) > 2 * kSumBlock)
    return emitCascade(group, variable, carried, body);
  return emitScalarLoop(variable, carried, body);
}

/// Every accumulator as its body has it, with the lanes of `lanesOf` or as scalars.
void StageEmitter::emitSequential(ArrayRef<unsigned> group, Scope *lanesOf) {
  SmallVector<Value> carried;
  for (unsigned reduction : group)
    for (NodeId initial : graph.getReduction(reduction).initial) {
      Value value = emitNode(initial);
      carried.push_back(lanesOf ? splat(value, lanesOf->lanes) : value);
    }
  auto order =
      llvm::to_vector(llvm::seq<unsigned>(0, graph.getReduction(group.front()).variables.size()));
  SmallVector<Value> results = emitReductionLoops(group, order, 0, std::nullopt, carried);
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

void StageEmitter::emitInLanes(ArrayRef<unsigned> group, LaneChoice choice) {
  SmallVector<const Combiner *> combiners = getCombiners(graph, group);
  SmallVector<Value> carried;
  for (const Combiner *combiner : combiners)
    carried.push_back(emitNeutral(*combiner, choice.lanes));
  // The loop over lanes goes innermost.
  SmallVector<unsigned> order;
  for (unsigned i = 0, e = graph.getReduction(group.front()).variables.size(); i < e; ++i)
    if (i != choice.loop)
      order.push_back(i);
  order.push_back(choice.loop);
  SmallVector<Value> sums = emitReductionLoops(group, order, 0, choice, carried);
  if (stage.groupThreads > 1)
    combineThreads(combiners, sums);
  size_t next = 0;
  for (unsigned reduction : group) {
    SmallVector<Value> results;
    for (NodeId initial : graph.getReduction(reduction).initial) {
      Value value = combineLanes(*combiners[next], sums[next]);
      results.push_back(combine(*combiners[next], emitNode(initial), value));
      ++next;
    }
    current->reductions[reduction] = results;
  }
}
