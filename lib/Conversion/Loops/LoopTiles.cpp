//===- LoopTiles.cpp - transposed tiles of loops -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A load that is contiguous along a loop u and scattered along the lanes v would be a gather.
// Instead the loops go over tiles of u times lanes; each tile is read by vectors along u,
// transposed square by square in registers, and kept in a buffer on the stack, from which the rows
// of the tile read vectors along v. What is left over at the ends of u and v gathers.
//
//===----------------------------------------------------------------------===//

#include "LoopTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::memopt;

void LoopTiles::emitLoop(const KernelNest &nest) {
  int64_t size = table.getSize(nest.loops[*nest.tileLoop]), full = size / nest.tile * nest.tile;
  nodes.emitLoop(constant(0), constant(full), nest.tile, {}, [&](Value first, ValueRange) {
    ScopeGuard scope(nodes);
    emitTile(nest, first);
    return SmallVector<Value>();
  });
  if (full != size)
    emitPlainRows(nest, constant(full), size - full);
}

/// Tile number `block`, which is full or the last.
void LoopTiles::emitAt(const KernelNest &nest, Value block) {
  int64_t size = table.getSize(nest.loops[*nest.tileLoop]), full = size / nest.tile;
  Value first = arith::MulIOp::create(builder, location, block, constant(nest.tile));
  if (full * nest.tile == size)
    return emitTile(nest, first);
  Value isFull =
      arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, block, constant(full));
  auto branch = scf::IfOp::create(builder, location, isFull, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  nodes.current->child = branch;
  builder.setInsertionPointToStart(branch.thenBlock());
  {
    ScopeGuard scope(nodes);
    emitTile(nest, first);
  }
  builder.setInsertionPointToStart(branch.elseBlock());
  {
    ScopeGuard scope(nodes);
    emitPlainRows(nest, first, size - full * nest.tile);
  }
  nodes.current->child = nullptr;
}

/// Rows [first, first + count) of the tiled loop, without tiles.
void LoopTiles::emitPlainRows(const KernelNest &nest, Value first, int64_t count) {
  AtomId variable = nest.loops[*nest.tileLoop];
  Value end = arith::AddIOp::create(builder, location, first, constant(count));
  nodes.emitLoop(first, end, 1, {}, [&](Value row, ValueRange) {
    ScopeGuard scope(nodes);
    scope->variables.push_back({variable, row});
    emitter.emitNest(nest, *nest.tileLoop + 1);
    return SmallVector<Value>();
  });
}

void LoopTiles::emitTile(const KernelNest &nest, Value first) {
  AtomId rows = nest.loops[*nest.tileLoop], columns = nest.loops.back();
  for (NodeId id : nest.staged)
    getBuffer(nest, id);
  auto emitRows = [&](bool isStaged) {
    nodes.emitLoop(constant(0), constant(nest.tile), 1, {}, [&](Value row, ValueRange) {
      ScopeGuard scope(nodes);
      Value position = arith::AddIOp::create(builder, location, first, row);
      scope->variables.push_back({rows, position});
      tileRow = isStaged ? row : Value();
      tileLanes = nest.lanes;
      emitter.emitStores(nest);
      tileRow = nullptr;
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  };
  emitter.emitVectorLoop(columns, nest.lanes, {}, [&](ValueRange) {
    bool isFull = nodes.current->lanes == nest.lanes;
    if (isFull) {
      ScopeGuard scope(nodes);
      scope->variables.push_back({rows, first});
      for (NodeId id : nest.staged)
        fillTile(nest, id, buffers[id]);
    }
    return emitRows(isFull);
  });
}

Value LoopTiles::load(NodeId id) {
  Value buffer = tileRow ? buffers.lookup(id) : Value();
  if (!buffer)
    return nullptr;
  Type type = graph.getNode(id).type;
  Value offset = arith::MulIOp::create(builder, location, tileRow, constant(tileLanes));
  return nodes.loadFrom(nodes.getAddress(buffer, type, offset), getVectorType(type, tileLanes),
                        NodeEmitter::getAlignment(type), nullptr);
}

/// On the stack, at the function's entry: an allocation inside a loop would grow the stack.
Value LoopTiles::getBuffer(const KernelNest &nest, NodeId id) {
  Value &buffer = buffers[id];
  if (buffer)
    return buffer;
  OpBuilder::InsertionGuard guard(builder);
  auto function = builder.getInsertionBlock()->getParentOp()->getParentOfType<LLVM::LLVMFuncOp>();
  builder.setInsertionPointToStart(&function.getBody().front());
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  buffer = LLVM::AllocaOp::create(builder, location, pointer, graph.getNode(id).type,
                                  constant(nest.tile * nest.lanes), /*alignment=*/64);
  return buffer;
}

/// Exchanges lanes whose number has bit `distance` with rows whose number has it.
static void exchange(OpBuilder &builder, Location location, MutableArrayRef<Value> rows,
                     int64_t distance) {
  int64_t size = rows.size();
  for (int64_t i = 0; i < size; ++i) {
    if (i & distance)
      continue;
    SmallVector<int32_t> low, high;
    for (int64_t lane = 0; lane < size; ++lane) {
      low.push_back(lane & distance ? size + lane - distance : lane);
      high.push_back(lane & distance ? size + lane : lane + distance);
    }
    Value a = rows[i], b = rows[i + distance];
    rows[i] = LLVM::ShuffleVectorOp::create(builder, location, a, b, low);
    rows[i + distance] = LLVM::ShuffleVectorOp::create(builder, location, a, b, high);
  }
}

void LoopTiles::fillTile(const KernelNest &nest, NodeId id, Value buffer) {
  const ElementNode &node = graph.getNode(id);
  Type vector = getVectorType(node.type, nest.tile);
  unsigned alignment = node.type.getIntOrFloatBitWidth() / 8;
  SmallVector<int64_t> offsets =
      *table.getOffsets(node.address, {nest.loops.back(), nest.lanes, nest.lanes});
  Value base = nodes.getAddress(nodes.arguments.buffers[node.number], node.type,
                                nodes.emitIndex(node.address, nullptr));
  for (int64_t column = 0; column < nest.lanes; column += nest.tile) {
    SmallVector<Value> square;
    for (int64_t i = 0; i < nest.tile; ++i) {
      Value address = nodes.getAddress(base, node.type, constant(offsets[column + i]));
      square.push_back(nodes.loadFrom(address, vector, alignment, nullptr));
    }
    for (int64_t distance = 1; distance < nest.tile; distance *= 2)
      exchange(builder, location, square, distance);
    for (auto [row, value] : llvm::enumerate(square)) {
      Value address =
          nodes.getAddress(buffer, node.type, constant(int64_t(row) * nest.lanes + column));
      LLVM::StoreOp::create(builder, location, value, address, alignment);
    }
  }
}
