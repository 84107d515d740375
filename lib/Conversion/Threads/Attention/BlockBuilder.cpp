//===- BlockBuilder.cpp - what threads of a block compute -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BlockBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value BlockBuilder::integer(int64_t value) {
  return arith::ConstantOp::create(b, b.getIntegerAttr(index, value));
}
Value BlockBuilder::number(double value, int64_t lanes) {
  TypedAttr attribute = b.getFloatAttr(type, value);
  if (lanes > 1)
    attribute = DenseElementsAttr::get(VectorType::get({lanes}, type), attribute);
  return arith::ConstantOp::create(b, attribute);
}
Value BlockBuilder::add(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
Value BlockBuilder::multiply(Value x, int64_t y) { return arith::MulIOp::create(b, x, integer(y)); }
Value BlockBuilder::divide(Value x, int64_t y) { return arith::DivUIOp::create(b, x, integer(y)); }
Value BlockBuilder::remainder(Value x, int64_t y) {
  return arith::RemUIOp::create(b, x, integer(y));
}
Value BlockBuilder::isBelow(Value x, Value y) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, x, y);
}
Value BlockBuilder::smaller(Value x, int64_t y) { return arith::MinSIOp::create(b, x, integer(y)); }
Value BlockBuilder::select(Value condition, Value x, Value y) {
  return arith::SelectOp::create(b, condition, x, y);
}
Value BlockBuilder::addNumbers(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
Value BlockBuilder::subtractNumbers(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
Value BlockBuilder::multiplyNumbers(Value x, Value y) { return arith::MulFOp::create(b, x, y); }

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

BlockBuilder::Values BlockBuilder::loop(Value lower, Value upper, int64_t step, ValueRange carried,
                                        LoopFn body) {
  auto made = scf::ForOp::create(b, lower, upper, integer(step), carried);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.getBody());
  Values results = body(made.getInductionVar(), made.getRegionIterArgs());
  if (!carried.empty())
    scf::YieldOp::create(b, results);
  return made.getResults();
}

void BlockBuilder::where(Value condition, llvm::function_ref<void()> body) {
  if (!condition)
    return body();
  auto branch = scf::IfOp::create(b, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  body();
}

Value BlockBuilder::getWholeWarp() {
  return LLVM::ConstantOp::create(b, b.getI32Type(), b.getI32IntegerAttr(-1));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value BlockBuilder::getAddress(Value base, Type element, Value at) {
  return LLVM::GEPOp::create(b, base.getType(), element, base, ValueRange(at));
}
Value BlockBuilder::load(Value address, Type element, int64_t alignment) {
  return LLVM::LoadOp::create(b, element, address, static_cast<unsigned>(alignment));
}
void BlockBuilder::store(Value address, Value value, int64_t alignment) {
  LLVM::StoreOp::create(b, value, address, static_cast<unsigned>(alignment));
}
