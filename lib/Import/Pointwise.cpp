//===- Pointwise.cpp - arithmetic on elements -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

//===----------------------------------------------------------------------===//
// Sums and products
//===----------------------------------------------------------------------===//

static bool isOne(const Scalar &scalar) {
  return scalar.isFloat ? scalar.real == 1 : scalar.integer == 1;
}

static Value add(Builder &b, Value x, Value y) {
  if (isa<mlir::FloatType>(mlir::getElementTypeOrSelf(x)))
    return arith::AddFOp::create(b, x, y);
  if (mlir::getElementTypeOrSelf(x).isInteger(1))
    return arith::OrIOp::create(b, x, y);
  return arith::AddIOp::create(b, x, y);
}

static Value subtract(Builder &b, Value x, Value y) {
  if (isa<mlir::FloatType>(mlir::getElementTypeOrSelf(x)))
    return arith::SubFOp::create(b, x, y);
  return arith::SubIOp::create(b, x, y);
}

static Value multiply(Builder &b, Value x, Value y) {
  if (isa<mlir::FloatType>(mlir::getElementTypeOrSelf(x)))
    return arith::MulFOp::create(b, x, y);
  if (mlir::getElementTypeOrSelf(x).isInteger(1))
    return arith::AndIOp::create(b, x, y);
  return arith::MulIOp::create(b, x, y);
}

// Wrapping arithmetic, as the machine does it.
static int64_t wrappingAdd(int64_t x, int64_t y) { return uint64_t(x) + uint64_t(y); }
static int64_t wrappingSubtract(int64_t x, int64_t y) { return uint64_t(x) - uint64_t(y); }
static int64_t wrappingMultiply(int64_t x, int64_t y) { return uint64_t(x) * uint64_t(y); }

/// x + alpha * y and its relatives.
template <Value combine(Builder &, Value, Value), int64_t evaluate(int64_t, int64_t)>
static Error lowerScaledSum(OpContext &op, const Operand &x, const Operand &y) {
  Scalar alpha = op.scalar("alpha");
  DType type = op.resultMeta(0).dtype;
  return setResult(op, elementwise(
                           op, {x, y}, type, type,
                           [&](Builder &b, ValueRange v) {
                             Value scaled = v[1];
                             if (!isOne(alpha))
                               scaled = multiply(b, scaled, splat(b, scaled.getType(), alpha));
                             return combine(b, v[0], scaled);
                           },
                           alpha.isFloat ? Evaluate() : Evaluate([&](ArrayRef<int64_t> v) {
                             return evaluate(v[0], wrappingMultiply(alpha.integer, v[1]));
                           })));
}

static Error lowerAdd(OpContext &op) {
  return lowerScaledSum<add, wrappingAdd>(op, op.tensor("self"), op.operand("other"));
}
static Error lowerSub(OpContext &op) {
  return lowerScaledSum<subtract, wrappingSubtract>(op, op.tensor("self"), op.operand("other"));
}
static Error lowerRsub(OpContext &op) {
  return lowerScaledSum<subtract, wrappingSubtract>(op, op.operand("other"), op.tensor("self"));
}

static Error lowerMul(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  return setResult(op, elementwise(
                           op, {op.tensor("self"), op.operand("other")}, type, type,
                           [](Builder &b, ValueRange v) { return multiply(b, v[0], v[1]); },
                           [](ArrayRef<int64_t> v) { return wrappingMultiply(v[0], v[1]); }));
}

//===----------------------------------------------------------------------===//
// Division
//===----------------------------------------------------------------------===//

/// Division by zero and the one overflow are undefined in PyTorch; here they give zero.
static int64_t divideOrZero(int64_t x, int64_t y, bool floor) {
  if (y == 0 || (y == -1 && x == std::numeric_limits<int64_t>::min()))
    return 0;
  int64_t quotient = x / y;
  return floor && x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
}

static Expected<Tensor> divide(OpContext &op, StringRef rounding) {
  DType type = op.resultMeta(0).dtype;
  Operand x = op.tensor("self"), y = op.operand("other");
  if (isFloat(type))
    return elementwise(op, {x, y}, type, type, [&](Builder &b, ValueRange v) {
      Value quotient = arith::DivFOp::create(b, v[0], v[1]);
      if (rounding == "floor")
        return math::FloorOp::create(b, quotient).getResult();
      if (rounding == "trunc")
        return math::TruncOp::create(b, quotient).getResult();
      return quotient;
    });
  bool floor = rounding == "floor";
  return elementwise(
      op, {x, y}, type, type,
      [&](Builder &b, ValueRange v) -> Value {
        if (floor)
          return arith::FloorDivSIOp::create(b, v[0], v[1]);
        return arith::DivSIOp::create(b, v[0], v[1]);
      },
      [&](ArrayRef<int64_t> v) { return divideOrZero(v[0], v[1], floor); });
}

static Error lowerDiv(OpContext &op) { return setResult(op, divide(op, "")); }
static Error lowerFloorDivide(OpContext &op) { return setResult(op, divide(op, "floor")); }

static Error lowerDivMode(OpContext &op) {
  StringRef rounding = op.has("rounding_mode") ? op.text("rounding_mode") : "";
  if (!rounding.empty() && rounding != "floor" && rounding != "trunc")
    return op.error("argument 'rounding_mode': expected floor or trunc, found " + rounding);
  return setResult(op, divide(op, rounding));
}

/// Python's remainder: the sign is the divisor's.
static Error lowerRemainder(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  return setResult(
      op, elementwise(
              op, {op.tensor("self"), op.operand("other")}, type, type,
              [&](Builder &b, ValueRange v) -> Value {
                Value quotient;
                if (isFloat(type))
                  quotient =
                      math::FloorOp::create(b, arith::DivFOp::create(b, v[0], v[1]).getResult());
                else
                  quotient = arith::FloorDivSIOp::create(b, v[0], v[1]);
                return subtract(b, v[0], multiply(b, quotient, v[1]));
              },
              [](ArrayRef<int64_t> v) {
                return wrappingSubtract(
                    v[0], wrappingMultiply(divideOrZero(v[0], v[1], /*floor=*/true), v[1]));
              }));
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

/// Small exponents become products, as PyTorch computes them, which also keeps their gradients
/// simple.
static Value power(Builder &b, Value x, const Scalar &exponent) {
  double e = exponent.asDouble();
  auto one = [&] { return splat(b, x.getType(), 1.0); };
  if (e == 0)
    return one();
  if (e == 1)
    return x;
  if (e == 2)
    return multiply(b, x, x);
  if (e == 3)
    return multiply(b, multiply(b, x, x), x);
  if (!isa<mlir::FloatType>(mlir::getElementTypeOrSelf(x)))
    return math::IPowIOp::create(b, x, splat(b, x.getType(), exponent));
  if (e == 0.5)
    return math::SqrtOp::create(b, x);
  if (e == -0.5)
    return math::RsqrtOp::create(b, x);
  if (e == -1)
    return arith::DivFOp::create(b, one(), x);
  if (e == -2)
    return arith::DivFOp::create(b, one(), multiply(b, x, x));
  return math::PowFOp::create(b, x, splat(b, x.getType(), exponent));
}

static Error lowerPowScalar(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  Scalar exponent = op.scalar("exponent");
  if (!isFloat(type) && (exponent.isFloat || exponent.integer < 0))
    return op.error("an integer tensor to the power " + toString(exponent.asDouble()) +
                    " is not supported");
  return setResult(op,
                   elementwise(op, {op.tensor("self")}, type, type,
                               [&](Builder &b, ValueRange v) { return power(b, v[0], exponent); }));
}

static Error lowerPow(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return op.error("powers of integer tensors are not supported");
  return setResult(op, elementwise(op, {op.operand("self"), op.operand("exponent")}, type, type,
                                   [](Builder &b, ValueRange v) -> Value {
                                     return math::PowFOp::create(b, v[0], v[1]);
                                   }));
}

//===----------------------------------------------------------------------===//
// Functions of one number
//===----------------------------------------------------------------------===//

template <typename OpTy> static Error lowerFloat(OpContext &op) {
  return mapFloat(op, [](Builder &b, ValueRange v) -> Value { return OpTy::create(b, v[0]); });
}

/// Rounding leaves integers alone.
template <typename OpTy> static Error lowerRounding(OpContext &op) {
  if (!isFloat(op.resultMeta(0).dtype))
    return setResult(op, op.copy(op.tensor("self")));
  return lowerFloat<OpTy>(op);
}

static Error lowerReciprocal(OpContext &op) {
  return mapFloat(op, [](Builder &b, ValueRange v) -> Value {
    return arith::DivFOp::create(b, splat(b, v[0].getType(), 1.0), v[0]);
  });
}

static Error lowerNeg(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  return setResult(op, elementwise(
                           op, {op.tensor("self")}, type, type,
                           [&](Builder &b, ValueRange v) -> Value {
                             if (isFloat(type))
                               return arith::NegFOp::create(b, v[0]);
                             return arith::SubIOp::create(b, splat(b, v[0].getType(), 0.0), v[0]);
                           },
                           [](ArrayRef<int64_t> v) { return wrappingSubtract(0, v[0]); }));
}

static Error lowerAbs(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  return setResult(
      op, elementwise(
              op, {op.tensor("self")}, type, type,
              [&](Builder &b, ValueRange v) -> Value {
                if (isFloat(type))
                  return math::AbsFOp::create(b, v[0]);
                return math::AbsIOp::create(b, v[0]);
              },
              [](ArrayRef<int64_t> v) { return v[0] < 0 ? wrappingSubtract(0, v[0]) : v[0]; }));
}

static Error lowerSign(OpContext &op) {
  return mapFloat(op, [](Builder &b, ValueRange v) -> Value {
    auto constant = [&](double value) { return splat(b, v[0].getType(), value); };
    Value positive = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, v[0], constant(0));
    Value negative = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, v[0], constant(0));
    Value rest = arith::SelectOp::create(b, negative, constant(-1), constant(0));
    return arith::SelectOp::create(b, positive, constant(1), rest);
  });
}

/// Functions of two floating-point tensors.
template <typename OpTy> static Error lowerFloatPair(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return op.error("expected a floating-point result, found " + getName(type));
  return setResult(op, elementwise(op, {op.operand("self"), op.operand("other")}, type, type,
                                   [](Builder &b, ValueRange v) -> Value {
                                     return OpTy::create(b, v[0], v[1]);
                                   }));
}

static Error lowerHypot(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  return setResult(op, elementwise(op, {op.tensor("self"), op.tensor("other")}, type, type,
                                   [](Builder &b, ValueRange v) -> Value {
                                     Value sum =
                                         add(b, multiply(b, v[0], v[0]), multiply(b, v[1], v[1]));
                                     return math::SqrtOp::create(b, sum);
                                   }));
}

/// x log y, and 0 wherever x is.
static Error lowerXlogy(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  return setResult(
      op, elementwise(op, {op.operand("self"), op.operand("other")}, type, type,
                      [](Builder &b, ValueRange v) -> Value {
                        Value zero = splat(b, v[0].getType(), 0.0);
                        Value isZero =
                            arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, v[0], zero);
                        Value log = math::LogOp::create(b, v[1]);
                        return arith::SelectOp::create(b, isZero, zero, multiply(b, v[0], log));
                      }));
}

/// self + value * tensor1 (times or over) tensor2
template <bool divides> static Error lowerAddCombined(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  Scalar value = op.scalar("value");
  if (!isFloat(type))
    return op.error("expected a floating-point result, found " + getName(type));
  return setResult(
      op, elementwise(op, {op.tensor("self"), op.tensor("tensor1"), op.tensor("tensor2")}, type,
                      type, [&](Builder &b, ValueRange v) {
                        Value term = divides ? arith::DivFOp::create(b, v[1], v[2]).getResult()
                                             : multiply(b, v[1], v[2]);
                        if (!isOne(value))
                          term = multiply(b, term, splat(b, term.getType(), value));
                        return add(b, v[0], term);
                      }));
}

static Error lowerLerp(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  return setResult(op, elementwise(op, {op.tensor("self"), op.tensor("end"), op.operand("weight")},
                                   type, type, [](Builder &b, ValueRange v) {
                                     return add(b, v[0],
                                                multiply(b, v[2], subtract(b, v[1], v[0])));
                                   }));
}

//===----------------------------------------------------------------------===//
// Extremes
//===----------------------------------------------------------------------===//

template <bool isMax> static Error lowerExtreme(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  return setResult(op, elementwise(
                           op, {op.tensor("self"), op.operand("other")}, type, type,
                           [&](Builder &b, ValueRange v) -> Value {
                             if (isFloat(type))
                               return isMax ? arith::MaximumFOp::create(b, v[0], v[1]).getResult()
                                            : arith::MinimumFOp::create(b, v[0], v[1]).getResult();
                             return isMax ? arith::MaxSIOp::create(b, v[0], v[1]).getResult()
                                          : arith::MinSIOp::create(b, v[0], v[1]).getResult();
                           },
                           [](ArrayRef<int64_t> v) {
                             return isMax ? std::max(v[0], v[1]) : std::min(v[0], v[1]);
                           }));
}

/// Compare and select: NaN stays, and inside the bounds, these included, the gradient passes, both
/// as in PyTorch.
static Value clampValue(Builder &b, Value x, Value bound, bool isLower) {
  Value outside;
  if (isa<mlir::FloatType>(mlir::getElementTypeOrSelf(x)))
    outside = arith::CmpFOp::create(
        b, isLower ? arith::CmpFPredicate::OLT : arith::CmpFPredicate::OGT, x, bound);
  else
    outside = arith::CmpIOp::create(
        b, isLower ? arith::CmpIPredicate::slt : arith::CmpIPredicate::sgt, x, bound);
  return arith::SelectOp::create(b, outside, bound, x);
}

static Error lowerClamp(OpContext &op, bool hasMin, bool hasMax) {
  DType type = op.resultMeta(0).dtype;
  SmallVector<Operand> operands{op.tensor("self")};
  if (hasMin)
    operands.push_back(op.operand("min"));
  if (hasMax)
    operands.push_back(op.operand("max"));
  return setResult(op, elementwise(op, operands, type, type, [&](Builder &b, ValueRange v) {
                     Value result = v[0];
                     if (hasMin)
                       result = clampValue(b, result, v[1], /*isLower=*/true);
                     if (hasMax)
                       result = clampValue(b, result, v.back(), /*isLower=*/false);
                     return result;
                   }));
}

static Error lowerClampBoth(OpContext &op) { return lowerClamp(op, op.has("min"), op.has("max")); }
static Error lowerClampMin(OpContext &op) { return lowerClamp(op, true, false); }
static Error lowerClampMax(OpContext &op) { return lowerClamp(op, false, true); }

static Error lowerSquare(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  return setResult(op,
                   elementwise(op, {op.tensor("self")}, type, type,
                               [](Builder &b, ValueRange v) { return multiply(b, v[0], v[0]); }));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerPointwise(OpTable &table) {
  table.add("aten.add.Tensor", "Tensor self, Tensor|Scalar other, Scalar alpha=1", lowerAdd);
  table.add("aten.add.Scalar", "Tensor self, Tensor|Scalar other, Scalar alpha=1", lowerAdd);
  table.add("aten.sub.Tensor", "Tensor self, Tensor|Scalar other, Scalar alpha=1", lowerSub);
  table.add("aten.sub.Scalar", "Tensor self, Tensor|Scalar other, Scalar alpha=1", lowerSub);
  table.add("aten.rsub.Scalar", "Tensor self, Tensor|Scalar other, Scalar alpha=1", lowerRsub);
  table.add("aten.rsub.Tensor", "Tensor self, Tensor|Scalar other, Scalar alpha=1", lowerRsub);
  table.add("aten.mul.Tensor", "Tensor self, Tensor|Scalar other", lowerMul);
  table.add("aten.mul.Scalar", "Tensor self, Tensor|Scalar other", lowerMul);
  table.add("aten.div.Tensor", "Tensor self, Tensor|Scalar other", lowerDiv);
  table.add("aten.div.Scalar", "Tensor self, Tensor|Scalar other", lowerDiv);
  table.add("aten.div.Tensor_mode", "Tensor self, Tensor|Scalar other, str? rounding_mode",
            lowerDivMode);
  table.add("aten.div.Scalar_mode", "Tensor self, Tensor|Scalar other, str? rounding_mode",
            lowerDivMode);
  table.add("aten.floor_divide.default", "Tensor self, Tensor|Scalar other", lowerFloorDivide);
  table.add("aten.remainder.Scalar", "Tensor self, Tensor|Scalar other", lowerRemainder);
  table.add("aten.remainder.Tensor", "Tensor self, Tensor|Scalar other", lowerRemainder);
  table.add("aten.pow.Tensor_Scalar", "Tensor self, Scalar exponent", lowerPowScalar);
  table.add("aten.pow.Tensor_Tensor", "Tensor|Scalar self, Tensor|Scalar exponent", lowerPow);
  table.add("aten.pow.Scalar", "Tensor|Scalar self, Tensor|Scalar exponent", lowerPow);
  table.add("aten.square.default", "Tensor self", lowerSquare);
  table.add("aten.neg.default", "Tensor self", lowerNeg);
  table.add("aten.abs.default", "Tensor self", lowerAbs);
  table.add("aten.sign.default", "Tensor self", lowerSign);
  table.add("aten.exp.default", "Tensor self", lowerFloat<math::ExpOp>);
  table.add("aten.exp2.default", "Tensor self", lowerFloat<math::Exp2Op>);
  table.add("aten.expm1.default", "Tensor self", lowerFloat<math::ExpM1Op>);
  table.add("aten.log.default", "Tensor self", lowerFloat<math::LogOp>);
  table.add("aten.log1p.default", "Tensor self", lowerFloat<math::Log1pOp>);
  table.add("aten.log2.default", "Tensor self", lowerFloat<math::Log2Op>);
  table.add("aten.sqrt.default", "Tensor self", lowerFloat<math::SqrtOp>);
  table.add("aten.rsqrt.default", "Tensor self", lowerFloat<math::RsqrtOp>);
  table.add("aten.reciprocal.default", "Tensor self", lowerReciprocal);
  table.add("aten.sin.default", "Tensor self", lowerFloat<math::SinOp>);
  table.add("aten.cos.default", "Tensor self", lowerFloat<math::CosOp>);
  table.add("aten.tan.default", "Tensor self", lowerFloat<math::TanOp>);
  table.add("aten.asin.default", "Tensor self", lowerFloat<math::AsinOp>);
  table.add("aten.acos.default", "Tensor self", lowerFloat<math::AcosOp>);
  table.add("aten.atan.default", "Tensor self", lowerFloat<math::AtanOp>);
  table.add("aten.sinh.default", "Tensor self", lowerFloat<math::SinhOp>);
  table.add("aten.cosh.default", "Tensor self", lowerFloat<math::CoshOp>);
  table.add("aten.atan2.default", "Tensor self, Tensor other", lowerFloatPair<math::Atan2Op>);
  table.add("aten.hypot.default", "Tensor self, Tensor other", lowerHypot);
  table.add("aten.xlogy.Tensor", "Tensor|Scalar self, Tensor|Scalar other", lowerXlogy);
  table.add("aten.addcmul.default", "Tensor self, Tensor tensor1, Tensor tensor2, Scalar value=1",
            lowerAddCombined<false>);
  table.add("aten.addcdiv.default", "Tensor self, Tensor tensor1, Tensor tensor2, Scalar value=1",
            lowerAddCombined<true>);
  table.add("aten.lerp.Scalar", "Tensor self, Tensor end, Tensor|Scalar weight", lowerLerp);
  table.add("aten.lerp.Tensor", "Tensor self, Tensor end, Tensor|Scalar weight", lowerLerp);
  table.add("aten.erf.default", "Tensor self", lowerFloat<math::ErfOp>);
  table.add("aten.erfc.default", "Tensor self", lowerFloat<math::ErfcOp>);
  table.add("aten.floor.default", "Tensor self", lowerRounding<math::FloorOp>);
  table.add("aten.ceil.default", "Tensor self", lowerRounding<math::CeilOp>);
  table.add("aten.trunc.default", "Tensor self", lowerRounding<math::TruncOp>);
  table.add("aten.round.default", "Tensor self", lowerRounding<math::RoundEvenOp>);
  table.add("aten.clamp.default", "Tensor self, Tensor|Scalar? min=None, Tensor|Scalar? max=None",
            lowerClampBoth);
  table.add("aten.clamp.Tensor", "Tensor self, Tensor|Scalar? min=None, Tensor|Scalar? max=None",
            lowerClampBoth);
  table.add("aten.clamp_min.default", "Tensor self, Tensor|Scalar min", lowerClampMin);
  table.add("aten.clamp_max.default", "Tensor self, Tensor|Scalar max", lowerClampMax);
  table.add("aten.maximum.default", "Tensor self, Tensor|Scalar other", lowerExtreme<true>);
  table.add("aten.minimum.default", "Tensor self, Tensor|Scalar other", lowerExtreme<false>);
  table.add("aten.max.other", "Tensor self, Tensor|Scalar other", lowerExtreme<true>);
  table.add("aten.min.other", "Tensor self, Tensor|Scalar other", lowerExtreme<false>);
}
