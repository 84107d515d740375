//===- ScalarExpansion.cpp - integers and halves as plain arithmetic -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Math/ScalarExpansion.h"

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

namespace {
/// Arithmetic on integers of one type, scalars or vectors.
struct Integers {
  OpBuilder &b;
  Location loc;
  Type type;

  Value constant(int64_t value) {
    Type element = getElementTypeOrSelf(type);
    TypedAttr number = IntegerAttr::get(element, APInt(element.getIntOrFloatBitWidth(), value,
                                                       /*isSigned=*/true, /*implicitTrunc=*/true));
    if (auto vector = dyn_cast<VectorType>(type))
      number = DenseElementsAttr::get(vector, ArrayRef<Attribute>(number));
    return arith::ConstantOp::create(b, loc, number);
  }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  Value left(Value x, int64_t by) { return arith::ShLIOp::create(b, loc, x, constant(by)); }
  Value right(Value x, int64_t by) { return arith::ShRUIOp::create(b, loc, x, constant(by)); }
  Value compare(CmpIPredicate predicate, Value x, Value y) {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  }
  Value select(Value c, Value x, Value y) { return arith::SelectOp::create(b, loc, c, x, y); }
};
} // namespace

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

static Divisor guard(Integers &f, Value divisor, bool isSigned) {
  if (isHarmless(divisor))
    return {divisor, {}};
  Value isBad = f.compare(CmpIPredicate::eq, divisor, f.constant(0));
  if (!isSigned)
    return {f.select(isBad, f.constant(1), divisor), {}};
  Value isMinusOne = f.compare(CmpIPredicate::eq, divisor, f.constant(-1));
  return {f.select(f.either(isBad, isMinusOne), f.constant(1), divisor), isMinusOne};
}

static Value divide(Integers &f, Value x, Value y) {
  Divisor by = guard(f, y, /*isSigned=*/true);
  Value quotient = arith::DivSIOp::create(f.b, f.loc, x, by.safe);
  return by.isMinusOne ? f.select(by.isMinusOne, f.sub(f.constant(0), x), quotient) : quotient;
}

static Value remainder(Integers &f, Value x, Value y) {
  return arith::RemSIOp::create(f.b, f.loc, x, guard(f, y, /*isSigned=*/true).safe);
}

/// One less (more) than the truncated quotient where a remainder is left and the signs differ
/// (agree).
static Value divideTowards(Integers &f, Value x, Value y, bool isFloor) {
  Value quotient = divide(f, x, y), zero = f.constant(0);
  Value isInexact = f.compare(CmpIPredicate::ne, remainder(f, x, y), zero);
  Value signs =
      f.compare(isFloor ? CmpIPredicate::ne : CmpIPredicate::eq,
                f.compare(CmpIPredicate::slt, x, zero), f.compare(CmpIPredicate::slt, y, zero));
  Value moved = f.add(quotient, f.constant(isFloor ? -1 : 1));
  return f.select(f.both(isInexact, signs), moved, quotient);
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

/// By squaring, over all bits of the exponent. A negative one gives the reciprocal, which is 0 but
/// for 1 and -1.
static Value raise(Integers &f, Value x, Value exponent) {
  Value one = f.constant(1), zero = f.constant(0), result = one, base = x;
  unsigned bits = getElementTypeOrSelf(f.type).getIntOrFloatBitWidth();
  for (unsigned bit = 0; bit + 1 < bits; ++bit) {
    Value isSet = f.compare(CmpIPredicate::ne, f.both(f.right(exponent, bit), one), zero);
    result = f.select(isSet, f.mul(result, base), result);
    base = f.mul(base, base);
  }
  Value minusOne = f.constant(-1);
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
  Halves(OpBuilder &b, Location loc, Type shape)
      : b(b), loc(loc), single(withElement(shape, b.getF32Type())),
        half(withElement(shape, b.getIntegerType(16))),
        f{b, loc, withElement(shape, b.getI32Type())} {}

  Value extend(Value value) {
    bool isBrain = getElementTypeOrSelf(value.getType()).isBF16();
    Value bits = arith::ExtUIOp::create(b, loc, f.type, bitcast(half, value));
    return isBrain ? bitcast(single, f.left(bits, 16)) : extendBits(bits);
  }

  Value truncate(Value value, Type to) {
    bool isBrain = getElementTypeOrSelf(to).isBF16();
    Value bits = bitcast(f.type, value);
    Value rounded = isBrain ? roundToBrain(value, bits) : roundToHalf(value, bits);
    return bitcast(to, arith::TruncIOp::create(b, loc, half, rounded));
  }

private:
  Value bitcast(Type to, Value value) { return arith::BitcastOp::create(b, loc, to, value); }
  Value isNaN(Value value) {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, value, value);
  }
  Value number(float value) {
    TypedAttr attribute = b.getF32FloatAttr(value);
    if (auto vector = dyn_cast<VectorType>(single))
      attribute = DenseElementsAttr::get(vector, ArrayRef<Attribute>(attribute));
    return arith::ConstantOp::create(b, loc, attribute);
  }

  /// Exponent and fraction in their places; a multiplication corrects the bias, which also makes
  /// what was below the normal halves a normal number. Infinity and NaN get the largest exponent.
  Value extendBits(Value bits) {
    Value magnitude = f.left(f.both(bits, f.constant(0x7fff)), 13);
    Value scaled = arith::MulFOp::create(b, loc, bitcast(single, magnitude), number(0x1p112f));
    Value isSpecial = f.compare(CmpIPredicate::uge, magnitude, f.constant(0x7c00 << 13));
    Value special = f.either(magnitude, f.constant(0x7f800000));
    Value result = f.select(isSpecial, special, bitcast(f.type, scaled));
    return bitcast(single, f.either(result, f.left(f.both(bits, f.constant(0x8000)), 16)));
  }

  /// To nearest, ties to even: half of the last place, less when that place is even.
  Value roundUp(Value bits, int64_t dropped) {
    Value last = f.both(f.right(bits, dropped), f.constant(1));
    Value rounding = f.add(last, f.constant((int64_t(1) << (dropped - 1)) - 1));
    return f.right(f.add(bits, rounding), dropped);
  }

  Value roundToBrain(Value value, Value bits) {
    Value quiet = f.either(f.right(bits, 16), f.constant(0x40));
    return f.select(isNaN(value), quiet, roundUp(bits, 16));
  }

  /// Normal halves: the bias is corrected, then the fraction rounded, which may carry into the
  /// exponent. Smaller ones: adding 0.5 makes the processor round to their last place.
  Value roundToHalf(Value value, Value bits) {
    Value sign = f.both(f.right(bits, 16), f.constant(0x8000));
    Value magnitude = f.both(bits, f.constant(0x7fffffff));
    Value normal = roundUp(f.sub(magnitude, f.constant(int64_t(112) << 23)), 13);
    Value shifted = arith::AddFOp::create(b, loc, bitcast(single, magnitude), number(0.5f));
    Value tiny = f.sub(bitcast(f.type, shifted), f.constant(0x3f000000));
    Value isTiny = f.compare(CmpIPredicate::ult, magnitude, f.constant(0x38800000));  // 2^-14
    Value isLarge = f.compare(CmpIPredicate::uge, magnitude, f.constant(0x477ff000)); // 65520
    Value result = f.select(isTiny, tiny, f.select(isLarge, f.constant(0x7c00), normal));
    return f.either(f.select(isNaN(value), f.constant(0x7e00), result), sign);
  }

  OpBuilder &b;
  Location loc;
  Type single, half;
  Integers f;
};
} // namespace

/// A conversion `op` from or to halves as others, or null where it stays.
static Value expandHalf(Operation *op, bool isDevice) {
  Value value = op->getOperand(0);
  Type type = op->getResult(0).getType();
  Type from = getElementTypeOrSelf(value.getType()), to = getElementTypeOrSelf(type);
  OpBuilder b(op);
  Location loc = op->getLoc();
  Type single = withElement(type, b.getF32Type());
  if (isHalfPrecision(from)) {
    bool stays = isDevice && from.isF16();
    if (stays && to.isF32())
      return nullptr;
    Value wide = stays ? arith::ExtFOp::create(b, loc, single, value).getResult()
                       : Halves(b, loc, type).extend(value);
    return to.isF64() ? arith::ExtFOp::create(b, loc, type, wide).getResult() : wide;
  }
  if (isDevice && from.isF32())
    return nullptr;
  if (from.isF64())
    value = arith::TruncFOp::create(b, loc, single, value);
  return isDevice ? arith::TruncFOp::create(b, loc, type, value).getResult()
                  : Halves(b, loc, type).truncate(value, type);
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
  Integers f{builder, location, type};
  Value x = operands[0], y = operands[1];
  if (op == arith::DivSIOp::getOperationName())
    return divide(f, x, y);
  if (op == arith::RemSIOp::getOperationName())
    return remainder(f, x, y);
  if (op == arith::DivUIOp::getOperationName())
    return arith::DivUIOp::create(builder, location, x, guard(f, y, false).safe);
  if (op == arith::RemUIOp::getOperationName())
    return arith::RemUIOp::create(builder, location, x, guard(f, y, false).safe);
  if (op == arith::FloorDivSIOp::getOperationName() || op == arith::CeilDivSIOp::getOperationName())
    return divideTowards(f, x, y, op == arith::FloorDivSIOp::getOperationName());
  if (op == math::IPowIOp::getOperationName())
    return raise(f, x, y);
  return nullptr;
}
