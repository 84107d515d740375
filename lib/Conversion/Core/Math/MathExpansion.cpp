//===- MathExpansion.cpp - elementary functions as arithmetic -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Math/MathExpansion.h"

#include "CircularFunctions.h"
#include "memopt/Dialect/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringSwitch.h"

#include <limits>

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Functions of f32 scalars or vectors.
class Arithmetic : Formula {
public:
  Arithmetic(ImplicitLocOpBuilder &b, Type type) : Formula{b, type}, whole{b, b.getI32Type()} {
    if (auto vector = dyn_cast<VectorType>(type))
      whole.type = vector.clone(whole.type);
  }

  Value exp(Value x, bool isBounded = false);
  Value exp2(Value x);
  Value log(Value x);
  Value tanh(Value x);
  Value erf(Value x);
  Value rsqrt(Value x) {
    Value one = number(1.0);
    return div(one, sqrt(x));
  }

private:
  Value expOfRest(Value r);
  Value scaleByPower(Value x, Value exponent);
  /// 2^i for i in [-126, 127].
  Value powerOfTwo(Value i) {
    return bitcast(whole.left(whole.add(i, whole.integer(127)), whole.integer(23)));
  }

  Formula whole; ///< on integers of as many bits
};
} // namespace

/// Cephes' expf: x = n ln 2 + r, exp(r) by a polynomial. The power of two is applied in two halves,
/// so that results below the normal numbers are right; `isBounded` says that none are, and no NaN.
Value Arithmetic::exp(Value original, bool isBounded) {
  Value x = original;
  if (!isBounded) {
    // A NaN has no integer, so it goes through as a bound and comes back at the end.
    x = select(less(x, number(89.0f)), x, number(89.0f));
    x = select(less(number(-104.0f), x), x, number(-104.0f));
  }
  Value n = roundToEven(mul(x, number(1.44269504088896341f)));
  Value r = fma(n, number(-0.693145751953125f), x);
  r = fma(n, number(-1.42860682030941723212e-6f), r);
  Value p = expOfRest(r);
  Value power = arith::FPToSIOp::create(b, whole.type, n);
  if (isBounded)
    return mul(p, powerOfTwo(power));
  return select(isNumber(original), scaleByPower(p, power), original);
}

/// exp(r) for |r| <= ln 2 / 2.
Value Arithmetic::expOfRest(Value r) {
  Value p = polynomial(r, {0.000198527617612853646278381f, 0.00139304355252534151077271f,
                           0.00833336077630519866943359f, 0.0416664853692054748535156f,
                           0.166666671633720397949219f, 0.5f});
  return add(fma(mul(r, r), p, r), number(1.0f));
}

/// x 2^exponent in two halves, each of which is a normal number.
Value Arithmetic::scaleByPower(Value x, Value exponent) {
  Value half = arith::ShRSIOp::create(b, exponent, whole.integer(1));
  Value rest = whole.sub(exponent, half);
  return mul(mul(x, powerOfTwo(half)), powerOfTwo(rest));
}

/// x = n + f with |f| <= 1/2, which is exact, and 2^f = exp(f ln 2).
Value Arithmetic::exp2(Value original) {
  Value x = select(less(original, number(129.0f)), original, number(129.0f));
  x = select(less(number(-151.0f), x), x, number(-151.0f));
  Value n = roundToEven(x);
  Value p = expOfRest(mul(sub(x, n), number(0.693147180559945f)));
  Value power = arith::FPToSIOp::create(b, whole.type, n);
  return select(isNumber(original), scaleByPower(p, power), original);
}

/// Cephes' logf: x = m 2^e with m in [sqrt(1/2), sqrt(2)), log(m) by a polynomial in m - 1.
Value Arithmetic::log(Value x) {
  Value original = x;
  Value isTiny = less(x, ofBits(0x00800000));
  x = select(isTiny, mul(x, number(8388608.0f)), x);
  Value bits = whole.bitcast(x);
  Value exponent = whole.right(bits, whole.integer(23));
  exponent = whole.sub(exponent, whole.integer(126));
  Value e = arith::SIToFPOp::create(b, type, exponent);
  e = select(isTiny, sub(e, number(23.0f)), e);
  Value fraction = whole.both(bits, whole.integer(0x007fffff));
  fraction = whole.either(fraction, whole.integer(0x3f000000));
  Value m = bitcast(fraction);
  Value isSmall = less(m, number(0.707106781186547524f));
  e = select(isSmall, sub(e, number(1.0f)), e);
  m = sub(select(isSmall, add(m, m), m), number(1.0f));
  Value square = mul(m, m), cube = mul(square, m);
  Value a = polynomial(m, {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f});
  Value d = polynomial(m, {-1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f});
  Value c = polynomial(m, {2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f});
  Value y = mul(fma(fma(a, cube, d), cube, c), cube);
  // ln 2 in two parts: the first has few bits, so that its product with e is exact.
  y = fma(e, number(-2.12194440e-4f), y);
  y = fma(number(-0.5f), square, y);
  Value result = fma(e, number(0.693359375f), add(m, y));
  // 0 gives -inf, below it NaN; inf and NaN stay.
  Value infinity = ofBits(0x7f800000), zero = number(0.0f);
  result = select(less(original, infinity), result, original);
  result = select(less(original, zero), ofBits(0x7fc00000), result);
  Value isZero = equal(original, zero);
  return select(isZero, ofBits(0xff800000), result);
}

/// An odd polynomial below 1 (minimax), 1 - 2 / (exp(2 |x|) + 1) above.
Value Arithmetic::tanh(Value x) {
  Value magnitude = abs(x), square = mul(x, x);
  Value p =
      polynomial(square, {-0.0003584520018193871f, 0.0023013646714389324f, -0.007946106605231762f,
                          0.021486658602952957f, -0.05387980118393898f, 0.13332344591617584f,
                          -0.33333295583724976f});
  Value small = fma(mul(p, square), x, x);
  Value bounded = select(less(magnitude, number(10.0f)), magnitude, number(10.0f));
  Value e = exp(add(bounded, bounded), /*isBounded=*/true);
  Value quotient = div(number(2.0f), add(e, number(1.0f)));
  Value big = copySign(sub(number(1.0f), quotient), x);
  return select(lessEqual(number(1.0f), magnitude), big, small);
}

/// Two minimax fits: odd below 0.921875, 1 - exp(polynomial) above.
Value Arithmetic::erf(Value x) {
  Value magnitude = abs(x), square = mul(x, x);
  Value t = select(less(magnitude, number(4.0f)), magnitude, number(4.0f));
  Value tt = mul(t, t);
  Value r = fma(number(-1.72853470e-5f), t, number(3.83197126e-4f));
  Value u = fma(number(-3.88396438e-3f), t, number(2.42546219e-2f));
  r = fma(r, tt, u);
  for (float coefficient : {-1.06777877e-1f, -6.34846687e-1f, -1.28717512e-1f})
    r = fma(r, t, number(coefficient));
  r = fma(r, t, sub(number(0.0f), t));
  Value big = copySign(sub(number(1.0f), exp(r, /*isBounded=*/true)), x);
  Value p = polynomial(square, {-5.96761703e-4f, 4.99119423e-3f, -2.67681349e-2f, 1.12819925e-1f,
                                -3.76125336e-1f, 1.28379166e-1f});
  Value small = fma(p, x, x);
  return select(less(number(0.921875f), magnitude), big, small);
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
  ImplicitLocOpBuilder b(location, builder);
  Formula f{b, x.getType()};
  if (isNaN)
    return f.isNaN(x);
  Value size = f.abs(x), infinity = f.number(std::numeric_limits<double>::infinity());
  return isInf ? f.equal(size, infinity) : f.less(size, infinity);
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
    ImplicitLocOpBuilder b(location, builder);
    Arithmetic arithmetic(b, type);
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
      return arithmetic.rsqrt(operands[0]);
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
