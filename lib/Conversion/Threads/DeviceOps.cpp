//===- DeviceOps.cpp - what all vendors' devices share -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Threads/DeviceOps.h"

#include "memopt/Conversion/Threads/DeviceMachine.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

static Value castBits(ImplicitLocOpBuilder &b, Type type, Value value) {
  return value.getType() == type ? value : arith::BitcastOp::create(b, type, value);
}

/// Threads exchange words of 32 bits.
Value mlir::memopt::shuffleWarp(const DeviceOps &ops, ImplicitLocOpBuilder &b, Value mask,
                                Value value, int64_t distance) {
  Type type = value.getType(), i32 = b.getI32Type(), i64 = b.getI64Type();
  unsigned bits = type.getIntOrFloatBitWidth();
  if (bits == 64) {
    Value half = arith::ConstantOp::create(b, b.getI64IntegerAttr(32));
    Value whole = castBits(b, i64, value);
    Value low = shuffleWarp(ops, b, mask, arith::TruncIOp::create(b, i32, whole), distance);
    Value high = arith::ShRUIOp::create(b, whole, half);
    high = shuffleWarp(ops, b, mask, arith::TruncIOp::create(b, i32, high), distance);
    high = arith::ShLIOp::create(b, arith::ExtUIOp::create(b, i64, high), half);
    return castBits(b, type, arith::OrIOp::create(b, high, arith::ExtUIOp::create(b, i64, low)));
  }
  if (bits < 32) {
    Type integer = b.getIntegerType(bits);
    Value wide = arith::ExtUIOp::create(b, i32, castBits(b, integer, value));
    Value word = shuffleWarp(ops, b, mask, wide, distance);
    return castBits(b, type, arith::TruncIOp::create(b, integer, word));
  }
  return ops.shuffle(b, mask, value, distance);
}

Value mlir::memopt::getSharedMemory(const DeviceOps &ops, ImplicitLocOpBuilder &b) {
  constexpr llvm::StringLiteral symbol = "memopt_shared";
  auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  unsigned space = ops.getSharedSpace();
  if (!module.lookupSymbol(symbol)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    LLVM::GlobalOp::create(b, b.getLoc(), LLVM::LLVMArrayType::get(b.getI8Type(), 0),
                           /*isConstant=*/false, LLVM::Linkage::External, symbol, Attribute(),
                           /*alignment=*/DeviceMachine().accessBytes, space);
  }
  return LLVM::AddressOfOp::create(b, LLVM::LLVMPointerType::get(b.getContext(), space), symbol);
}
