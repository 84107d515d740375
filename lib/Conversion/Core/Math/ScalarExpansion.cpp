//===- ScalarExpansion.cpp - integers and halves as plain arithmetic -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Math/ScalarExpansion.h"

#include "memopt/Dialect/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::memopt;
using arith::CmpIPredicate;

bool mlir::memopt::isHalfPrecision(Type type) { return type.isF16() || type.isBF16(); }

static Type withElement(Type type, Type element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.clone(element);
  return element;
}

//===----------------------------------------------------------------------===//
// Division
//===----------------------------------------------------------------------===//

/// Whether no element of `divisor` is 0 or -1, for all that the compiler knows.
static bool isHarmless(Value divisor) {
  DenseElementsAttr elements;
  IntegerAttr integer;
  auto isFine = [](const APInt &value) { return !value.isZero() && !value.isAllOnes(); };
  if (matchPattern(divisor, m_Constant(&integer)))
    return isFine(integer.getValue());
  return matchPattern(divisor, m_Constant(&elements)) && elements.isSplat() &&
         isFine(elements.getSplatValue<APInt>());
}

namespace {
/// A divisor that traps nowhere, and where the true one is -1.
struct Divisor {
  Value safe, isMinusOne;
};
} // namespace

static Divisor guard(Formula &f, Value divisor, bool isSigned) {
  if (isHarmless(divisor))
    return {divisor, {}};
  Value isBad = f.compare(CmpIPredicate::eq, divisor, f.integer(0));
  if (!isSigned)
    return {f.select(isBad, f.integer(1), divisor), {}};
  Value isMinusOne = f.compare(CmpIPredicate::eq, divisor, f.integer(-1));
  return {f.select(f.either(isBad, isMinusOne), f.integer(1), divisor), isMinusOne};
}

static Value divide(Formula &f, Value x, Value y) {
  Divisor by = guard(f, y, /*isSigned=*/true);
  Value quotient = arith::DivSIOp::create(f.b, x, by.safe);
  return by.isMinusOne ? f.select(by.isMinusOne, f.sub(f.integer(0), x), quotient) : quotient;
}

static Value remainder(Formula &f, Value x, Value y) {
  return arith::RemSIOp::create(f.b, x, guard(f, y, /*isSigned=*/true).safe);
}

/// One less (more) than the truncated quotient where a remainder is left and the signs differ
/// (agree).
static Value divideTowards(Formula &f, Value x, Value y, bool isFloor) {
  Value quotient = divide(f, x, y), zero = f.integer(0);
  Value isInexact = f.compare(CmpIPredicate::ne, remainder(f, x, y), zero);
  Value signs =
      f.compare(isFloor ? CmpIPredicate::ne : CmpIPredicate::eq,
                f.compare(CmpIPredicate::slt, x, zero), f.compare(CmpIPredicate::slt, y, zero));
  Value moved = f.add(quotient, f.integer(isFloor ? -1 : 1));
  return f.select(f.both(isInexact, signs), moved, quotient);
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

/// By squaring, over all bits of the exponent. A negative one gives the reciprocal, which is 0 but
/// for 1 and -1.
static Value raise(Formula &f, Value x, Value exponent) {
  Value one = f.integer(1), zero = f.integer(0), result = one, base = x;
  unsigned bits = getElementTypeOrSelf(f.type).getIntOrFloatBitWidth();
  for (unsigned bit = 0; bit + 1 < bits; ++bit) {
    Value isSet =
        f.compare(CmpIPredicate::ne, f.both(f.right(exponent, f.integer(bit)), one), zero);
    result = f.select(isSet, f.mul(result, base), result);
    base = f.mul(base, base);
  }
  Value minusOne = f.integer(-1);
  Value isOdd = f.compare(CmpIPredicate::ne, f.both(exponent, one), zero);
  Value ofMinusOne = f.select(isOdd, minusOne, one);
  Value reciprocal =
      f.select(f.compare(CmpIPredicate::eq, x, one), one,
               f.select(f.compare(CmpIPredicate::eq, x, minusOne), ofMinusOne, zero));
  return f.select(f.compare(CmpIPredicate::slt, exponent, zero), reciprocal, result);
}

//===----------------------------------------------------------------------===//
// Half precision
//===----------------------------------------------------------------------===//

namespace {
/// Conversions between f32 and the bits of halves, in 32-bit integers.
class Halves {
public:
  Halves(ImplicitLocOpBuilder &b, Type shape)
      : b(b), single{b, withElement(shape, b.getF32Type())},
        half{b, withElement(shape, b.getIntegerType(16))},
        f{b, withElement(shape, b.getI32Type())} {}

  Value extend(Value value) {
    bool isBrain = getElementTypeOrSelf(value.getType()).isBF16();
    Value bits = arith::ExtUIOp::create(b, f.type, half.bitcast(value));
    return isBrain ? single.bitcast(f.left(bits, f.integer(16))) : extendBits(bits);
  }

  Value truncate(Value value, Type to) {
    bool isBrain = getElementTypeOrSelf(to).isBF16();
    Value bits = f.bitcast(value);
    Value rounded = isBrain ? roundToBrain(value, bits) : roundToHalf(value, bits);
    Value narrow = arith::TruncIOp::create(b, half.type, rounded);
    return arith::BitcastOp::create(b, to, narrow);
  }

private:
  /// Exponent and fraction in their places; a multiplication corrects the bias, which also makes
  /// what was below the normal halves a normal number. Infinity and NaN get the largest exponent.
  Value extendBits(Value bits) {
    Value magnitude = f.left(f.both(bits, f.integer(0x7fff)), f.integer(13));
    Value scaled = single.mul(single.bitcast(magnitude), single.number(0x1p112));
    Value isSpecial = f.compare(CmpIPredicate::uge, magnitude, f.integer(0x7c00 << 13));
    Value special = f.either(magnitude, f.integer(0x7f800000));
    Value result = f.select(isSpecial, special, f.bitcast(scaled));
    Value sign = f.left(f.both(bits, f.integer(0x8000)), f.integer(16));
    return single.bitcast(f.either(result, sign));
  }

  /// To nearest, ties to even: half of the last place, less when that place is even.
  Value roundUp(Value bits, int64_t dropped) {
    Value last = f.both(f.right(bits, f.integer(dropped)), f.integer(1));
    Value rounding = f.add(last, f.integer((int64_t(1) << (dropped - 1)) - 1));
    return f.right(f.add(bits, rounding), f.integer(dropped));
  }

  Value roundToBrain(Value value, Value bits) {
    Value quiet = f.either(f.right(bits, f.integer(16)), f.integer(0x40));
    return f.select(single.isNaN(value), quiet, roundUp(bits, 16));
  }

  /// Normal halves: the bias is corrected, then the fraction rounded, which may carry into the
  /// exponent. Smaller ones: adding 0.5 makes the processor round to their last place.
  Value roundToHalf(Value value, Value bits) {
    Value sign = f.both(f.right(bits, f.integer(16)), f.integer(0x8000));
    Value magnitude = f.both(bits, f.integer(0x7fffffff));
    Value normal = roundUp(f.sub(magnitude, f.integer(int64_t(112) << 23)), 13);
    Value shifted = single.add(single.bitcast(magnitude), single.number(0.5));
    Value tiny = f.sub(f.bitcast(shifted), f.integer(0x3f000000));
    Value isTiny = f.compare(CmpIPredicate::ult, magnitude, f.integer(0x38800000));  // 2^-14
    Value isLarge = f.compare(CmpIPredicate::uge, magnitude, f.integer(0x477ff000)); // 65520
    Value result = f.select(isTiny, tiny, f.select(isLarge, f.integer(0x7c00), normal));
    return f.either(f.select(single.isNaN(value), f.integer(0x7e00), result), sign);
  }

  ImplicitLocOpBuilder &b;
  Formula single, half, f; ///< f32, and integers of 16 and of 32 bits
};
} // namespace

/// A conversion `op` from or to halves as others, or null where it stays.
static Value expandHalf(Operation *op, bool isDevice) {
  Value value = op->getOperand(0);
  Type type = op->getResult(0).getType();
  Type from = getElementTypeOrSelf(value.getType()), to = getElementTypeOrSelf(type);
  ImplicitLocOpBuilder b(op->getLoc(), op);
  Type single = withElement(type, b.getF32Type());
  if (isHalfPrecision(from)) {
    bool stays = isDevice && from.isF16();
    if (stays && to.isF32())
      return nullptr;
    Value wide =
        stays ? arith::ExtFOp::create(b, single, value).getResult() : Halves(b, type).extend(value);
    return to.isF64() ? arith::ExtFOp::create(b, type, wide).getResult() : wide;
  }
  if (isDevice && from.isF32())
    return nullptr;
  if (from.isF64())
    value = arith::TruncFOp::create(b, single, value);
  return isDevice ? arith::TruncFOp::create(b, type, value).getResult()
                  : Halves(b, type).truncate(value, type);
}

void mlir::memopt::expandHalves(ModuleOp kernels, bool isDevice) {
  SmallVector<Operation *> conversions;
  kernels.walk([&](Operation *op) {
    if (isa<arith::ExtFOp, arith::TruncFOp>(op) &&
        (isHalfPrecision(getElementTypeOrSelf(op->getOperand(0).getType())) ||
         isHalfPrecision(getElementTypeOrSelf(op->getResult(0).getType()))))
      conversions.push_back(op);
  });
  for (Operation *op : conversions)
    if (Value expanded = expandHalf(op, isDevice)) {
      op->getResult(0).replaceAllUsesWith(expanded);
      op->erase();
    }
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

Value mlir::memopt::expandScalar(OpBuilder &builder, Location location, OperationName name,
                                 Type type, ValueRange operands) {
  StringRef op = name.getStringRef();
  if (operands.size() != 2 || !isa<IntegerType>(getElementTypeOrSelf(type)))
    return nullptr;
  ImplicitLocOpBuilder b(location, builder);
  Formula f{b, type};
  Value x = operands[0], y = operands[1];
  if (op == arith::DivSIOp::getOperationName())
    return divide(f, x, y);
  if (op == arith::RemSIOp::getOperationName())
    return remainder(f, x, y);
  if (op == arith::DivUIOp::getOperationName())
    return arith::DivUIOp::create(b, x, guard(f, y, false).safe);
  if (op == arith::RemUIOp::getOperationName())
    return arith::RemUIOp::create(b, x, guard(f, y, false).safe);
  if (op == arith::FloorDivSIOp::getOperationName() || op == arith::CeilDivSIOp::getOperationName())
    return divideTowards(f, x, y, op == arith::FloorDivSIOp::getOperationName());
  if (op == math::IPowIOp::getOperationName())
    return raise(f, x, y);
  return nullptr;
}
