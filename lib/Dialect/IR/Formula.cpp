//===- Formula.cpp - formulas over scalars and vectors -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Formula.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Conversions and constants
//===----------------------------------------------------------------------===//

Value mlir::memopt::convertTo(ImplicitLocOpBuilder &b, Value value, Type type) {
  Type from = value.getType();
  if (from == type)
    return value;
  // No runtime of ours rounds f64 to 16 bits at once.
  if (from.isF64() && isa<FloatType>(type) && type.getIntOrFloatBitWidth() == 16)
    value = arith::TruncFOp::create(b, b.getF32Type(), value), from = value.getType();
  if (isa<FloatType>(from) && isa<FloatType>(type))
    return from.getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth()
               ? Value(arith::ExtFOp::create(b, type, value))
               : Value(arith::TruncFOp::create(b, type, value));
  if (isa<FloatType>(type))
    return from.isInteger(1) ? Value(arith::UIToFPOp::create(b, type, value))
                             : Value(arith::SIToFPOp::create(b, type, value));
  if (isa<IndexType>(from) || isa<IndexType>(type))
    return arith::IndexCastOp::create(b, type, value);
  if (from.getIntOrFloatBitWidth() > type.getIntOrFloatBitWidth())
    return arith::TruncIOp::create(b, type, value);
  return from.isInteger(1) ? Value(arith::ExtUIOp::create(b, type, value))
                           : Value(arith::ExtSIOp::create(b, type, value));
}

/// In each lane of a vector.
static Value createNumber(ImplicitLocOpBuilder &b, Type type, TypedAttr number) {
  if (auto vector = dyn_cast<VectorType>(type))
    number = DenseElementsAttr::get(vector, ArrayRef<Attribute>(number));
  return arith::ConstantOp::create(b, number);
}

Value mlir::memopt::createConstant(ImplicitLocOpBuilder &b, Type type, double value) {
  Type element = getElementTypeOrSelf(type);
  if (!isa<FloatType>(element))
    return createIntConstant(b, type, static_cast<int64_t>(value));
  return createNumber(b, type, b.getFloatAttr(element, value));
}

Value mlir::memopt::createIntConstant(ImplicitLocOpBuilder &b, Type type, int64_t value) {
  Type element = getElementTypeOrSelf(type);
  auto integer = dyn_cast<IntegerType>(element);
  TypedAttr number = integer ? b.getIntegerAttr(integer, APInt(integer.getWidth(), value,
                                                               /*isSigned=*/true,
                                                               /*implicitTrunc=*/true))
                             : b.getIntegerAttr(element, value);
  return createNumber(b, type, number);
}

Value Formula::ofBits(uint64_t bits) {
  auto element = cast<FloatType>(getElementTypeOrSelf(type));
  APFloat number(element.getFloatSemantics(), APInt(element.getWidth(), bits));
  return createNumber(b, type, FloatAttr::get(element, number));
}

//===----------------------------------------------------------------------===//
// Floats and integers
//===----------------------------------------------------------------------===//

Value Formula::add(Value l, Value r) {
  return isFloat() ? arith::AddFOp::create(b, l, r).getResult()
                   : arith::AddIOp::create(b, l, r).getResult();
}
Value Formula::sub(Value l, Value r) {
  return isFloat() ? arith::SubFOp::create(b, l, r).getResult()
                   : arith::SubIOp::create(b, l, r).getResult();
}
Value Formula::mul(Value l, Value r) {
  return isFloat() ? arith::MulFOp::create(b, l, r).getResult()
                   : arith::MulIOp::create(b, l, r).getResult();
}
static Value compareFloats(ImplicitLocOpBuilder &b, arith::CmpFPredicate predicate, Value l,
                           Value r) {
  return arith::CmpFOp::create(b, predicate, l, r);
}

Value Formula::equal(Value l, Value r) {
  return isFloat() ? compareFloats(b, arith::CmpFPredicate::OEQ, l, r)
                   : compare(arith::CmpIPredicate::eq, l, r);
}
Value Formula::select(Value condition, Value l, Value r) {
  return arith::SelectOp::create(b, condition, l, r);
}
Value Formula::bitcast(Value value) { return arith::BitcastOp::create(b, type, value); }

//===----------------------------------------------------------------------===//
// Floats
//===----------------------------------------------------------------------===//

Value Formula::div(Value l, Value r) { return arith::DivFOp::create(b, l, r); }
Value Formula::fma(Value l, Value r, Value addend) { return math::FmaOp::create(b, l, r, addend); }
Value Formula::negate(Value value) { return arith::NegFOp::create(b, value); }
Value Formula::abs(Value value) { return math::AbsFOp::create(b, value); }
Value Formula::sqrt(Value value) { return math::SqrtOp::create(b, value); }
Value Formula::roundToEven(Value value) { return math::RoundEvenOp::create(b, value); }
Value Formula::copySign(Value value, Value sign) {
  return math::CopySignOp::create(b, value, sign);
}

Value Formula::polynomial(Value x, ArrayRef<double> highestFirst) {
  Value result = number(highestFirst.front());
  for (double coefficient : highestFirst.drop_front())
    result = fma(result, x, number(coefficient));
  return result;
}

Value Formula::unlessZero(Value weight, Value value) {
  Value isZero = equal(weight, number(0.0));
  return select(isZero, number(0.0), value);
}

Value Formula::inverseRoot(Value value, double eps) {
  Value one = number(1.0);
  return div(one, sqrt(add(value, number(eps))));
}

Value Formula::less(Value l, Value r) { return compareFloats(b, arith::CmpFPredicate::OLT, l, r); }
Value Formula::lessEqual(Value l, Value r) {
  return compareFloats(b, arith::CmpFPredicate::OLE, l, r);
}
Value Formula::isNumber(Value value) {
  return compareFloats(b, arith::CmpFPredicate::ORD, value, value);
}
Value Formula::isNaN(Value value) {
  return compareFloats(b, arith::CmpFPredicate::UNO, value, value);
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

Value Formula::both(Value l, Value r) { return arith::AndIOp::create(b, l, r); }
Value Formula::either(Value l, Value r) { return arith::OrIOp::create(b, l, r); }
Value Formula::differing(Value l, Value r) { return arith::XOrIOp::create(b, l, r); }
Value Formula::left(Value value, Value by) { return arith::ShLIOp::create(b, value, by); }
Value Formula::right(Value value, Value by) { return arith::ShRUIOp::create(b, value, by); }
Value Formula::compare(arith::CmpIPredicate predicate, Value l, Value r) {
  return arith::CmpIOp::create(b, predicate, l, r);
}
