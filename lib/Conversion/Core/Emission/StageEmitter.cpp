//===- StageEmitter.cpp - loops of a scheduled stage -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/StageEmitter.h"

#include "ScanEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::memopt;

StageEmitter::StageEmitter(NodeEmitter &nodes, const KernelStage &stage)
    : EmitterPart(nodes), stage(stage), scatters(nodes), bits(nodes),
      scans(std::make_unique<ScanEmitter>(nodes)) {}

StageEmitter::~StageEmitter() = default;

//===----------------------------------------------------------------------===//
// Nests
//===----------------------------------------------------------------------===//

/// Whether a result lies where the operand does that the stage copies into it, element by element;
/// null for a stage that does more.
Value StageEmitter::emitIsInPlace() {
  if (stage.nests.size() != 1 || stage.nests.front().stores.size() != 1)
    return Value();
  const KernelStore &store = stage.nests.front().stores.front();
  const ElementNode &node = graph.getNode(store.value);
  if (node.kind != ElementNode::Load || node.guard != kNoNode || !(node.address == store.address))
    return Value();
  Storage from = graph.getStorage(node), to = graph.getResultStorage(store.result);
  if (from.unit != to.unit || from.elements != to.elements)
    return Value();
  return LLVM::ICmpOp::create(builder, location, LLVM::ICmpPredicate::eq,
                              nodes.arguments.buffers[node.number],
                              nodes.arguments.results[store.result]);
}

void StageEmitter::emitTrips(Value begin, Value end, int64_t blocks) {
  if (stage.isIrregular())
    return emitIrregular(begin, end);
  // What lies where it was needs no copy, as the rows that a scatter leaves alone.
  if (Value isInPlace = emitIsInPlace())
    end = arith::SelectOp::create(builder, location, isInPlace, begin, end);
  emitParallel(begin, end, [&](Value iteration) { emitIteration(iteration, blocks); });
}

void StageEmitter::emitIteration(Value iteration, int64_t blocksOfRow) {
  ScopeGuard scope(nodes);
  if (!stage.distributesNest) {
    if (stage.row)
      scope->variables.push_back({*stage.row, iteration});
    for (const KernelNest &nest : stage.nests)
      emitNestOfRow(nest);
    return;
  }
  const KernelNest &nest = stage.nests.front();
  Value block = iteration;
  if (stage.row) {
    Value blocks = constant(blocksOfRow);
    Value row = arith::DivUIOp::create(builder, location, iteration, blocks);
    block = arith::RemUIOp::create(builder, location, iteration, blocks);
    scope->variables.push_back({*stage.row, row});
  }
  emitDistributed(nest, block);
}

/// One iteration of the nest's outermost loop, which the parallel loop has taken over.
void StageEmitter::emitDistributed(const KernelNest &nest, Value block) {
  AtomId variable = nest.loops.front();
  if (nest.vectorLoop == 0u)
    return emitBlockAt(variable, nest.lanes, block, [&] { emitNest(nest, 1); });
  if (nest.tileLoop == 0u)
    return emitTileAt(nest, block);
  ScopeGuard scope(nodes);
  scope->variables.push_back({variable, block});
  emitNest(nest, 1);
}

void StageEmitter::emitNest(const KernelNest &nest, size_t level) {
  if (level == nest.loops.size())
    return emitStores(nest);
  if (nest.tileLoop == level)
    return emitTileLoop(nest);
  auto body = [&](ValueRange) {
    emitNest(nest, level + 1);
    return SmallVector<Value>();
  };
  if (nest.vectorLoop == level)
    emitVectorLoop(nest.loops[level], nest.lanes, {}, body);
  else
    nodes.emitScalarLoop(nest.loops[level], {}, body);
}

/// All values first: a result may lie over an operand that another result still reads here.
void StageEmitter::emitStores(const KernelNest &nest) {
  SmallVector<Value> values;
  for (const KernelStore &store : nest.stores)
    values.push_back(nodes.emitNode(store.value));
  beginStores(nest);
  for (auto [store, value] : llvm::zip_equal(nest.stores, values))
    emitStore(store, nest, value);
}

void StageEmitter::emitStore(const KernelStore &store, const KernelNest &nest, Value value) {
  Type element = getElementTypeOrSelf(value.getType());
  Scope *scope = nullptr;
  if (nest.vectorLoop)
    scope = nodes.findVectorScope(nest.loops[*nest.vectorLoop]);
  if (scope)
    value = splat(value, scope->lanes);
  Value result = nodes.arguments.results[store.result];
  if (graph.getResultStorage(store.result).isShared())
    return bits.store(result, store.address, scope, value);
  bool isContiguous = !scope || table.getStride(store.address, *scope->vector) == 1;
  Value index = isContiguous ? nodes.emitIndex(store.address, nullptr)
                             : nodes.emitVectorIndex(store.address, scope);
  unsigned alignment = isContiguous ? nodes.getAlignment(store.address, element, scope)
                                    : nodes.getAlignment(element);
  auto emit = [&] {
    nodes.storeTo(nodes.getAddress(result, element, index), value, alignment, nullptr);
  };
  if (scope)
    emit();
  else
    emitOnce(emit);
}

//===----------------------------------------------------------------------===//
// Stages that are no loop nests
//===----------------------------------------------------------------------===//

/// Binds the variables of point number `point`, which counts blocks of the column fastest.
void StageEmitter::emitPoint(const KernelPoints &points, Value point,
                             llvm::function_ref<void()> body) {
  ScopeGuard scope(nodes);
  Value rest = point;
  auto takeDigit = [&](int64_t size, bool isLast) {
    Value digit = rest;
    if (!isLast) {
      digit = arith::RemUIOp::create(builder, location, rest, constant(size));
      rest = arith::DivUIOp::create(builder, location, rest, constant(size));
    }
    return digit;
  };
  Value block;
  if (points.column)
    block = takeDigit(countBlocks(table, points), points.outer.empty());
  for (auto [i, variable] : llvm::enumerate(llvm::reverse(points.outer)))
    scope->variables.push_back(
        {variable, takeDigit(table.getSize(variable), i + 1 == points.outer.size())});
  if (points.column)
    emitBlockAt(*points.column, points.lanes, block, body);
  else
    body();
}

void StageEmitter::emitIrregular(Value begin, Value end) {
  if (auto *scatter = std::get_if<KernelScatter>(&stage.irregular);
      scatter && scatter->points.outer.empty())
    return scatter->isByTokens ? emitByTokens(*scatter, begin, end)
                               : emitRowScatter(*scatter, begin, end);
  const KernelPoints &points = stage.getPoints();
  emitParallel(begin, end, [&](Value point) {
    emitPoint(points, point, [&] {
      if (auto *scatter = std::get_if<KernelScatter>(&stage.irregular))
        scatters.emitTokens(*scatter, 0, [&] { scatters.emitUpdate(*scatter); });
      else if (auto *order = std::get_if<KernelOrder>(&stage.irregular))
        scans->emit(*order);
      else
        scans->emit(std::get<KernelScan>(stage.irregular), scatters.getLanesOf(points));
    });
  });
}

/// Whole rows: each token goes through all blocks of columns before the next, so that its row is
/// found once.
void StageEmitter::emitRowScatter(const KernelScatter &scatter, Value begin, Value end) {
  scatters.emitTokens(scatter, 0, [&] {
    emitParallel(begin, end, [&](Value block) {
      emitPoint(scatter.points, block, [&] { scatters.emitUpdate(scatter); });
    });
  });
}
