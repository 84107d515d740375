//===- Divisions.cpp - quotients and remainders -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rounded quotients of real numbers follow from the remainder, which is exact, as in Python: the
// floor of a rounded quotient is off by one near multiples (1 // 0.1 is 9).
//
// Integers divided by zero are an error in PyTorch. Here it is found while importing when the
// divisor is known, and by the running program otherwise.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using Elements = ArrayRef<Element>;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Real numbers
//===----------------------------------------------------------------------===//

/// What fmod lacks when the divisor has the other sign: Python's remainder has the divisor's.
static Element needsDivisor(Element remainder, Element divisor) {
  return differs(remainder, 0) & (less(divisor, 0) ^ less(remainder, 0));
}

/// Python's x // y for floats (float_floor_div of CPython); x / y where y is 0.
static Element floorQuotient(Element x, Element y) {
  Element remainder = truncatedRemainder(x, y);
  Element quotient = (x - remainder) / y;
  quotient = select(needsDivisor(remainder, y), quotient - 1, quotient);
  Element whole = floor(quotient);
  whole = select(greater(quotient - whole, 0.5), whole + 1, whole);
  whole = select(equals(quotient, 0), copySign(x.like(0), x / y), whole);
  return select(equals(y, 0), x / y, whole);
}

static Element floorRemainder(Element x, Element y) {
  Element remainder = truncatedRemainder(x, y);
  Element result = select(needsDivisor(remainder, y), remainder + y, remainder);
  return withSlopes(result, {{x, x.like(1)}, {y, -floorQuotient(x, y)}});
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

template <typename OpTy> static Element divide(Element x, Element y) {
  return {x.getBuilder(), OpTy::create(x.getBuilder(), x, y)};
}

/// The one quotient that overflows wraps around; the divisor is not zero.
static int64_t quotientOf(int64_t x, int64_t y, bool floor) {
  if (y == -1)
    return int64_t(0 - uint64_t(x));
  int64_t quotient = x / y;
  return floor && x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
}

static int64_t remainderOf(int64_t x, int64_t y, bool floor) {
  return int64_t(uint64_t(x) - uint64_t(quotientOf(x, y, floor)) * uint64_t(y));
}

/// The divisor in the type of the division, in which a byte wraps around.
static Operand getDivisor(OpContext &op) {
  Operand divisor = op.operand("other");
  auto *scalar = std::get_if<Scalar>(&divisor);
  if (scalar && !scalar->isFloat && op.resultMeta(0).dtype == DType::U8)
    scalar->integer = uint8_t(scalar->integer);
  return divisor;
}

/// Fails when integers would be divided by a divisor that is known to have a zero.
static Error checkDivisor(OpContext &op, const Operand &divisor) {
  if (isFloat(op.resultMeta(0).dtype))
    return Error::success();
  bool isZero = false;
  if (const auto *scalar = std::get_if<Scalar>(&divisor))
    isZero = scalar->asDouble() == 0;
  else if (const Constant &known = std::get<Tensor>(divisor).constant)
    for (int64_t i = 0; i != known->getNumStored(); ++i)
      isZero |= known->getStored(i) == 0;
  if (isZero)
    return op.error("divides integers by zero");
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

enum class Rounding { None, Floor, Trunc };

static Error lowerQuotient(OpContext &op, Rounding rounding) {
  Operand x = op.operand("self"), y = getDivisor(op);
  RETURN_IF_ERROR(checkDivisor(op, y));
  bool isReal = isFloat(op.resultMeta(0).dtype), isFloor = rounding == Rounding::Floor;
  return mapElements(
      op, {x, y},
      [&](Elements v) {
        if (!isReal)
          return isFloor ? divide<arith::FloorDivSIOp>(v[0], v[1])
                         : divide<arith::DivSIOp>(v[0], v[1]);
        if (rounding == Rounding::None)
          return v[0] / v[1];
        return isFloor ? withoutGradient(floorQuotient(v[0], v[1])) : trunc(v[0] / v[1]);
      },
      [&](ArrayRef<int64_t> v) { return quotientOf(v[0], v[1], isFloor); });
}

static Error lowerDiv(OpContext &op) { return lowerQuotient(op, Rounding::None); }
static Error lowerFloorDivide(OpContext &op) { return lowerQuotient(op, Rounding::Floor); }

static Error lowerDivMode(OpContext &op) {
  StringRef rounding = op.has("rounding_mode") ? op.text("rounding_mode") : "";
  if (!rounding.empty() && rounding != "floor" && rounding != "trunc")
    return op.error("argument 'rounding_mode': expected floor or trunc, found " + rounding);
  return lowerQuotient(op, rounding.empty()      ? Rounding::None
                           : rounding == "floor" ? Rounding::Floor
                                                 : Rounding::Trunc);
}

/// With the sign of the divisor (Python's %) or of the dividend (C's).
template <bool floor> static Error lowerRemainder(OpContext &op) {
  Operand x = op.operand("self"), y = getDivisor(op);
  RETURN_IF_ERROR(checkDivisor(op, y));
  bool isReal = isFloat(op.resultMeta(0).dtype);
  return mapElements(
      op, {x, y},
      [&](Elements v) {
        if (isReal)
          return floor ? floorRemainder(v[0], v[1]) : truncatedRemainder(v[0], v[1]);
        if (!floor)
          return divide<arith::RemSIOp>(v[0], v[1]);
        return v[0] - divide<arith::FloorDivSIOp>(v[0], v[1]) * v[1];
      },
      [&](ArrayRef<int64_t> v) { return remainderOf(v[0], v[1], floor); });
}

void memopt::pt2::registerDivisions(OpTable &table) {
  constexpr StringLiteral pair = "Tensor|Scalar self, Tensor|Scalar other",
                          mode = "Tensor self, Tensor|Scalar other, str? rounding_mode";
  for (StringLiteral name :
       {StringLiteral("aten.div.Tensor"), StringLiteral("aten.div.Scalar"),
        StringLiteral("aten.divide.Tensor"), StringLiteral("aten.divide.Scalar"),
        StringLiteral("aten.true_divide.Tensor"), StringLiteral("aten.true_divide.Scalar")})
    table.add(name, pair, lowerDiv);
  for (StringLiteral name :
       {StringLiteral("aten.div.Tensor_mode"), StringLiteral("aten.div.Scalar_mode"),
        StringLiteral("aten.divide.Tensor_mode"), StringLiteral("aten.divide.Scalar_mode")})
    table.add(name, mode, lowerDivMode);
  table.add("aten.floor_divide.default", pair, lowerFloorDivide);
  table.add("aten.floor_divide.Scalar", pair, lowerFloorDivide);
  for (StringLiteral name :
       {StringLiteral("aten.remainder.Scalar"), StringLiteral("aten.remainder.Tensor"),
        StringLiteral("aten.remainder.Scalar_Tensor")})
    table.add(name, pair, lowerRemainder<true>);
  table.add("aten.fmod.Tensor", pair, lowerRemainder<false>);
  table.add("aten.fmod.Scalar", pair, lowerRemainder<false>);
}
