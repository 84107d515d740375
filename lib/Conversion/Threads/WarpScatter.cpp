//===- WarpScatter.cpp - rows that tokens change ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A scatter whose indices say which row of the result a token changes, such as the gradient of an
// embedding. On a device a warp takes a token. If an earlier token has the same row it is done;
// else it changes the row for all tokens that have it, in their order. So every row belongs to one
// warp, and its sums have the order, and the bits, that they have on a processor, without atomics
// and without a workspace. Each token looks at all others, 32 at a time: quadratic, which is less
// than the traffic of the rows up to some ten thousand tokens.
//
//===----------------------------------------------------------------------===//

#include "WarpScatter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::memopt;
using arith::CmpIPredicate;

static int64_t countTokens(const IndexTable &table, const KernelScatter &scatter) {
  int64_t count = 1;
  for (AtomId variable : scatter.tokens)
    count *= table.getSize(variable);
  return count;
}

void WarpScatter::emit(const KernelScatter &scatter, Value token) {
  ScopeGuard scope(nodes);
  Value key = emitKey(scatter, token);
  Value isUsed = arith::CmpIOp::create(builder, location, CmpIPredicate::sge, key, constant(0));
  nodes.emitWhere(isUsed, [&] {
    ScopeGuard used(nodes);
    Value isFirst = isFirstOfKey(scatter, token, key);
    nodes.emitWhere(isFirst, [&] { emitTokensOfKey(scatter, token, key); });
  });
}

/// Binds the variables of token number `token` in the current scope.
void WarpScatter::bindTokens(const KernelScatter &scatter, Value token) {
  for (AtomId variable : llvm::reverse(scatter.tokens)) {
    Value size = constant(table.getSize(variable));
    nodes.current->variables.push_back(
        {variable, arith::RemUIOp::create(builder, location, token, size)});
    token = arith::DivUIOp::create(builder, location, token, size);
  }
}

/// The element at which the token's row begins; -1 where it changes none.
Value WarpScatter::emitKey(const KernelScatter &scatter, Value token) {
  ScopeGuard scope(nodes);
  bindTokens(scatter, token);
  auto [inside, offset] = scatters.emitPlace(scatter, /*lanes=*/1);
  if (!inside)
    return constant(0);
  return arith::SelectOp::create(builder, location, inside, offset, constant(-1));
}

/// Whether token `token` is before `end` and has `key`.
Value WarpScatter::hasKey(const KernelScatter &scatter, Value token, Value end, Value key) {
  Value isThere = arith::CmpIOp::create(builder, location, CmpIPredicate::slt, token, end);
  // Beyond the end any token will do.
  Value known = arith::SelectOp::create(builder, location, isThere, token, constant(0));
  Value isSame =
      arith::CmpIOp::create(builder, location, CmpIPredicate::eq, emitKey(scatter, known), key);
  return arith::AndIOp::create(builder, location, isThere, isSame);
}

/// Whether no token before `token` has `key`.
Value WarpScatter::isFirstOfKey(const KernelScatter &scatter, Value token, Value key) {
  Value no = arith::ConstantOp::create(builder, location, builder.getBoolAttr(false));
  Value yes = arith::ConstantOp::create(builder, location, builder.getBoolAttr(true));
  SmallVector<Value> found = nodes.emitLoop(
      constant(0), token, threads.machine.warpThreads, no, [&](Value first, ValueRange before) {
        ScopeGuard scope(nodes);
        Value other = arith::AddIOp::create(builder, location, first, threads.rank);
        Value isSame = hasKey(scatter, other, token, key);
        return SmallVector<Value>{arith::OrIOp::create(builder, location, before.front(), isSame)};
      });
  ImplicitLocOpBuilder b(location, builder);
  Value isAny = threads.ops.isAny(b, threads.mask, found.front());
  return arith::XOrIOp::create(builder, location, isAny, yes);
}

/// Changes the row for `token` and all later ones that have it.
void WarpScatter::emitTokensOfKey(const KernelScatter &scatter, Value token, Value key) {
  Value end = constant(countTokens(table, scatter));
  nodes.emitLoop(token, end, threads.machine.warpThreads, {}, [&](Value first, ValueRange) {
    ScopeGuard scope(nodes);
    Value other = arith::AddIOp::create(builder, location, first, threads.rank);
    Value isSame = hasKey(scatter, other, end, key);
    ImplicitLocOpBuilder b(location, builder);
    Value mask = threads.ops.getVotes(b, threads.mask, isSame);
    emitTokensOfMask(mask, [&](Value bit) {
      emitTokenRow(scatter, arith::AddIOp::create(builder, location, first, bit), key);
    });
    return SmallVector<Value>();
  });
}

/// Emits `body` for the number of each bit that is set, the lowest first.
void WarpScatter::emitTokensOfMask(Value mask, llvm::function_ref<void(Value)> body) {
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  auto word = [&](int32_t number) -> Value {
    return arith::ConstantOp::create(builder, location, builder.getI32IntegerAttr(number));
  };
  auto loop = scf::WhileOp::create(builder, location, TypeRange(i32), ValueRange(mask));
  OpBuilder::InsertionGuard guard(builder);
  nodes.current->child = loop;
  Block *before = builder.createBlock(&loop.getBefore(), {}, i32, location);
  Value isAny =
      arith::CmpIOp::create(builder, location, CmpIPredicate::ne, before->getArgument(0), word(0));
  scf::ConditionOp::create(builder, location, isAny, before->getArguments());
  Block *after = builder.createBlock(&loop.getAfter(), {}, i32, location);
  Value left = after->getArgument(0);
  Value lowest = math::CountTrailingZerosOp::create(builder, location, left);
  body(arith::ExtUIOp::create(builder, location, i64, lowest));
  Value less = arith::SubIOp::create(builder, location, left, word(1));
  scf::YieldOp::create(builder, location,
                       ValueRange(arith::AndIOp::create(builder, location, left, less)));
  nodes.current->child = nullptr;
}

/// The whole row, to which every thread of the warp adds columns of its own.
void WarpScatter::emitTokenRow(const KernelScatter &scatter, Value token, Value key) {
  ScopeGuard scope(nodes);
  bindTokens(scatter, token);
  emitter.emitVectorLoop(*scatter.points.column, scatter.points.lanes, {}, [&](ValueRange) {
    Value column = nodes.emitIndex(scatter.address, nullptr);
    scatters.emitCombined(scatter, arith::AddIOp::create(builder, location, key, column), nullptr);
    return SmallVector<Value>();
  });
}
