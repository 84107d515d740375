//===- CircularArithmetic.h - what sines are computed with ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Doubles and words of 64 bits, one for each lane of the argument: both expansions compute with
// these (CircularFunctions.cpp, WideCircularFunctions.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_CORE_MATH_CIRCULARARITHMETIC_H
#define MEMOPT_LIB_CONVERSION_CORE_MATH_CIRCULARARITHMETIC_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::memopt {

class CircularArithmetic {
public:
  CircularArithmetic(OpBuilder &builder, Location location, Value x)
      : b(location, builder), x(x), wide(like(b.getF64Type())), integer(like(b.getI64Type())) {}

protected:
  /// The type with this element for each lane of the argument.
  Type like(Type element) {
    auto vector = dyn_cast<VectorType>(x.getType());
    return vector ? Type(vector.clone(element)) : element;
  }
  Value splat(Type type, TypedAttr value) {
    if (auto vector = dyn_cast<VectorType>(type))
      value = DenseElementsAttr::get(vector, ArrayRef<Attribute>(value));
    return arith::ConstantOp::create(b, value);
  }
  Value number(double value) { return splat(wide, b.getF64FloatAttr(value)); }
  Value whole(uint64_t value) {
    return splat(integer, b.getIntegerAttr(b.getI64Type(), static_cast<int64_t>(value)));
  }

  Value both(Value a, Value c) { return arith::AndIOp::create(b, a, c); }
  Value shiftLeft(Value value, Value by) { return arith::ShLIOp::create(b, value, by); }
  Value shiftRight(Value value, Value by) { return arith::ShRUIOp::create(b, value, by); }
  Value isEqual(Value a, Value c) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, a, c);
  }
  Value select(Value condition, Value a, Value c) {
    return arith::SelectOp::create(b, condition, a, c);
  }
  Value hasBit(Value value, uint64_t bit) { return isEqual(both(value, whole(bit)), whole(bit)); }

  Value polynomial(Value square, ArrayRef<double> highestFirst) {
    Value result = number(highestFirst.front());
    for (double coefficient : highestFirst.drop_front())
      result = math::FmaOp::create(b, result, square, number(coefficient));
    return result;
  }

  ImplicitLocOpBuilder b;
  Value x;
  Type wide, integer;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_CORE_MATH_CIRCULARARITHMETIC_H
