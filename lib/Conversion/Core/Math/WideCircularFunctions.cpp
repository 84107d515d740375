//===- WideCircularFunctions.cpp - sine and cosine of doubles ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// As for floats, with rests of two doubles: no double is nearer to a multiple of pi / 2 than 2^-62
// or so, which leaves 60 bits of the 126 that are kept. Results are those of exact numbers,
// rounded, or their neighbours.
//
//===----------------------------------------------------------------------===//

#include "CircularArithmetic.h"
#include "CircularFunctions.h"

using namespace mlir;
using namespace mlir::memopt;

/// 64 zeros and then 2 / pi, the first bit of which is worth a half.
static constexpr uint64_t kWideTwoOverPi[] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
    0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
    0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
    0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};

/// pi / 2, the sum of these.
static constexpr double kHalfPi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                     -0x1.f1976b7ed8fbcp-110};

namespace {
class WideCircularFunctions : CircularArithmetic {
public:
  using CircularArithmetic::CircularArithmetic;

  Value build(bool isCosine);

private:
  /// A number as the sum of two, the second of which is far smaller.
  struct Pair {
    Value high, low;
  };
  /// An argument as `quadrant` quarters of a circle and a rest of an eighth, or hardly more.
  struct Reduced {
    Value quadrant;
    Pair rest;
  };

  Value add(Value a, Value c) { return arith::AddFOp::create(b, a, c); }
  Value sub(Value a, Value c) { return arith::SubFOp::create(b, a, c); }
  Value mul(Value a, Value c) { return arith::MulFOp::create(b, a, c); }
  Value fma(Value a, Value c, Value d) { return math::FmaOp::create(b, a, c, d); }
  Value negate(Value a) { return arith::NegFOp::create(b, a); }
  Value addBits(Value a, Value c) { return arith::AddIOp::create(b, a, c); }
  Value subBits(Value a, Value c) { return arith::SubIOp::create(b, a, c); }
  Value either(Value a, Value c) { return arith::OrIOp::create(b, a, c); }
  Value toNumber(Value value) { return arith::SIToFPOp::create(b, wide, value); }

  /// The same number, with the second part below the first one's last bit; that was the larger one.
  Pair normalize(Value high, Value low) {
    Value sum = add(high, low);
    return {sum, add(sub(high, sum), low)};
  }

  Reduced reduceSmall(Value size);
  Reduced reduceLarge(Value bits);
  SmallVector<Value> getWindow(Value position);
  Value sine(Pair rest);
  Value cosine(Pair rest);
};
} // namespace

/// Below 2^30. The first difference is exact: it has no bit below the last of pi / 2 or of x.
WideCircularFunctions::Reduced WideCircularFunctions::reduceSmall(Value size) {
  Value quotient = math::RoundEvenOp::create(b, Value(mul(size, number(0x1.45f306dc9c883p-1))));
  Value negative = negate(quotient);
  Value first = fma(negative, number(kHalfPi[0]), size);
  Value second = mul(negative, number(kHalfPi[1]));
  Value below = fma(negative, number(kHalfPi[1]), negate(second));
  below = fma(negative, number(kHalfPi[2]), below);
  // Either may be the larger one.
  Value sum = add(first, second), part = sub(sum, first);
  Value lost = add(sub(first, sub(sum, part)), sub(second, part));
  return {arith::FPToSIOp::create(b, integer, quotient), normalize(sum, add(lost, below))};
}

/// Three words of kWideTwoOverPi from bit `position` on.
SmallVector<Value> WideCircularFunctions::getWindow(Value position) {
  constexpr int firsts = std::size(kWideTwoOverPi) - 3;
  Value first = shiftRight(position, whole(6)), offset = both(position, whole(63));
  Value rest = subBits(whole(63), offset);
  SmallVector<Value> isFirst, words, window;
  for (int at = 1; at < firsts; ++at)
    isFirst.push_back(isEqual(first, whole(static_cast<uint64_t>(at))));
  for (int k = 0; k < 4; ++k) {
    Value word = whole(kWideTwoOverPi[k]);
    for (int at = 1; at < firsts; ++at)
      word = select(isFirst[at - 1], whole(kWideTwoOverPi[at + k]), word);
    words.push_back(word);
  }
  for (int k = 0; k < 3; ++k)
    window.push_back(
        either(shiftLeft(words[k], offset), shiftRight(shiftRight(words[k + 1], whole(1)), rest)));
  return window;
}

/// From 2^30 on: m 2^e with a whole m of 53 bits. Bits of 2 / pi in front of that which is worth 2
/// behind the product give whole circles. Of the product's 192 bits the upper 128 are enough.
WideCircularFunctions::Reduced WideCircularFunctions::reduceLarge(Value bits) {
  Value m = either(both(bits, whole((uint64_t(1) << 52) - 1)), whole(uint64_t(1) << 52));
  // Small arguments, whose result is not taken, and what is not finite are kept within the table.
  Value position = subBits(shiftRight(bits, whole(52)), whole(1013));
  position = arith::MaxSIOp::create(b, position, whole(0));
  position = arith::MinSIOp::create(b, position, whole(1033));
  SmallVector<Value> window = getWindow(position);
  auto last = arith::MulUIExtendedOp::create(b, m, window[2]),
       middle = arith::MulUIExtendedOp::create(b, m, window[1]);
  Value lower = addBits(middle.getLow(), last.getHigh());
  Value carry = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, lower, last.getHigh());
  Value upper = addBits(addBits(arith::MulIOp::create(b, m, window[0]), middle.getHigh()),
                        arith::ExtUIOp::create(b, integer, carry));
  Value quadrant = shiftRight(addBits(upper, whole(uint64_t(1) << 61)), whole(62));
  Value rest = subBits(upper, shiftLeft(quadrant, whole(62)));
  // Quarters, in parts that a double holds.
  Value high = mul(toNumber(arith::ShRSIOp::create(b, rest, whole(32))), number(0x1p-30));
  Value middlePart = mul(toNumber(both(rest, whole(0xffffffff))), number(0x1p-62));
  Value low = mul(toNumber(shiftRight(lower, whole(11))), number(0x1p-115));
  Pair sum = normalize(high, middlePart);
  Pair quarters = normalize(sum.high, add(sum.low, low));
  Value product = mul(quarters.high, number(kHalfPi[0]));
  Value below = fma(quarters.high, number(kHalfPi[0]), negate(product));
  below = fma(quarters.high, number(kHalfPi[1]), below);
  below = fma(quarters.low, number(kHalfPi[0]), below);
  return {quadrant, normalize(product, below)};
}

/// Taylor polynomials. The second part of the rest counts by the derivative.
Value WideCircularFunctions::sine(Pair rest) {
  Value square = mul(rest.high, rest.high);
  Value odd = polynomial(square, {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800,
                                  -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6});
  Value slope = fma(square, number(-0.5), number(1));
  return add(rest.high, fma(mul(square, rest.high), odd, mul(rest.low, slope)));
}

Value WideCircularFunctions::cosine(Pair rest) {
  Value square = mul(rest.high, rest.high), half = mul(square, number(0.5));
  Value even =
      polynomial(square, {-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200,
                          1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24});
  Value first = sub(number(1), half);
  Value lost = sub(sub(number(1), first), half);
  Value small = fma(mul(square, square), even, negate(mul(rest.high, rest.low)));
  return add(first, add(lost, small));
}

Value WideCircularFunctions::build(bool isCosine) {
  Value size = math::AbsFOp::create(b, x), bits = arith::BitcastOp::create(b, integer, size);
  Reduced small = reduceSmall(size), large = reduceLarge(bits);
  // As integers, sizes are in the order of doubles: 2^30, and infinity.
  auto isBelow = [&](uint64_t limit) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, bits, whole(limit));
  };
  Value isSmall = isBelow(0x41d0000000000000);
  Value quadrant = select(isSmall, small.quadrant, large.quadrant);
  Pair rest{select(isSmall, small.rest.high, large.rest.high),
            select(isSmall, small.rest.low, large.rest.low)};
  if (isCosine)
    quadrant = addBits(quadrant, whole(1));
  Value result = select(hasBit(quadrant, 1), cosine(rest), sine(rest));
  result = select(hasBit(quadrant, 2), negate(result), result);
  if (!isCosine) {
    // The sign of the argument, that of a zero too.
    Value sign = both(arith::BitcastOp::create(b, integer, x), whole(uint64_t(1) << 63));
    Value signedBits = arith::XOrIOp::create(b, arith::BitcastOp::create(b, integer, result), sign);
    result = arith::BitcastOp::create(b, wide, signedBits);
  }
  // Neither infinities nor NaN have one.
  return select(isBelow(0x7ff0000000000000), result, sub(x, x));
}

Value mlir::memopt::expandWideSine(OpBuilder &builder, Location location, Value x, bool isCosine) {
  return WideCircularFunctions(builder, location, x).build(isCosine);
}
