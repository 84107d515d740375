//===- MathExpansion.cpp - elementary functions as arithmetic -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Math/MathExpansion.h"

#include "CircularFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Arithmetic on f32 scalars or vectors of one shape.
class Arithmetic {
public:
  Arithmetic(OpBuilder &builder, Location location, Type type)
      : builder(builder), location(location), type(type) {
    integer = builder.getI32Type();
    if (auto vector = dyn_cast<VectorType>(type))
      integer = vector.clone(integer);
  }

  Value constant(float value) { return splat(type, builder.getF32FloatAttr(value)); }
  Value constantBits(uint32_t bits) {
    return splat(type, FloatAttr::get(builder.getF32Type(),
                                      APFloat(APFloat::IEEEsingle(), APInt(32, bits))));
  }
  Value constantInteger(int32_t value) { return splat(integer, builder.getI32IntegerAttr(value)); }
  Value add(Value a, Value b) { return arith::AddFOp::create(builder, location, a, b); }
  Value sub(Value a, Value b) { return arith::SubFOp::create(builder, location, a, b); }
  Value mul(Value a, Value b) { return arith::MulFOp::create(builder, location, a, b); }
  Value div(Value a, Value b) { return arith::DivFOp::create(builder, location, a, b); }
  Value fma(Value a, Value b, Value c) { return math::FmaOp::create(builder, location, a, b, c); }
  Value abs(Value a) { return math::AbsFOp::create(builder, location, a); }
  Value copySign(Value a, Value b) { return math::CopySignOp::create(builder, location, a, b); }
  Value less(Value a, Value b) {
    return arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OLT, a, b);
  }
  Value lessEqual(Value a, Value b) {
    return arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OLE, a, b);
  }
  Value isNumber(Value a) {
    return arith::CmpFOp::create(builder, location, arith::CmpFPredicate::ORD, a, a);
  }
  Value select(Value c, Value a, Value b) {
    return arith::SelectOp::create(builder, location, c, a, b);
  }
  Value polynomial(Value x, ArrayRef<float> highestFirst) {
    Value result = constant(highestFirst.front());
    for (float coefficient : highestFirst.drop_front())
      result = fma(result, x, constant(coefficient));
    return result;
  }

  Value exp(Value x, bool isBounded = false);
  Value exp2(Value x);
  Value log(Value x);
  Value tanh(Value x);
  Value erf(Value x);

private:
  Value expOfRest(Value r);
  Value scaleByPower(Value x, Value exponent);
  Value splat(Type of, TypedAttr value) {
    TypedAttr attribute = value;
    if (auto vector = dyn_cast<VectorType>(of))
      attribute = DenseElementsAttr::get(vector, ArrayRef<Attribute>(value));
    return arith::ConstantOp::create(builder, location, attribute);
  }
  /// 2^i for i in [-126, 127].
  Value powerOfTwo(Value i) {
    Value biased = arith::AddIOp::create(builder, location, i, constantInteger(127));
    Value bits = arith::ShLIOp::create(builder, location, biased, constantInteger(23));
    return arith::BitcastOp::create(builder, location, type, bits);
  }

  OpBuilder &builder;
  Location location;
  Type type, integer;
};
} // namespace

/// Cephes' expf: x = n ln 2 + r, exp(r) by a polynomial. The power of two is applied in two halves,
/// so that results below the normal numbers are right; `isBounded` says that none are, and no NaN.
Value Arithmetic::exp(Value original, bool isBounded) {
  Value x = original;
  if (!isBounded) {
    // A NaN has no integer, so it goes through as a bound and comes back at the end.
    x = select(less(x, constant(89.0f)), x, constant(89.0f));
    x = select(less(constant(-104.0f), x), x, constant(-104.0f));
  }
  Value n = math::RoundEvenOp::create(builder, location, mul(x, constant(1.44269504088896341f)));
  Value r = fma(n, constant(-0.693145751953125f), x);
  r = fma(n, constant(-1.42860682030941723212e-6f), r);
  Value p = expOfRest(r);
  Value whole = arith::FPToSIOp::create(builder, location, integer, n);
  if (isBounded)
    return mul(p, powerOfTwo(whole));
  return select(isNumber(original), scaleByPower(p, whole), original);
}

/// exp(r) for |r| <= ln 2 / 2.
Value Arithmetic::expOfRest(Value r) {
  Value p = polynomial(r, {0.000198527617612853646278381f, 0.00139304355252534151077271f,
                           0.00833336077630519866943359f, 0.0416664853692054748535156f,
                           0.166666671633720397949219f, 0.5f});
  return add(fma(mul(r, r), p, r), constant(1.0f));
}

/// x 2^exponent in two halves, each of which is a normal number.
Value Arithmetic::scaleByPower(Value x, Value exponent) {
  Value half = arith::ShRSIOp::create(builder, location, exponent, constantInteger(1));
  Value rest = arith::SubIOp::create(builder, location, exponent, half);
  return mul(mul(x, powerOfTwo(half)), powerOfTwo(rest));
}

/// x = n + f with |f| <= 1/2, which is exact, and 2^f = exp(f ln 2).
Value Arithmetic::exp2(Value original) {
  Value x = select(less(original, constant(129.0f)), original, constant(129.0f));
  x = select(less(constant(-151.0f), x), x, constant(-151.0f));
  Value n = math::RoundEvenOp::create(builder, location, x);
  Value p = expOfRest(mul(sub(x, n), constant(0.693147180559945f)));
  Value whole = arith::FPToSIOp::create(builder, location, integer, n);
  return select(isNumber(original), scaleByPower(p, whole), original);
}

/// Cephes' logf: x = m 2^e with m in [sqrt(1/2), sqrt(2)), log(m) by a polynomial in m - 1.
Value Arithmetic::log(Value x) {
  Value original = x;
  Value isTiny = less(x, constantBits(0x00800000));
  x = select(isTiny, mul(x, constant(8388608.0f)), x);
  Value bits = arith::BitcastOp::create(builder, location, integer, x);
  Value exponent = arith::ShRUIOp::create(builder, location, bits, constantInteger(23));
  exponent = arith::SubIOp::create(builder, location, exponent, constantInteger(126));
  Value e = arith::SIToFPOp::create(builder, location, type, exponent);
  e = select(isTiny, sub(e, constant(23.0f)), e);
  Value fraction = arith::AndIOp::create(builder, location, bits, constantInteger(0x007fffff));
  fraction = arith::OrIOp::create(builder, location, fraction, constantInteger(0x3f000000));
  Value m = arith::BitcastOp::create(builder, location, type, fraction);
  Value isSmall = less(m, constant(0.707106781186547524f));
  e = select(isSmall, sub(e, constant(1.0f)), e);
  m = sub(select(isSmall, add(m, m), m), constant(1.0f));
  Value square = mul(m, m), cube = mul(square, m);
  Value a = polynomial(m, {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f});
  Value b = polynomial(m, {-1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f});
  Value c = polynomial(m, {2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f});
  Value y = mul(fma(fma(a, cube, b), cube, c), cube);
  // ln 2 in two parts: the first has few bits, so that its product with e is exact.
  y = fma(e, constant(-2.12194440e-4f), y);
  y = fma(constant(-0.5f), square, y);
  Value result = fma(e, constant(0.693359375f), add(m, y));
  // 0 gives -inf, below it NaN; inf and NaN stay.
  Value infinity = constantBits(0x7f800000), zero = constant(0.0f);
  result = select(less(original, infinity), result, original);
  result = select(less(original, zero), constantBits(0x7fc00000), result);
  Value isZero =
      arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OEQ, original, zero);
  return select(isZero, constantBits(0xff800000), result);
}

/// An odd polynomial below 1 (minimax), 1 - 2 / (exp(2 |x|) + 1) above.
Value Arithmetic::tanh(Value x) {
  Value magnitude = abs(x), square = mul(x, x);
  Value p =
      polynomial(square, {-0.0003584520018193871f, 0.0023013646714389324f, -0.007946106605231762f,
                          0.021486658602952957f, -0.05387980118393898f, 0.13332344591617584f,
                          -0.33333295583724976f});
  Value small = fma(mul(p, square), x, x);
  Value bounded = select(less(magnitude, constant(10.0f)), magnitude, constant(10.0f));
  Value e = exp(add(bounded, bounded), /*isBounded=*/true);
  Value quotient = div(constant(2.0f), add(e, constant(1.0f)));
  Value big = copySign(sub(constant(1.0f), quotient), x);
  return select(lessEqual(constant(1.0f), magnitude), big, small);
}

/// Two minimax fits: odd below 0.921875, 1 - exp(polynomial) above.
Value Arithmetic::erf(Value x) {
  Value magnitude = abs(x), square = mul(x, x);
  Value t = select(less(magnitude, constant(4.0f)), magnitude, constant(4.0f));
  Value tt = mul(t, t);
  Value r = fma(constant(-1.72853470e-5f), t, constant(3.83197126e-4f));
  Value u = fma(constant(-3.88396438e-3f), t, constant(2.42546219e-2f));
  r = fma(r, tt, u);
  for (float coefficient : {-1.06777877e-1f, -6.34846687e-1f, -1.28717512e-1f})
    r = fma(r, t, constant(coefficient));
  r = fma(r, t, sub(constant(0.0f), t));
  Value big = copySign(sub(constant(1.0f), exp(r, /*isBounded=*/true)), x);
  Value p = polynomial(square, {-5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f,
                                -3.76125336e-1f, 1.28379166e-1f});
  Value small = fma(p, x, x);
  return select(less(constant(0.921875f), magnitude), big, small);
}

//===----------------------------------------------------------------------===//
// libm
//===----------------------------------------------------------------------===//

Value mlir::memopt::callLibm(OpBuilder &builder, Location location, StringRef function, Type type,
                             ValueRange operands) {
  Type element = getElementTypeOrSelf(type);
  auto module = builder.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  std::string symbol = (function + (element.isF32() ? "f" : "")).str();
  if (!module.lookupSymbol(symbol)) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(module.getBody());
    SmallVector<Type> types(operands.size(), element);
    LLVM::LLVMFuncOp::create(builder, location, symbol,
                             LLVM::LLVMFunctionType::get(element, types));
  }
  auto call = [&](ValueRange arguments) -> Value {
    return LLVM::CallOp::create(builder, location, element, symbol, arguments).getResult();
  };
  auto vector = dyn_cast<VectorType>(type);
  if (!vector)
    return call(operands);
  Value result = LLVM::PoisonOp::create(builder, location, type);
  for (int64_t lane = 0; lane < vector.getNumElements(); ++lane) {
    Value position = LLVM::ConstantOp::create(builder, location, builder.getI64Type(), lane);
    SmallVector<Value> arguments;
    for (Value operand : operands)
      arguments.push_back(LLVM::ExtractElementOp::create(builder, location, operand, position));
    result = LLVM::InsertElementOp::create(builder, location, result, call(arguments), position);
  }
  return result;
}

/// NaNs, infinities and finite numbers are told apart by comparisons.
static Value classify(OpBuilder &builder, Location location, StringRef function,
                      ValueRange operands) {
  bool isNaN = function == "isnan", isInf = function == "isinf", isFinite = function == "isfinite";
  if (!isNaN && !isInf && !isFinite)
    return nullptr;
  Value x = operands[0];
  if (isNaN)
    return arith::CmpFOp::create(builder, location, arith::CmpFPredicate::UNO, x, x);
  Type type = x.getType();
  auto element = cast<FloatType>(getElementTypeOrSelf(type));
  TypedAttr infinity = FloatAttr::get(element, APFloat::getInf(element.getFloatSemantics()));
  if (auto vector = dyn_cast<VectorType>(type))
    infinity = DenseElementsAttr::get(vector, ArrayRef<Attribute>(infinity));
  Value size = math::AbsFOp::create(builder, location, x);
  return arith::CmpFOp::create(builder, location,
                               isInf ? arith::CmpFPredicate::OEQ : arith::CmpFPredicate::OLT, size,
                               arith::ConstantOp::create(builder, location, infinity));
}

Value mlir::memopt::expandMath(OpBuilder &builder, Location location, OperationName name, Type type,
                               ValueRange operands) {
  StringRef function = name.getStringRef();
  if (!function.consume_front("math."))
    return nullptr;
  if (Value truth = classify(builder, location, function, operands))
    return truth;
  bool isSingle = getElementTypeOrSelf(type).isF32();
  if (isSingle) {
    Arithmetic arithmetic(builder, location, type);
    if (function == "exp")
      return arithmetic.exp(operands[0]);
    if (function == "exp2")
      return arithmetic.exp2(operands[0]);
    if (function == "log")
      return arithmetic.log(operands[0]);
    if (function == "tanh")
      return arithmetic.tanh(operands[0]);
    if (function == "erf")
      return arithmetic.erf(operands[0]);
    if (function == "rsqrt")
      return arithmetic.div(arithmetic.constant(1.0f),
                            math::SqrtOp::create(builder, location, operands[0]));
  }
  bool isCircular = function == "sin" || function == "cos";
  if (isCircular && isa<Float32Type, Float64Type>(getElementTypeOrSelf(type)))
    return (isSingle ? expandSine : expandWideSine)(builder, location, operands[0],
                                                    /*isCosine=*/function == "cos");
  // What has an LLVM intrinsic that code generation turns into a machine instruction.
  bool isNative =
      llvm::StringSwitch<bool>(function)
          .Cases({"absf", "absi", "ceil", "copysign", "ctlz", "cttz", "ctpop", "floor"}, true)
          .Cases({"fma", "round", "roundeven", "sqrt", "trunc", "rsqrt", "fpowi"}, true)
          .Default(false);
  if (isNative || !isa<Float32Type, Float64Type>(getElementTypeOrSelf(type)))
    return nullptr;
  if (function == "powf")
    function = "pow";
  return callLibm(builder, location, function, type, operands);
}
