//===- CircularFunctions.cpp - sine and cosine as arithmetic ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CircularFunctions.h"
#include "CircularArithmetic.h"

using namespace mlir;
using namespace mlir::memopt;

/// 2 / pi, 32 bits each, the first of which is worth a half.
static constexpr uint32_t kTwoOverPi[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                          0xdb629599, 0x3c439041, 0xfe5163ab};

namespace {
class CircularFunctions : CircularArithmetic {
public:
  CircularFunctions(OpBuilder &builder, Location location, Value x)
      : CircularArithmetic(builder, location, x), single{b, x.getType()},
        narrow{b, like(b.getI32Type())} {}

  Value build(bool isCosine);

private:
  /// An argument as `quadrant` quarters of a circle and a rest of at most an eighth.
  struct Reduced {
    Value quadrant, rest;
  };

  Reduced reduceSmall(Value size);
  Reduced reduceLarge(Value bits);
  SmallVector<Value> getWindow(Value position);

  Formula single, narrow; ///< floats of 32 bits, and integers of as many
};
} // namespace

/// Below 2^28: pi / 2 in two parts. The quotient has 28 bits, and the parts 106.
CircularFunctions::Reduced CircularFunctions::reduceSmall(Value size) {
  Value quotient = wide.roundToEven(wide.mul(size, wide.number(0x1.45f306dc9c883p-1)));
  Value negative = wide.negate(quotient);
  Value rest = wide.fma(negative, wide.number(0x1.921fb54442d18p+0), size);
  rest = wide.fma(negative, wide.number(0x1.1a62633145c07p-54), rest);
  return {arith::FPToSIOp::create(b, words.type, quotient), rest};
}

/// Three words of 2 / pi from bit `position`, at most 127, on.
SmallVector<Value> CircularFunctions::getWindow(Value position) {
  Value first = words.right(position, words.integer(5));
  Value offset = words.both(position, words.integer(31));
  SmallVector<Value> four;
  for (int k = 0; k < 4; ++k) {
    Value word = words.integer(kTwoOverPi[k]);
    for (int at = 1; at < 4; ++at)
      word = words.select(words.equal(first, words.integer(at)), words.integer(kTwoOverPi[at + k]),
                          word);
    four.push_back(word);
  }
  SmallVector<Value> window;
  for (int k = 0; k < 3; ++k) {
    Value pair = words.either(words.left(four[k], words.integer(32)), four[k + 1]);
    window.push_back(words.right(words.left(pair, offset), words.integer(32)));
  }
  return window;
}

/// From 2^28 on: m 2^e with a whole m of 24 bits. Bits of 2 / pi in front of that which is worth 2
/// behind the product give whole circles. Of the product's 96 bits the upper 64 are enough.
CircularFunctions::Reduced CircularFunctions::reduceLarge(Value bits) {
  Value exponent = words.right(bits, words.integer(23));
  Value m = words.either(words.both(bits, words.integer(0x7fffff)), words.integer(0x800000));
  // Small arguments, whose result is not taken, are kept within the table.
  Value position = words.sub(exponent, words.integer(152));
  position = arith::MaxSIOp::create(b, position, words.integer(0));
  position = arith::MinSIOp::create(b, position, words.integer(127));
  SmallVector<Value> window = getWindow(position);
  Value upper = words.left(words.mul(m, window[0]), words.integer(32));
  Value lower = words.right(words.mul(m, window[2]), words.integer(32));
  Value product = words.add(upper, words.mul(m, window[1]));
  product = words.add(product, lower);
  Value quadrant =
      words.right(words.add(product, words.integer(int64_t(1) << 61)), words.integer(62));
  Value rest = words.sub(product, words.left(quadrant, words.integer(62)));
  Value angle =
      wide.mul(arith::SIToFPOp::create(b, wide.type, rest), wide.number(0x1.921fb54442d18p-62));
  return {quadrant, angle};
}

Value CircularFunctions::build(bool isCosine) {
  Value size = single.abs(x);
  Value bits = arith::ExtUIOp::create(b, words.type, narrow.bitcast(size));
  Reduced small = reduceSmall(arith::ExtFOp::create(b, wide.type, size)), large = reduceLarge(bits);
  // As integers, sizes are in the order of floats: 2^28, and infinity.
  Value isSmall = words.compare(arith::CmpIPredicate::ult, bits, words.integer(0x4d800000));
  Value quadrant = words.select(isSmall, small.quadrant, large.quadrant);
  Value rest = wide.select(isSmall, small.rest, large.rest);
  if (isCosine)
    quadrant = words.add(quadrant, words.integer(1));
  Value square = wide.square(rest);
  Value odd =
      wide.polynomial(square, {-1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6});
  Value sine = wide.fma(wide.mul(square, rest), odd, rest);
  Value cosine = wide.polynomial(
      square, {1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0});
  Value result =
      arith::TruncFOp::create(b, single.type, wide.select(hasBit(quadrant, 1), cosine, sine));
  result = single.select(hasBit(quadrant, 2), single.negate(result), result);
  if (!isCosine) {
    // The sign of the argument, that of a zero too.
    Value sign = narrow.both(narrow.bitcast(x), narrow.integer(0x80000000));
    Value signedBits = narrow.differing(narrow.bitcast(result), sign);
    result = single.bitcast(signedBits);
  }
  // Neither infinities nor NaN have one.
  Value isFinite = words.compare(arith::CmpIPredicate::ult, bits, words.integer(0x7f800000));
  return single.select(isFinite, result, single.sub(x, x));
}

Value mlir::memopt::expandSine(OpBuilder &builder, Location location, Value x, bool isCosine) {
  return CircularFunctions(builder, location, x).build(isCosine);
}
