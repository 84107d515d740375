//===- BitEmission.cpp - booleans with eight in a byte -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Addresses of packed operands and results count bits. Lanes that are whole bytes are one access:
// a vector of booleans is a vector of bytes to the machine, and where it has masks in registers
// that is a move. Anything else goes bit by bit; a byte may then belong to several threads, and is
// changed atomically.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/KernelEmission.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <climits>
#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

/// Whether the lanes are consecutive numbers, the first of them a multiple of `divisor`.
bool StageEmitter::beginWithMultiple(const IndexExpr &number, Scope *scope, int64_t divisor) {
  if (table.getStride(number, *scope->vector) != 1)
    return false;
  int64_t common = std::gcd(divisor, number.constant);
  for (auto [atom, coefficient] : number.terms)
    common = std::gcd(common, atom == *scope->vector ? scope->step : coefficient);
  return common == divisor;
}

/// Whether the lanes begin and end with bytes.
bool StageEmitter::areWholeBytes(const IndexExpr &address, Scope *scope) {
  return scope && scope->lanes % CHAR_BIT == 0 && beginWithMultiple(address, scope, CHAR_BIT);
}

/// The byte that holds bit number `index`, which may be lanes, and the bit's place in it.
static std::pair<Value, Value> splitIndex(OpBuilder &builder, Location location, Value index) {
  auto number = [&](int64_t integer) -> Value {
    Type type = index.getType();
    TypedAttr attribute = builder.getI64IntegerAttr(integer);
    if (auto vector = dyn_cast<VectorType>(type))
      attribute = DenseElementsAttr::get(vector, cast<Attribute>(attribute));
    return arith::ConstantOp::create(builder, location, attribute);
  };
  Type byte = builder.getI8Type();
  if (auto vector = dyn_cast<VectorType>(index.getType()))
    byte = vector.clone(byte);
  Value place = arith::AndIOp::create(builder, location, index, number(CHAR_BIT - 1));
  return {arith::ShRUIOp::create(builder, location, index, number(3)),
          arith::TruncIOp::create(builder, location, byte, place)};
}

Value StageEmitter::emitBitLoad(const ElementNode &node) {
  Value buffer = buffers[node.number];
  Value guard = node.guard == kNoNode ? Value() : emitNode(node.guard);
  Scope *scope = findVectorScope(node.variables);
  Type byte = builder.getI8Type();
  if (!guard && areWholeBytes(node.address, scope)) {
    Value index = emitIndex(node.address, nullptr);
    Value first = splitIndex(builder, location, index).first;
    Value bytes = loadFrom(getAddress(buffer, byte, first),
                           getVectorType(byte, scope->lanes / CHAR_BIT), 1, nullptr);
    return vector::BitCastOp::create(
        builder, location, cast<VectorType>(getVectorType(node.type, scope->lanes)), bytes);
  }
  Value index = scope ? emitVectorIndex(node.address, scope) : emitIndex(node.address, nullptr);
  // Where the guard is false any address will do.
  if (guard && scope)
    guard = splat(guard, scope->lanes);
  else if (guard)
    index = arith::SelectOp::create(builder, location, guard, index, constant(0));
  auto [number, place] = splitIndex(builder, location, index);
  Value bytes =
      loadFrom(getAddress(buffer, byte, number), scope ? getVectorType(byte, scope->lanes) : byte,
               1, scope ? guard : Value());
  Value shifted = arith::ShRUIOp::create(builder, location, bytes, place);
  Type boolean = scope ? getVectorType(node.type, scope->lanes) : node.type;
  return arith::TruncIOp::create(builder, location, boolean, shifted);
}

void StageEmitter::emitBitStore(const KernelStore &store, Scope *scope, Value value) {
  Value buffer = results[store.result];
  Type byte = builder.getI8Type();
  if (areWholeBytes(store.address, scope)) {
    Value index = emitIndex(store.address, nullptr);
    Value first = splitIndex(builder, location, index).first;
    auto type = cast<VectorType>(getVectorType(byte, scope->lanes / CHAR_BIT));
    Value bytes = vector::BitCastOp::create(builder, location, type, value);
    LLVM::StoreOp::create(builder, location, bytes, getAddress(buffer, byte, first), 1);
    return;
  }
  if (!scope)
    return emitOneBit(buffer, emitIndex(store.address, nullptr), value);
  Value indices = emitVectorIndex(store.address, scope);
  auto extract = [&](Value lanes, int64_t lane) -> Value {
    return vector::ExtractOp::create(builder, location, lanes, lane);
  };
  for (int64_t lane = 0; lane < scope->lanes; ++lane)
    emitOneBit(buffer, extract(indices, lane), extract(value, lane));
}

void StageEmitter::emitOneBit(Value buffer, Value index, Value bit) {
  auto [number, place] = splitIndex(builder, location, index);
  Value address = getAddress(buffer, builder.getI8Type(), number);
  auto byte = [&](int64_t integer) -> Value {
    return arith::ConstantOp::create(builder, location,
                                     builder.getIntegerAttr(builder.getI8Type(), integer));
  };
  auto change = [&](LLVM::AtomicBinOp how, Value bits) {
    LLVM::AtomicRMWOp::create(builder, location, how, address, bits,
                              LLVM::AtomicOrdering::monotonic);
  };
  Value mask = arith::ShLIOp::create(builder, location, byte(1), place);
  change(LLVM::AtomicBinOp::_and, arith::XOrIOp::create(builder, location, mask, byte(-1)));
  Value zero = byte(0);
  change(LLVM::AtomicBinOp::_or, arith::SelectOp::create(builder, location, bit, mask, zero));
}
