//===- KernelEmission.cpp - loops and vectors of a scheduled kernel -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/KernelEmission.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::memopt;

StageEmitter::StageEmitter(OpBuilder &builder, Location location, const ElementGraph &graph,
                           const KernelStage &stage, const ScheduleTarget &target,
                           ArrayRef<Value> buffers, ArrayRef<Value> results, Value faults,
                           ArrayRef<Value> randomIds)
    : builder(builder), location(location), graph(graph), table(graph.getTable()), stage(stage),
      target(target), buffers(buffers), results(results), faults(faults), randomIds(randomIds),
      reductions(collectReductions(graph, stage)) {}

//===----------------------------------------------------------------------===//
// Scopes
//===----------------------------------------------------------------------===//

StageEmitter::Scope *StageEmitter::findHome(ArrayRef<AtomId> variables) {
  for (Scope *scope = current; scope->parent; scope = scope->parent)
    for (auto [variable, value] : scope->variables)
      if (llvm::is_contained(variables, variable))
        return scope;
  return outermost;
}

bool StageEmitter::bindsAll(Scope *scope, ArrayRef<AtomId> variables) {
  return llvm::all_of(variables, [&](AtomId variable) {
    for (Scope *outer = scope; outer; outer = outer->parent)
      for (auto [bound, value] : outer->variables)
        if (bound == variable)
          return true;
    return false;
  });
}

StageEmitter::Scope *StageEmitter::findVectorScope(ArrayRef<AtomId> variables) {
  for (Scope *scope = current; scope; scope = scope->parent)
    if (scope->vector && llvm::is_contained(variables, *scope->vector))
      return scope;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

Value StageEmitter::constant(int64_t value) {
  return arith::ConstantOp::create(builder, location, builder.getI64IntegerAttr(value));
}

SmallVector<Value> StageEmitter::emitLoop(Value lower, Value upper, Value step, ValueRange carried,
                                          LoopFn body) {
  auto loop = scf::ForOp::create(builder, location, lower, upper, step, carried);
  Scope *outer = current;
  Operation *previous = outer->child;
  outer->child = loop;
  {
    OpBuilder::InsertionGuard guard(builder);
    // Without carried values the builder has made the terminator already.
    if (carried.empty())
      builder.setInsertionPoint(loop.getBody()->getTerminator());
    else
      builder.setInsertionPointToEnd(loop.getBody());
    SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
    if (!carried.empty())
      scf::YieldOp::create(builder, location, next);
  }
  outer->child = previous;
  return SmallVector<Value>(loop.getResults());
}

void StageEmitter::emitParallel(Value begin, Value end, llvm::function_ref<void(Value)> body) {
  if (gridStep)
    return emitGridLoop(begin, end, body);
  emitLoop(begin, end, 1, {}, [&](Value iteration, ValueRange) {
    body(iteration);
    return SmallVector<Value>();
  });
}

SmallVector<Value> StageEmitter::emitScalarLoop(AtomId variable, ValueRange carried, BodyFn body) {
  return emitLoop(constant(0), constant(table.getSize(variable)), 1, carried,
                  [&](Value iteration, ValueRange arguments) {
                    ScopeGuard scope(*this);
                    scope->variables.push_back({variable, iteration});
                    return body(arguments);
                  });
}

SmallVector<Value> StageEmitter::emitBlock(AtomId variable, Value first, int64_t lanes,
                                           int64_t step, ValueRange carried, BodyFn body) {
  ScopeGuard scope(*this);
  scope->variables.push_back({variable, first});
  scope->vector = variable;
  scope->lanes = lanes;
  scope->step = step;
  return body(carried);
}

/// Full blocks, then the rest; both are static.
SmallVector<Value> StageEmitter::emitLaneBlocks(int64_t size, int64_t lanes, ValueRange carried,
                                                LanesFn body) {
  int64_t full = size / lanes * lanes;
  SmallVector<Value> values(carried);
  if (full == lanes) {
    values = body(constant(0), lanes, values);
  } else if (full) {
    values =
        emitLoop(constant(0), constant(full), lanes, values,
                 [&](Value first, ValueRange arguments) { return body(first, lanes, arguments); });
  }
  if (full != size)
    values = body(constant(full), size - full, values);
  return values;
}

SmallVector<Value> StageEmitter::emitVectorLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                                BodyFn body) {
  if (target.isDevice())
    return emitThreadLoop(variable, lanes, carried, body);
  return emitLaneBlocks(table.getSize(variable), lanes, carried,
                        [&](Value first, int64_t count, ValueRange arguments) {
                          return emitBlock(variable, first, count, lanes, arguments, body);
                        });
}

//===----------------------------------------------------------------------===//
// Nests
//===----------------------------------------------------------------------===//

void StageEmitter::emit(Value begin, Value end) {
  if (stage.isIrregular())
    return emitIrregular(begin, end);
  emitParallel(begin, end, [&](Value iteration) { emitIteration(iteration); });
}

void StageEmitter::emitIteration(Value iteration) {
  ScopeGuard scope(*this);
  if (!stage.distributesNest) {
    if (stage.row)
      scope->variables.push_back({*stage.row, iteration});
    for (const KernelNest &nest : stage.nests)
      emitFencedNest(nest);
    return;
  }
  const KernelNest &nest = stage.nests.front();
  Value block = iteration;
  if (stage.row) {
    Value blocks = constant(countBlocks(table, stage));
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
  ScopeGuard scope(*this);
  scope->variables.push_back({variable, block});
  emitNest(nest, 1);
}

/// Lanes of block number `block`, which is full or the last.
void StageEmitter::emitBlockAt(AtomId variable, int64_t lanes, Value block,
                               llvm::function_ref<void()> body) {
  if (target.isDevice())
    return emitThreadBlockAt(variable, lanes, block, body);
  int64_t size = table.getSize(variable), full = size / lanes;
  auto emitLanes = [&](int64_t count) {
    Value first = arith::MulIOp::create(builder, location, block, constant(lanes));
    emitBlock(variable, first, count, lanes, {}, [&](ValueRange) {
      body();
      return SmallVector<Value>();
    });
  };
  if (full * lanes == size)
    return emitLanes(lanes);
  Value isFull =
      arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, block, constant(full));
  auto branch = scf::IfOp::create(builder, location, isFull, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  current->child = branch;
  builder.setInsertionPointToStart(branch.thenBlock());
  emitLanes(lanes);
  builder.setInsertionPointToStart(branch.elseBlock());
  emitLanes(size - full * lanes);
  current->child = nullptr;
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
    emitScalarLoop(nest.loops[level], {}, body);
}

/// All values first: a result may lie over an operand that another result still reads here.
void StageEmitter::emitStores(const KernelNest &nest) {
  SmallVector<Value> values;
  for (const KernelStore &store : nest.stores)
    values.push_back(emitNode(store.value));
  // Where all threads read an element that one of them overwrites.
  if (isOverOperand(nest) && !nest.vectorLoop)
    synchronize();
  for (auto [store, value] : llvm::zip_equal(nest.stores, values))
    emitStore(store, nest, value);
}
