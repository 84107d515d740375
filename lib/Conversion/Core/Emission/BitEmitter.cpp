//===- BitEmitter.cpp - booleans in bits -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Addresses of packed operands and results count bits. Lanes that are whole bytes are one access:
// a vector of booleans is a vector of bytes to the machine, and where it has masks in registers
// that is a move. Anything else goes bit by bit; a byte may then be changed by several at once, and
// is changed atomically.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Emission/BitEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <climits>
#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

/// Whether the lanes begin and end with bytes.
bool BitEmitter::areWholeBytes(const IndexExpr &address, Scope *scope) {
  return scope && scope->lanes % CHAR_BIT == 0 && nodes.beginWithMultiple(address, scope, CHAR_BIT);
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

Value BitEmitter::load(const ElementNode &node) {
  Value buffer = nodes.arguments.buffers[node.number];
  Value guard = node.guard == kNoNode ? Value() : nodes.emitNode(node.guard);
  Scope *scope = nodes.findVectorScope(node.variables);
  Type byte = builder.getI8Type();
  if (!guard && areWholeBytes(node.address, scope)) {
    Value index = nodes.emitIndex(node.address, nullptr);
    Value first = splitIndex(builder, location, index).first;
    Value bytes = nodes.loadFrom(nodes.getAddress(buffer, byte, first),
                                 getVectorType(byte, scope->lanes / CHAR_BIT), 1, nullptr);
    return vector::BitCastOp::create(
        builder, location, cast<VectorType>(getVectorType(node.type, scope->lanes)), bytes);
  }
  Value index =
      scope ? nodes.emitVectorIndex(node.address, scope) : nodes.emitIndex(node.address, nullptr);
  // Where the guard is false any address will do.
  if (guard && scope)
    guard = splat(guard, scope->lanes);
  else if (guard)
    index = arith::SelectOp::create(builder, location, guard, index, constant(0));
  auto [number, place] = splitIndex(builder, location, index);
  Value bytes =
      nodes.loadFrom(nodes.getAddress(buffer, byte, number),
                     scope ? getVectorType(byte, scope->lanes) : byte, 1, scope ? guard : Value());
  Value shifted = arith::ShRUIOp::create(builder, location, bytes, place);
  Type boolean = scope ? getVectorType(node.type, scope->lanes) : node.type;
  return arith::TruncIOp::create(builder, location, boolean, shifted);
}

void BitEmitter::store(Value buffer, const IndexExpr &address, Scope *scope, Value value) {
  Type byte = builder.getI8Type();
  if (areWholeBytes(address, scope)) {
    Value index = nodes.emitIndex(address, nullptr);
    Value first = splitIndex(builder, location, index).first;
    auto type = cast<VectorType>(getVectorType(byte, scope->lanes / CHAR_BIT));
    Value bytes = vector::BitCastOp::create(builder, location, type, value);
    LLVM::StoreOp::create(builder, location, bytes, nodes.getAddress(buffer, byte, first), 1);
    return;
  }
  if (!scope)
    return storeOne(buffer, nodes.emitIndex(address, nullptr), value);
  Value indices = nodes.emitVectorIndex(address, scope);
  auto extract = [&](Value lanes, int64_t lane) -> Value {
    return vector::ExtractOp::create(builder, location, lanes, lane);
  };
  for (int64_t lane = 0; lane < scope->lanes; ++lane)
    storeOne(buffer, extract(indices, lane), extract(value, lane));
}

void BitEmitter::storeOne(Value buffer, Value index, Value bit) {
  auto [number, place] = splitIndex(builder, location, index);
  Value address = nodes.getAddress(buffer, builder.getI8Type(), number);
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
