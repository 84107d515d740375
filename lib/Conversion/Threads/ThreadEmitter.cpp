//===- ThreadEmitter.cpp - stages on the threads of a device -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Threads/ThreadEmitter.h"

#include "ThreadGroup.h"
#include "ThreadSums.h"
#include "ThreadTiles.h"
#include "WarpScatter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

ThreadEmitter::ThreadEmitter(NodeEmitter &nodes, const DeviceOps &ops, const KernelStage &stage,
                             const ThreadShape &shape, const ThreadScheduleRules &rules,
                             const llvm::BitVector &overOperand)
    : StageEmitter(nodes, stage), overOperand(overOperand),
      threads(std::make_unique<ThreadGroup>(nodes, ops, rules.getMachine(), shape)),
      sums(std::make_unique<ThreadSums>(nodes, stage, rules, *threads)),
      tiles(std::make_unique<ThreadTiles>(nodes, *this, *threads)),
      warpScatter(std::make_unique<WarpScatter>(nodes, *this, scatters, *threads)) {
  nodes.sums = sums.get();
}

ThreadEmitter::~ThreadEmitter() = default;

//===----------------------------------------------------------------------===//
// Iterations
//===----------------------------------------------------------------------===//

void ThreadEmitter::emit() {
  const ThreadShape &shape = threads->shape;
  threads->open();
  ImplicitLocOpBuilder b(location, builder);
  Value groups = constant(shape.getGroupsOfBlock());
  Value first = arith::MulIOp::create(b, threads->ops.createBlockId(b), groups);
  gridStep = arith::MulIOp::create(b, threads->ops.createGridSize(b), groups);
  first = arith::AddIOp::create(b, first, threads->group);
  int64_t blocks = stage.distributesNest ? countBlocks(table, stage, shape) : 1;
  emitTrips(first, constant(countTrips(table, stage, shape)), blocks);
}

/// What depends on no loop is computed inside: a thread that has no iteration must not read what
/// others overwrite.
void ThreadEmitter::emitParallel(Value begin, Value end, llvm::function_ref<void(Value)> body) {
  nodes.emitLoop(begin, end, gridStep, {}, [&](Value iteration, ValueRange) {
    ScopeGuard scope(nodes);
    Scope *outside = std::exchange(nodes.outermost, nodes.current);
    body(iteration);
    nodes.outermost = outside;
    return SmallVector<Value>();
  });
}

/// This thread's lanes of the block. Lanes of a thread divide the size, so that a thread has all of
/// them or none.
void ThreadEmitter::emitBlockAt(AtomId variable, int64_t lanes, Value block,
                                llvm::function_ref<void()> body) {
  int64_t size = table.getSize(variable);
  Value first = threads->getFirstLane(lanes, block);
  auto emitLanes = [&] {
    nodes.emitBlock(variable, first, lanes, lanes, {}, [&](ValueRange) {
      body();
      return SmallVector<Value>();
    });
  };
  if (size % (lanes * threads->shape.group) == 0)
    return emitLanes();
  nodes.emitWhere(nodes.isBelow(first, size), emitLanes);
}

SmallVector<Value> ThreadEmitter::emitVectorLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                                 BodyFn body) {
  // One access of one thread is no loop: that its lanes are known decides guards.
  if (threads->shape.group == 1 && table.getSize(variable) == lanes)
    return nodes.emitBlock(variable, constant(0), lanes, lanes, carried, body);
  return nodes.emitLoop(threads->getFirstLane(lanes, nullptr), constant(table.getSize(variable)),
                        lanes * threads->shape.group, carried,
                        [&](Value first, ValueRange arguments) {
                          return nodes.emitBlock(variable, first, lanes, lanes, arguments, body);
                        });
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

/// A nest whose results lie over operands waits, before its first store, for the other threads'
/// reads: those of earlier nests, and those that belong to the row and stand before its loops.
void ThreadEmitter::emitNestOfRow(const KernelNest &nest) {
  emitNest(nest, 0);
  if (!nest.vectorLoop || !isOverOperand(nest))
    return;
  // What was emitted last is the nest's outermost loop; the reads stand before it.
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(&*std::prev(builder.getInsertionPoint()));
  threads->synchronize();
}

bool ThreadEmitter::isOverOperand(const KernelNest &nest) {
  return llvm::any_of(nest.stores,
                      [&](const KernelStore &store) { return overOperand.test(store.result); });
}

/// Where all threads read an element that one of them overwrites.
void ThreadEmitter::beginStores(const KernelNest &nest) {
  if (isOverOperand(nest) && !nest.vectorLoop)
    threads->synchronize();
}

/// Outside of lanes all threads of a group have the same.
void ThreadEmitter::emitOnce(llvm::function_ref<void()> store) {
  if (threads->shape.group == 1)
    return store();
  nodes.emitWhere(nodes.isBelow(threads->rank, 1), store);
}

void ThreadEmitter::emitTileLoop(const KernelNest &nest) { tiles->emitAll(nest); }

void ThreadEmitter::emitTileAt(const KernelNest &nest, Value block) {
  tiles->emitTile(nest, block);
}

void ThreadEmitter::emitByTokens(const KernelScatter &scatter, Value begin, Value end) {
  emitParallel(begin, end, [&](Value token) { warpScatter->emit(scatter, token); });
}
