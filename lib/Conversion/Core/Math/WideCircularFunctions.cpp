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

  Value toNumber(Value value) { return arith::SIToFPOp::create(b, wide.type, value); }

  /// The same number, with the second part below the first one's last bit; that was the larger one.
  Pair normalize(Value high, Value low) {
    Value sum = wide.add(high, low);
    return {sum, wide.add(wide.sub(high, sum), low)};
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
  Value quotient = wide.roundToEven(wide.mul(size, wide.number(0x1.45f306dc9c883p-1)));
  Value negative = wide.negate(quotient);
  Value first = wide.fma(negative, wide.number(kHalfPi[0]), size);
  Value second = wide.mul(negative, wide.number(kHalfPi[1]));
  Value below = wide.fma(negative, wide.number(kHalfPi[1]), wide.negate(second));
  below = wide.fma(negative, wide.number(kHalfPi[2]), below);
  // Either may be the larger one.
  Value sum = wide.add(first, second), part = wide.sub(sum, first);
  Value lost = wide.add(wide.sub(first, wide.sub(sum, part)), wide.sub(second, part));
  return {arith::FPToSIOp::create(b, words.type, quotient), normalize(sum, wide.add(lost, below))};
}

/// Three words of kWideTwoOverPi from bit `position` on.
SmallVector<Value> WideCircularFunctions::getWindow(Value position) {
  constexpr int firsts = std::size(kWideTwoOverPi) - 3;
  Value first = words.right(position, words.integer(6)),
        offset = words.both(position, words.integer(63));
  Value rest = words.sub(words.integer(63), offset);
  SmallVector<Value> isFirst, four, window;
  for (int at = 1; at < firsts; ++at)
    isFirst.push_back(words.equal(first, words.integer(static_cast<uint64_t>(at))));
  for (int k = 0; k < 4; ++k) {
    Value word = words.integer(kWideTwoOverPi[k]);
    for (int at = 1; at < firsts; ++at)
      word = words.select(isFirst[at - 1], words.integer(kWideTwoOverPi[at + k]), word);
    four.push_back(word);
  }
  for (int k = 0; k < 3; ++k)
    window.push_back(words.either(words.left(four[k], offset),
                                  words.right(words.right(four[k + 1], words.integer(1)), rest)));
  return window;
}

/// From 2^30 on: m 2^e with a whole m of 53 bits. Bits of 2 / pi in front of that which is worth 2
/// behind the product give whole circles. Of the product's 192 bits the upper 128 are enough.
WideCircularFunctions::Reduced WideCircularFunctions::reduceLarge(Value bits) {
  Value m = words.either(words.both(bits, words.integer((uint64_t(1) << 52) - 1)),
                         words.integer(uint64_t(1) << 52));
  // Small arguments, whose result is not taken, and what is not finite are kept within the table.
  Value position = words.sub(words.right(bits, words.integer(52)), words.integer(1013));
  position = arith::MaxSIOp::create(b, position, words.integer(0));
  position = arith::MinSIOp::create(b, position, words.integer(1033));
  SmallVector<Value> window = getWindow(position);
  auto last = arith::MulUIExtendedOp::create(b, m, window[2]),
       middle = arith::MulUIExtendedOp::create(b, m, window[1]);
  Value lower = words.add(middle.getLow(), last.getHigh());
  Value carry = words.compare(arith::CmpIPredicate::ult, lower, last.getHigh());
  Value upper = words.add(words.add(words.mul(m, window[0]), middle.getHigh()),
                          arith::ExtUIOp::create(b, words.type, carry));
  Value quadrant =
      words.right(words.add(upper, words.integer(uint64_t(1) << 61)), words.integer(62));
  Value rest = words.sub(upper, words.left(quadrant, words.integer(62)));
  // Quarters, in parts that a double holds.
  Value high =
      wide.mul(toNumber(arith::ShRSIOp::create(b, rest, words.integer(32))), wide.number(0x1p-30));
  Value middlePart =
      wide.mul(toNumber(words.both(rest, words.integer(0xffffffff))), wide.number(0x1p-62));
  Value low = wide.mul(toNumber(words.right(lower, words.integer(11))), wide.number(0x1p-115));
  Pair sum = normalize(high, middlePart);
  Pair quarters = normalize(sum.high, wide.add(sum.low, low));
  Value product = wide.mul(quarters.high, wide.number(kHalfPi[0]));
  Value below = wide.fma(quarters.high, wide.number(kHalfPi[0]), wide.negate(product));
  below = wide.fma(quarters.high, wide.number(kHalfPi[1]), below);
  below = wide.fma(quarters.low, wide.number(kHalfPi[0]), below);
  return {quadrant, normalize(product, below)};
}

/// Taylor polynomials. The second part of the rest counts by the derivative.
Value WideCircularFunctions::sine(Pair rest) {
  Value square = wide.mul(rest.high, rest.high);
  Value odd =
      wide.polynomial(square, {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800,
                               -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6});
  Value slope = wide.fma(square, wide.number(-0.5), wide.number(1));
  return wide.add(rest.high, wide.fma(wide.mul(square, rest.high), odd, wide.mul(rest.low, slope)));
}

Value WideCircularFunctions::cosine(Pair rest) {
  Value square = wide.mul(rest.high, rest.high), half = wide.mul(square, wide.number(0.5));
  Value even =
      wide.polynomial(square, {-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200,
                               1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24});
  Value first = wide.sub(wide.number(1), half);
  Value lost = wide.sub(wide.sub(wide.number(1), first), half);
  Value small =
      wide.fma(wide.mul(square, square), even, wide.negate(wide.mul(rest.high, rest.low)));
  return wide.add(first, wide.add(lost, small));
}

Value WideCircularFunctions::build(bool isCosine) {
  Value size = wide.abs(x), bits = words.bitcast(size);
  Reduced small = reduceSmall(size), large = reduceLarge(bits);
  // As integers, sizes are in the order of doubles: 2^30, and infinity.
  auto isBelow = [&](uint64_t limit) -> Value {
    return words.compare(arith::CmpIPredicate::ult, bits, words.integer(limit));
  };
  Value isSmall = isBelow(0x41d0000000000000);
  Value quadrant = words.select(isSmall, small.quadrant, large.quadrant);
  Pair rest{wide.select(isSmall, small.rest.high, large.rest.high),
            wide.select(isSmall, small.rest.low, large.rest.low)};
  if (isCosine)
    quadrant = words.add(quadrant, words.integer(1));
  Value result = wide.select(hasBit(quadrant, 1), cosine(rest), sine(rest));
  result = wide.select(hasBit(quadrant, 2), wide.negate(result), result);
  if (!isCosine) {
    // The sign of the argument, that of a zero too.
    Value sign = words.both(words.bitcast(x), words.integer(uint64_t(1) << 63));
    Value signedBits = words.differing(words.bitcast(result), sign);
    result = wide.bitcast(signedBits);
  }
  // Neither infinities nor NaN have one.
  return wide.select(isBelow(0x7ff0000000000000), result, wide.sub(x, x));
}

Value mlir::memopt::expandWideSine(OpBuilder &builder, Location location, Value x, bool isCosine) {
  return WideCircularFunctions(builder, location, x).build(isCosine);
}
