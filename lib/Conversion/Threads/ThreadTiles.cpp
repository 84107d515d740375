//===- ThreadTiles.cpp - transposed tiles of a device -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block of threads reads a square along the loop in which loads are contiguous, one warp a line,
// and computes it along the loop in which stores are. Lines are one element longer than the square,
// so that threads that read across them meet different banks of memory.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/KernelEmission.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

static constexpr int64_t kTileLine = kTileThreads + 1;

void StageEmitter::emitThreadTiles(const KernelNest &nest) {
  int64_t rows = llvm::divideCeil(table.getSize(nest.loops[*nest.tileLoop]), nest.tile);
  int64_t columns = llvm::divideCeil(table.getSize(nest.loops.back()), nest.tile);
  emitLoop(constant(0), constant(rows * columns), 1, {}, [&](Value number, ValueRange) {
    ScopeGuard scope(*this);
    emitThreadTile(nest, number);
    return SmallVector<Value>();
  });
}

/// Tile number `number`, which counts columns fastest.
void StageEmitter::emitThreadTile(const KernelNest &nest, Value number) {
  int64_t columns = llvm::divideCeil(table.getSize(nest.loops.back()), nest.tile);
  Value row = arith::DivUIOp::create(builder, location, number, constant(columns));
  Value column = arith::RemUIOp::create(builder, location, number, constant(columns));
  row = arith::MulIOp::create(builder, location, row, constant(nest.tile));
  column = arith::MulIOp::create(builder, location, column, constant(nest.tile));
  Value warp = arith::DivUIOp::create(builder, location, threads.inBlock, constant(kWarpThreads));
  Value lane = arith::RemUIOp::create(builder, location, threads.inBlock, constant(kWarpThreads));
  int64_t warps = stage.groupThreads / kWarpThreads;
  auto forLines = [&](auto body) {
    emitLoop(warp, constant(nest.tile), warps, {}, [&](Value line, ValueRange) {
      ScopeGuard scope(*this);
      body(line);
      return SmallVector<Value>();
    });
  };
  // The tile before may still be read.
  synchronize();
  forLines([&](Value line) { fillTileLine(nest, {row, lane}, {column, line}); });
  synchronize();
  forLines([&](Value line) { emitTileLine(nest, {row, line}, {column, lane}); });
}

/// Binds the element at two positions, each the tile's first and a number within it, if the tile
/// has it.
void StageEmitter::emitTileElement(const KernelNest &nest, TilePosition row, TilePosition column,
                                   bool isVector, llvm::function_ref<void()> body) {
  AtomId rows = nest.loops[*nest.tileLoop], columns = nest.loops.back();
  Value atRow = arith::AddIOp::create(builder, location, row.first, row.number);
  Value atColumn = arith::AddIOp::create(builder, location, column.first, column.number);
  Value isInside = arith::AndIOp::create(builder, location, isBelow(atRow, table.getSize(rows)),
                                         isBelow(atColumn, table.getSize(columns)));
  emitWhere(isInside, [&] {
    ScopeGuard scope(*this);
    scope->variables.push_back({rows, atRow});
    scope->variables.push_back({columns, atColumn});
    if (isVector)
      scope->vector = columns;
    body();
  });
}

void StageEmitter::fillTileLine(const KernelNest &nest, TilePosition row, TilePosition column) {
  emitTileElement(nest, row, column, /*isVector=*/false, [&] {
    Value line = arith::MulIOp::create(builder, location, column.number, constant(kTileLine));
    Value place = arith::AddIOp::create(builder, location, line, row.number);
    for (NodeId id : nest.staged) {
      const ElementNode &node = graph.getNode(id);
      Value address = getAddress(buffers[node.number], node.type, emitIndex(node.address, nullptr));
      Value value = loadFrom(address, node.type, getAlignment(node.type), nullptr);
      storeTo(getAddress(getTileSquare(nest, id), node.type, place), value, getAlignment(node.type),
              nullptr);
    }
  });
}

void StageEmitter::emitTileLine(const KernelNest &nest, TilePosition row, TilePosition column) {
  emitTileElement(nest, row, column, /*isVector=*/true, [&] {
    Value line = arith::MulIOp::create(builder, location, column.number, constant(kTileLine));
    Value place = arith::AddIOp::create(builder, location, line, row.number);
    for (NodeId id : nest.staged) {
      Type type = graph.getNode(id).type;
      current->nodes[id] = loadFrom(getAddress(getTileSquare(nest, id), type, place),
                                    getVectorType(type, 1), getAlignment(type), nullptr);
    }
    emitStores(nest);
  });
}

Value StageEmitter::getTileSquare(const KernelNest &nest, NodeId id) {
  return getSharedBuffer("tile" + std::to_string(id), graph.getNode(id).type,
                         nest.tile * kTileLine);
}
