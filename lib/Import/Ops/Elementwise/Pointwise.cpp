//===- Pointwise.cpp - sums, products, powers and functions of elements -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
using Elements = ArrayRef<Element>;
namespace math = mlir::math;

//===----------------------------------------------------------------------===//
// Sums and products
//===----------------------------------------------------------------------===//

static bool isOne(const Scalar &scalar) {
  return scalar.isFloat ? scalar.real == 1 : scalar.integer == 1;
}

/// `x` times a number of its type.
static Element scale(Element x, const Scalar &factor) {
  if (isOne(factor))
    return x;
  return x * Element(x.getBuilder(), splat(x.getBuilder(), x.getType(), factor));
}

// Wrapping arithmetic, as the machine does it.
static int64_t wrappingAdd(int64_t x, int64_t y) { return uint64_t(x) + uint64_t(y); }
static int64_t wrappingSubtract(int64_t x, int64_t y) { return uint64_t(x) - uint64_t(y); }
static int64_t wrappingMultiply(int64_t x, int64_t y) { return uint64_t(x) * uint64_t(y); }

/// elementwise() in the result's own type: sums and products of bytes wrap around by themselves.
static Error mapPlainly(OpContext &op, ArrayRef<Operand> operands, FormulaFn formula,
                        Evaluate evaluate = nullptr) {
  DType type = op.resultMeta(0).dtype;
  return setResult(op, elementwise(op, operands, type, type, inBuild(formula), evaluate));
}

/// x + alpha * y and its relatives.
template <Element combine(Element, Element), int64_t evaluate(int64_t, int64_t)>
static Error lowerScaledSum(OpContext &op, const Operand &x, const Operand &y) {
  Scalar alpha = op.scalar("alpha");
  auto evaluated = [&](ArrayRef<int64_t> v) {
    return evaluate(v[0], wrappingMultiply(alpha.integer, v[1]));
  };
  return mapPlainly(
      op, {x, y}, [&](Elements v) { return combine(v[0], scale(v[1], alpha)); },
      alpha.isFloat ? Evaluate() : Evaluate(evaluated));
}

static Error lowerAdd(OpContext &op) {
  return lowerScaledSum<operator+, wrappingAdd>(op, op.operand("self"), op.operand("other"));
}
static Error lowerSub(OpContext &op) {
  return lowerScaledSum<operator-, wrappingSubtract>(op, op.operand("self"), op.operand("other"));
}
static Error lowerRsub(OpContext &op) {
  return lowerScaledSum<operator-, wrappingSubtract>(op, op.operand("other"), op.operand("self"));
}

static Error lowerMul(OpContext &op) {
  return mapPlainly(
      op, {op.operand("self"), op.operand("other")}, [](Elements v) { return v[0] * v[1]; },
      [](ArrayRef<int64_t> v) { return wrappingMultiply(v[0], v[1]); });
}

/// self + value * tensor1 (times or over) tensor2
template <bool divides> static Error lowerAddCombined(OpContext &op) {
  Scalar value = op.scalar("value");
  if (divides && !isFloat(op.resultMeta(0).dtype))
    return op.error("divides integers; convert them to a floating-point type before");
  return mapPlainly(
      op, {op.tensor("self"), op.tensor("tensor1"), op.tensor("tensor2")},
      [&](Elements v) { return v[0] + scale(divides ? v[1] / v[2] : v[1] * v[2], value); });
}

/// From the nearer end, so that the ends are exact.
static Error lowerLerp(OpContext &op) {
  return mapReals(op, {op.tensor("self"), op.tensor("end"), op.operand("weight")}, [](Elements v) {
    Element x = v[0], y = v[1], w = v[2], span = y - x;
    Element value = select(less(abs(w), 0.5), x + w * span, y - span * (1 - w));
    return withSlopes(value, {{x, 1 - w}, {y, w}, {w, span}});
  });
}

static Error lowerNeg(OpContext &op) {
  return mapPlainly(
      op, {op.tensor("self")}, [](Elements v) { return -v[0]; },
      [](ArrayRef<int64_t> v) { return wrappingSubtract(0, v[0]); });
}

static Error lowerPositive(OpContext &op) { return setResult(op, op.copy(op.tensor("self"))); }

/// mantissa * 2^exponent
static Error lowerLdexp(OpContext &op) {
  return mapReals(op, {op.tensor("self"), op.tensor("other")}, [](Elements v) {
    return v[0] * Element(v[0].getBuilder(), math::Exp2Op::create(v[1].getBuilder(), v[1]));
  });
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

/// Small exponents become products, as PyTorch computes them, which also keeps their gradients
/// simple.
static Element power(Element x, double e) {
  if (e == 0)
    return x.like(1);
  if (e == 1)
    return x;
  if (e == 2)
    return x * x;
  if (e == 3)
    return x * x * x;
  if (e == 0.5)
    return sqrt(x);
  if (e == -0.5)
    return {x.getBuilder(), math::RsqrtOp::create(x.getBuilder(), x)};
  if (e == -1)
    return 1 / x;
  if (e == -2)
    return 1 / (x * x);
  return pow(x, x.like(e));
}

/// By squaring; the exponent is not negative.
static Element power(Element x, int64_t e) {
  if (e < 4)
    return power(x, double(e));
  Element half = power(x, e / 2);
  return e % 2 ? half * half * x : half * half;
}

/// By squaring, for each bit of an exponent that may be any. Negative ones give the reciprocal,
/// which is 0 but for 1 and -1, whose powers depend on whether the exponent is odd.
static Element integerPower(Element x, Element e, unsigned bits) {
  Builder &b = x.getBuilder();
  Element result = x.like(1), base = x;
  for (unsigned bit = 0; bit != bits; ++bit) {
    Element shifted(b, mlir::arith::ShRUIOp::create(b, e, e.like(bit)));
    Element isSet = differs(shifted & e.like(1), 0);
    result = select(isSet, result * base, result);
    if (bit + 1 != bits)
      base = base * base;
  }
  Element isOdd = differs(e & e.like(1), 0);
  Element minusOne = select(isOdd, x.like(-1), x.like(1));
  Element reciprocal = select(equals(x, 1), x, select(equals(x, -1), minusOne, x.like(0)));
  return select(less(e, 0), reciprocal, result);
}

/// Bits that exponents of this type have beside a sign.
static unsigned getExponentBits(const Operand &exponent, DType type) {
  const Tensor *tensor = std::get_if<Tensor>(&exponent);
  DType of = tensor ? tensor->dtype : type;
  return of == DType::Bool ? 1 : of == DType::U8 ? 8 : 8 * getByteWidth(of) - 1;
}

static Error lowerPow(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  Operand base = op.operand("self"), exponent = op.operand("exponent");
  if (isFloat(type))
    return mapReals(op, {base, exponent}, [](Elements v) { return pow(v[0], v[1]); });
  unsigned bits = getExponentBits(exponent, type);
  return mapElements(op, {base, exponent},
                     [&](Elements v) { return integerPower(v[0], v[1], bits); });
}

static Error lowerPowScalar(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  Scalar exponent = op.scalar("exponent");
  if (isFloat(type))
    return mapReals(op, {op.tensor("self")},
                    [&](Elements v) { return power(v[0], exponent.asDouble()); });
  if (exponent.isFloat || exponent.integer < 0)
    return op.error("raises integers to the power " + toString(exponent.asDouble()) +
                    "; convert them to a floating-point type before");
  return mapElements(op, {op.tensor("self")},
                     [&](Elements v) { return power(v[0], exponent.integer); });
}

static Error lowerSquare(OpContext &op) {
  return mapPlainly(op, {op.tensor("self")}, [](Elements v) { return v[0] * v[0]; });
}

//===----------------------------------------------------------------------===//
// Functions of one number
//===----------------------------------------------------------------------===//

/// Rounding leaves integers alone.
template <typename OpTy> static Error lowerRounding(OpContext &op) {
  if (!isFloat(op.resultMeta(0).dtype))
    return setResult(op, op.copy(op.tensor("self")));
  return lowerFloat<OpTy>(op);
}

/// To so many decimals, by scaling with a power of ten.
static Error lowerRoundDecimals(OpContext &op) {
  int64_t decimals = op.integer("decimals");
  if (decimals == 0 || !isFloat(op.resultMeta(0).dtype))
    return lowerRounding<math::RoundEvenOp>(op);
  double scale = std::pow(10.0, std::abs(double(decimals)));
  return mapReals(op, {op.tensor("self")}, [&](Elements v) {
    return decimals > 0 ? roundToEven(v[0] * scale) / scale : roundToEven(v[0] / scale) * scale;
  });
}

static Error lowerReciprocal(OpContext &op) {
  return mapReals(op, {op.tensor("self")}, [](Elements v) { return 1 / v[0]; });
}

static Error lowerAbs(OpContext &op) {
  return mapElements(
      op, {op.tensor("self")}, [](Elements v) { return abs(v[0]); },
      [](ArrayRef<int64_t> v) { return v[0] < 0 ? wrappingSubtract(0, v[0]) : v[0]; });
}

static Error lowerSign(OpContext &op) {
  return mapElements(
      op, {op.tensor("self")}, [](Elements v) { return signOf(v[0]); },
      [](ArrayRef<int64_t> v) { return int64_t(v[0] > 0) - int64_t(v[0] < 0); });
}

/// Of a real number: half a turn below zero.
static Error lowerAngle(OpContext &op) {
  constexpr double halfTurn = 3.14159265358979323846;
  return mapReals(op, {op.tensor("self")}, [&](Elements v) {
    Element x = withoutGradient(v[0]), angle = select(less(x, 0), x.like(halfTurn), 0.0);
    return select(isNaN(x), x, angle);
  });
}

static Error lowerFraction(OpContext &op) {
  return mapReals(op, {op.tensor("self")}, [](Elements v) { return v[0] - trunc(v[0]); });
}

static Error scaleBy(OpContext &op, double factor) {
  return mapReals(op, {op.tensor("self")}, [&](Elements v) { return v[0] * factor; });
}
static Error lowerDegToRad(OpContext &op) { return scaleBy(op, 0.017453292519943295); }
static Error lowerRadToDeg(OpContext &op) { return scaleBy(op, 57.295779513082320877); }

//===----------------------------------------------------------------------===//
// Functions of two numbers
//===----------------------------------------------------------------------===//

static Error lowerAtan2(OpContext &op) {
  return mapReals(op, {op.operand("self"), op.operand("other")}, [](Elements v) -> Element {
    return {v[0].getBuilder(), math::Atan2Op::create(v[0].getBuilder(), v[0], v[1])};
  });
}

static Error lowerCopySign(OpContext &op) {
  return mapReals(op, {op.operand("self"), op.operand("other")},
                  [](Elements v) { return copySign(v[0], v[1]); });
}

/// m sqrt(1 + (n / m)^2) with m the larger magnitude, which neither overflows nor vanishes.
static Error lowerHypot(OpContext &op) {
  return mapReals(op, {op.tensor("self"), op.tensor("other")}, [](Elements v) {
    Element m = largerOf(abs(v[0]), abs(v[1])), n = smallerOf(abs(v[0]), abs(v[1]));
    Element ratio = n / m;
    Element root = select(equals(m, 0), m, m * sqrt(ratio * ratio + 1));
    Element isInf = isInfinite(v[0]) | isInfinite(v[1]);
    Element value = select(isInf, std::numeric_limits<double>::infinity(), root);
    return withSlopes(value, {{v[0], v[0] / value}, {v[1], v[1] / value}});
  });
}

template <bool plusOne> static Error lowerXlogy(OpContext &op) {
  return mapReals(op, {op.operand("self"), op.operand("other")},
                  [](Elements v) { return timesLog(v[0], v[1], plusOne); });
}

/// log(b^x + b^y) = max + log_b(1 + b^-|x - y|), for b = e or 2.
template <bool binary> static Error lowerLogAddExp(OpContext &op) {
  constexpr double ln2 = 0.69314718055994530942;
  return mapReals(op, {op.tensor("self"), op.tensor("other")}, [](Elements v) {
    Element x = v[0], y = v[1], m = largerOf(x, y);
    auto power = [](Element d) { return exp(binary ? d * ln2 : d); };
    Element bend = log1p(power(-abs(x - y)));
    // Equal infinities have no difference.
    Element value = select(isInfinite(x) & equals(x, y), x, m + (binary ? bend / ln2 : bend));
    // By the difference: the value itself may be rounded to one of them.
    return withSlopes(value, {{x, 1 / (1 + power(y - x))}, {y, 1 / (1 + power(x - y))}});
  });
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

static void registerArithmetic(OpTable &table) {
  constexpr StringLiteral scaled = "Tensor|Scalar self, Tensor|Scalar other, Scalar alpha=1",
                          pair = "Tensor|Scalar self, Tensor|Scalar other";
  for (StringLiteral name : {StringLiteral("aten.add.Tensor"), StringLiteral("aten.add.Scalar")})
    table.add(name, scaled, lowerAdd);
  for (StringLiteral name : {StringLiteral("aten.sub.Tensor"), StringLiteral("aten.sub.Scalar"),
                             StringLiteral("aten.subtract.Tensor")})
    table.add(name, scaled, lowerSub);
  table.add("aten.rsub.Scalar", scaled, lowerRsub);
  table.add("aten.rsub.Tensor", scaled, lowerRsub);
  for (StringLiteral name : {StringLiteral("aten.mul.Tensor"), StringLiteral("aten.mul.Scalar"),
                             StringLiteral("aten.multiply.Tensor")})
    table.add(name, pair, lowerMul);
  constexpr StringLiteral combined = "Tensor self, Tensor tensor1, Tensor tensor2, Scalar value=1";
  table.add("aten.addcmul.default", combined, lowerAddCombined<false>);
  table.add("aten.addcdiv.default", combined, lowerAddCombined<true>);
  table.add("aten.lerp.Scalar", "Tensor self, Tensor end, Tensor|Scalar weight", lowerLerp);
  table.add("aten.lerp.Tensor", "Tensor self, Tensor end, Tensor|Scalar weight", lowerLerp);
  table.add("aten.neg.default", "Tensor self", lowerNeg);
  table.add("aten.positive.default", "Tensor self", lowerPositive);
  table.add("aten.ldexp.Tensor", "Tensor self, Tensor other", lowerLdexp);
  table.add("aten.pow.Tensor_Scalar", "Tensor self, Scalar exponent", lowerPowScalar);
  for (StringLiteral name :
       {StringLiteral("aten.pow.Tensor_Tensor"), StringLiteral("aten.pow.Scalar"),
        StringLiteral("aten.float_power.Tensor_Tensor"), StringLiteral("aten.float_power.Scalar"),
        StringLiteral("aten.float_power.Tensor_Scalar")})
    table.add(name, "Tensor|Scalar self, Tensor|Scalar exponent", lowerPow);
  table.add("aten.square.default", "Tensor self", lowerSquare);
}

void memopt::pt2::registerPointwise(OpTable &table) {
  registerArithmetic(table);
  for (auto [name, lower] :
       {std::pair<StringLiteral, Lowering>("aten.exp.default", lowerFloat<math::ExpOp>),
        {"aten.exp2.default", lowerFloat<math::Exp2Op>},
        {"aten.expm1.default", lowerFloat<math::ExpM1Op>},
        {"aten.log.default", lowerFloat<math::LogOp>},
        {"aten.log1p.default", lowerFloat<math::Log1pOp>},
        {"aten.log2.default", lowerFloat<math::Log2Op>},
        {"aten.log10.default", lowerFloat<math::Log10Op>},
        {"aten.sqrt.default", lowerFloat<math::SqrtOp>},
        {"aten.rsqrt.default", lowerFloat<math::RsqrtOp>},
        {"aten.sin.default", lowerFloat<math::SinOp>},
        {"aten.cos.default", lowerFloat<math::CosOp>},
        {"aten.tan.default", lowerFloat<math::TanOp>},
        {"aten.asin.default", lowerFloat<math::AsinOp>},
        {"aten.acos.default", lowerFloat<math::AcosOp>},
        {"aten.atan.default", lowerFloat<math::AtanOp>},
        {"aten.sinh.default", lowerFloat<math::SinhOp>},
        {"aten.cosh.default", lowerFloat<math::CoshOp>},
        {"aten.asinh.default", lowerFloat<math::AsinhOp>},
        {"aten.acosh.default", lowerFloat<math::AcoshOp>},
        {"aten.atanh.default", lowerFloat<math::AtanhOp>},
        {"aten.erf.default", lowerFloat<math::ErfOp>},
        {"aten.erfc.default", lowerFloat<math::ErfcOp>},
        {"aten.floor.default", lowerRounding<math::FloorOp>},
        {"aten.ceil.default", lowerRounding<math::CeilOp>},
        {"aten.trunc.default", lowerRounding<math::TruncOp>},
        {"aten.round.default", lowerRounding<math::RoundEvenOp>},
        {"aten.reciprocal.default", lowerReciprocal},
        {"aten.abs.default", lowerAbs},
        {"aten.sign.default", lowerSign},
        {"aten.angle.default", lowerAngle},
        {"aten.sgn.default", lowerSign},
        {"aten.frac.default", lowerFraction},
        {"aten.deg2rad.default", lowerDegToRad},
        {"aten.rad2deg.default", lowerRadToDeg}})
    table.add(name, "Tensor self", lower);
  table.add("aten.round.decimals", "Tensor self, int decimals", lowerRoundDecimals);
  constexpr StringLiteral pair = "Tensor|Scalar self, Tensor|Scalar other";
  table.add("aten.atan2.default", pair, lowerAtan2);
  table.add("aten.copysign.Tensor", pair, lowerCopySign);
  table.add("aten.copysign.Scalar", pair, lowerCopySign);
  table.add("aten.hypot.default", "Tensor self, Tensor other", lowerHypot);
  for (StringLiteral name :
       {StringLiteral("aten.xlogy.Tensor"), StringLiteral("aten.xlogy.Scalar_Self"),
        StringLiteral("aten.xlogy.Scalar_Other")})
    table.add(name, pair, lowerXlogy<false>);
  for (StringLiteral name : {StringLiteral("aten.special_xlog1py.default"),
                             StringLiteral("aten.special_xlog1py.self_scalar"),
                             StringLiteral("aten.special_xlog1py.other_scalar")})
    table.add(name, pair, lowerXlogy<true>);
  table.add("aten.logaddexp.default", "Tensor self, Tensor other", lowerLogAddExp<false>);
  table.add("aten.logaddexp2.default", "Tensor self, Tensor other", lowerLogAddExp<true>);
}
