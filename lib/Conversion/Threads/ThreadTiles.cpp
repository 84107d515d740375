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

#include "ThreadTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

static int64_t getLine(const KernelNest &nest) { return nest.tile + 1; }

void ThreadTiles::emitAll(const KernelNest &nest) {
  int64_t rows = llvm::divideCeil(table.getSize(nest.loops[*nest.tileLoop]), nest.tile);
  int64_t columns = llvm::divideCeil(table.getSize(nest.loops.back()), nest.tile);
  nodes.emitLoop(constant(0), constant(rows * columns), 1, {}, [&](Value number, ValueRange) {
    ScopeGuard scope(nodes);
    emitTile(nest, number);
    return SmallVector<Value>();
  });
}

/// Tile number `number`, which counts columns fastest.
void ThreadTiles::emitTile(const KernelNest &nest, Value number) {
  int64_t columns = llvm::divideCeil(table.getSize(nest.loops.back()), nest.tile);
  Value row = arith::DivUIOp::create(builder, location, number, constant(columns));
  Value column = arith::RemUIOp::create(builder, location, number, constant(columns));
  row = arith::MulIOp::create(builder, location, row, constant(nest.tile));
  column = arith::MulIOp::create(builder, location, column, constant(nest.tile));
  Value warp = threads.getWarp();
  Value lane = threads.getLaneOfWarp();
  int64_t warps = threads.shape.group / threads.machine.warpThreads;
  auto forLines = [&](auto body) {
    nodes.emitLoop(warp, constant(nest.tile), warps, {}, [&](Value line, ValueRange) {
      ScopeGuard scope(nodes);
      body(line);
      return SmallVector<Value>();
    });
  };
  // The tile before may still be read.
  threads.synchronize();
  forLines([&](Value line) { fillTileLine(nest, {row, lane}, {column, line}); });
  threads.synchronize();
  forLines([&](Value line) { emitTileLine(nest, {row, line}, {column, lane}); });
}

/// Binds the element at two positions, each the tile's first and a number within it, if the tile
/// has it.
void ThreadTiles::emitTileElement(const KernelNest &nest, Position row, Position column,
                                  bool isVector, llvm::function_ref<void()> body) {
  AtomId rows = nest.loops[*nest.tileLoop], columns = nest.loops.back();
  Value atRow = arith::AddIOp::create(builder, location, row.first, row.number);
  Value atColumn = arith::AddIOp::create(builder, location, column.first, column.number);
  Value isInside =
      arith::AndIOp::create(builder, location, nodes.isBelow(atRow, table.getSize(rows)),
                            nodes.isBelow(atColumn, table.getSize(columns)));
  nodes.emitWhere(isInside, [&] {
    ScopeGuard scope(nodes);
    scope->variables.push_back({rows, atRow});
    scope->variables.push_back({columns, atColumn});
    if (isVector)
      scope->vector = columns;
    body();
  });
}

void ThreadTiles::fillTileLine(const KernelNest &nest, Position row, Position column) {
  emitTileElement(nest, row, column, /*isVector=*/false, [&] {
    Value line = arith::MulIOp::create(builder, location, column.number, constant(getLine(nest)));
    Value place = arith::AddIOp::create(builder, location, line, row.number);
    for (NodeId id : nest.staged) {
      const ElementNode &node = graph.getNode(id);
      Value address = nodes.getAddress(nodes.arguments.buffers[node.number], node.type,
                                       nodes.emitIndex(node.address, nullptr));
      Value value = nodes.loadFrom(address, node.type, nodes.getAlignment(node.type), nullptr);
      nodes.storeTo(nodes.getAddress(getTileSquare(nest, id), node.type, place), value,
                    nodes.getAlignment(node.type), nullptr);
    }
  });
}

void ThreadTiles::emitTileLine(const KernelNest &nest, Position row, Position column) {
  emitTileElement(nest, row, column, /*isVector=*/true, [&] {
    Value line = arith::MulIOp::create(builder, location, column.number, constant(getLine(nest)));
    Value place = arith::AddIOp::create(builder, location, line, row.number);
    for (NodeId id : nest.staged) {
      Type type = graph.getNode(id).type;
      nodes.current->nodes[id] =
          nodes.loadFrom(nodes.getAddress(getTileSquare(nest, id), type, place),
                         getVectorType(type, 1), nodes.getAlignment(type), nullptr);
    }
    emitter.emitStores(nest);
  });
}

Value ThreadTiles::getTileSquare(const KernelNest &nest, NodeId id) {
  return threads.getSharedBuffer("tile" + std::to_string(id), graph.getNode(id).type,
                                 nest.tile * getLine(nest));
}
