//===- LoopEmitter.cpp - stages as loops of a processor ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Loops/LoopEmitter.h"

#include "LoopSums.h"
#include "LoopTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

LoopEmitter::LoopEmitter(NodeEmitter &nodes, const KernelStage &stage,
                         const LoopScheduleRules &rules)
    : StageEmitter(nodes, stage), sums(std::make_unique<LoopSums>(nodes, stage, rules)),
      tiles(std::make_unique<LoopTiles>(nodes, *this)) {
  nodes.sums = sums.get();
  nodes.loadStaged = [this](NodeId id) { return tiles->load(id); };
}

LoopEmitter::~LoopEmitter() = default;

void LoopEmitter::emit(Value begin, Value end) {
  emitTrips(begin, end, stage.distributesNest ? countBlocks(table, stage) : 1);
}

void LoopEmitter::emitParallel(Value begin, Value end, llvm::function_ref<void(Value)> body) {
  nodes.emitLoop(begin, end, 1, {}, [&](Value iteration, ValueRange) {
    body(iteration);
    return SmallVector<Value>();
  });
}

SmallVector<Value> LoopEmitter::emitVectorLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                               BodyFn body) {
  return nodes.emitLaneBlocks(table.getSize(variable), lanes, carried,
                              [&](Value first, int64_t count, ValueRange values) {
                                return nodes.emitBlock(variable, first, count, lanes, values, body);
                              });
}

void LoopEmitter::emitBlockAt(AtomId variable, int64_t lanes, Value block,
                              llvm::function_ref<void()> body) {
  int64_t size = table.getSize(variable), full = size / lanes;
  auto emitLanes = [&](int64_t count) {
    Value first = arith::MulIOp::create(builder, location, block, constant(lanes));
    nodes.emitBlock(variable, first, count, lanes, {}, [&](ValueRange) {
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
  nodes.current->child = branch;
  builder.setInsertionPointToStart(branch.thenBlock());
  emitLanes(lanes);
  builder.setInsertionPointToStart(branch.elseBlock());
  emitLanes(size - full * lanes);
  nodes.current->child = nullptr;
}

void LoopEmitter::emitTileLoop(const KernelNest &nest) { tiles->emitLoop(nest); }

void LoopEmitter::emitTileAt(const KernelNest &nest, Value block) { tiles->emitAt(nest, block); }

void LoopEmitter::emitByTokens(const KernelScatter &, Value, Value) {
  llvm_unreachable("the rules of processors have no parallel loop over tokens");
}
