//===- ScatterEmission.cpp - stages that are no loop nests; scatters -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelEmission.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Points
//===----------------------------------------------------------------------===//

static int64_t countBlocks(const IndexTable &table, const KernelPoints &points) {
  return points.column ? llvm::divideCeil(table.getSize(*points.column), points.lanes) : 1;
}

int64_t StageEmitter::countPoints(const IndexTable &table, const KernelPoints &points) {
  int64_t count = countBlocks(table, points);
  for (AtomId variable : points.outer)
    count *= table.getSize(variable);
  return count;
}

/// Lanes of the block of columns that is being emitted; 0 when elements are alone.
int64_t StageEmitter::getLanesOf(const KernelPoints &points) {
  return points.column ? findVectorScope(*points.column)->lanes : 0;
}

/// Binds the variables of point number `point`, which counts blocks of the column fastest.
void StageEmitter::emitPoint(const KernelPoints &points, Value point,
                             llvm::function_ref<void()> body) {
  ScopeGuard scope(*this);
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
    return emitRowScatter(*scatter, begin, end);
  const KernelPoints &points = stage.getPoints();
  emitLoop(begin, end, 1, {}, [&](Value point, ValueRange) {
    emitPoint(points, point, [&] {
      if (auto *scatter = std::get_if<KernelScatter>(&stage.irregular))
        emitTokens(*scatter, 0, [&] { emitUpdate(*scatter); });
      else if (auto *order = std::get_if<KernelOrder>(&stage.irregular))
        emitOrder(*order);
      else
        emitScan(std::get<KernelScan>(stage.irregular));
    });
    return SmallVector<Value>();
  });
}

//===----------------------------------------------------------------------===//
// Scatters
//===----------------------------------------------------------------------===//

void StageEmitter::emitTokens(const KernelScatter &scatter, size_t level,
                              llvm::function_ref<void()> body) {
  if (level == scatter.tokens.size())
    return body();
  emitScalarLoop(scatter.tokens[level], {}, [&](ValueRange) {
    emitTokens(scatter, level + 1, body);
    return SmallVector<Value>();
  });
}

/// Whole rows: each token goes through all blocks of columns before the next, so that its row is
/// found once.
void StageEmitter::emitRowScatter(const KernelScatter &scatter, Value begin, Value end) {
  emitTokens(scatter, 0, [&] {
    emitLoop(begin, end, 1, {}, [&](Value block, ValueRange) {
      emitPoint(scatter.points, block, [&] { emitUpdate(scatter); });
      return SmallVector<Value>();
    });
  });
}

Value StageEmitter::emitWideIndex(NodeId node) {
  Value value = emitNode(node);
  Type wide = builder.getI64Type();
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    wide = vector.clone(wide);
  return value.getType() == wide ? value : arith::ExtSIOp::create(builder, location, wide, value);
}

/// One element, or one block of lanes, of the result; nothing where an index lies outside.
void StageEmitter::emitUpdate(const KernelScatter &scatter) {
  using P = arith::CmpIPredicate;
  int64_t lanes = getLanesOf(scatter.points);
  // Both as vectors if one is.
  auto combine = [&](StringRef name, Value a, Value b) -> Value {
    if (!a)
      return b;
    if (isa<VectorType>(a.getType()) || isa<VectorType>(b.getType())) {
      a = splat(a, lanes);
      b = splat(b, lanes);
    }
    OperationState state(location, name);
    state.addOperands({a, b});
    state.addTypes(a.getType());
    return builder.create(state)->getResult(0);
  };
  auto number = [&](int64_t value, Value like) {
    Value scalar = constant(value);
    return isa<VectorType>(like.getType()) ? splat(scalar, lanes) : scalar;
  };
  auto test = [&](P predicate, Value a, int64_t b) -> Value {
    return arith::CmpIOp::create(builder, location, predicate, a, number(b, a));
  };
  Value inside, offset;
  for (auto [i, index] : llvm::enumerate(scatter.indices)) {
    Value value = emitWideIndex(index.node);
    // Seen as unsigned, what is below zero lies above all sizes.
    inside = combine(arith::AndIOp::getOperationName(), inside, test(P::ult, value, index.size));
    if (scatter.padding && i == 0)
      inside =
          combine(arith::AndIOp::getOperationName(), inside, test(P::ne, value, *scatter.padding));
    Value scaled = arith::MulIOp::create(builder, location, value, number(index.stride, value));
    offset = combine(arith::AddIOp::getOperationName(), offset, scaled);
  }
  if (inside && isa<VectorType>(inside.getType())) {
    Value address = emitVectorIndex(scatter.address, findVectorScope(*scatter.points.column));
    return emitCombined(scatter, combine(arith::AddIOp::getOperationName(), address, offset),
                        inside);
  }
  auto update = [&] {
    Value address = emitIndex(scatter.address, nullptr);
    emitCombined(scatter, combine(arith::AddIOp::getOperationName(), offset, address), nullptr);
  };
  if (!inside)
    return update();
  auto branch = scf::IfOp::create(builder, location, inside, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  update();
}

/// Loads what is at element `address` (of lane 0, or one for each lane), combines and stores.
void StageEmitter::emitCombined(const KernelScatter &scatter, Value address, Value mask) {
  Type element = graph.getNode(scatter.value).type, type = element;
  Value value = emitNode(scatter.value);
  if (int64_t lanes = getLanesOf(scatter.points)) {
    value = splat(value, lanes);
    type = getVectorType(element, lanes);
  }
  Value pointer = getAddress(results[scatter.result], element, address);
  if (scatter.combiner) {
    Value old = loadFrom(pointer, type, getAlignment(element), mask);
    OperationState state(location, *scatter.combiner);
    state.addOperands({old, value});
    state.addTypes(type);
    value = builder.create(state)->getResult(0);
  }
  storeTo(pointer, value, mask);
}
