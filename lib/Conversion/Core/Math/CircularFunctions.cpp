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
      : CircularArithmetic(builder, location, x), single(x.getType()),
        narrow(like(b.getI32Type())) {}

  Value build(bool isCosine);

private:
  /// An argument as `quadrant` quarters of a circle and a rest of at most an eighth.
  struct Reduced {
    Value quadrant, rest;
  };

  Value bits32(uint32_t value) {
    return splat(narrow, b.getIntegerAttr(b.getI32Type(), static_cast<int32_t>(value)));
  }

  Reduced reduceSmall(Value size);
  Reduced reduceLarge(Value bits);
  SmallVector<Value> getWindow(Value position);

  Type single, narrow;
};
} // namespace

/// Below 2^28: pi / 2 in two parts. The quotient has 28 bits, and the parts 106.
CircularFunctions::Reduced CircularFunctions::reduceSmall(Value size) {
  Value quotient = math::RoundEvenOp::create(
      b, arith::MulFOp::create(b, size, number(0x1.45f306dc9c883p-1)).getResult());
  Value negative = arith::NegFOp::create(b, quotient);
  Value rest = math::FmaOp::create(b, negative, number(0x1.921fb54442d18p+0), size);
  rest = math::FmaOp::create(b, negative, number(0x1.1a62633145c07p-54), rest);
  return {arith::FPToSIOp::create(b, integer, quotient), rest};
}

/// Three words of 2 / pi from bit `position`, at most 127, on.
SmallVector<Value> CircularFunctions::getWindow(Value position) {
  Value first = shiftRight(position, whole(5));
  Value offset = arith::AndIOp::create(b, position, whole(31));
  SmallVector<Value> words;
  for (int k = 0; k < 4; ++k) {
    Value word = whole(kTwoOverPi[k]);
    for (int at = 1; at < 4; ++at)
      word = select(isEqual(first, whole(at)), whole(kTwoOverPi[at + k]), word);
    words.push_back(word);
  }
  SmallVector<Value> window;
  for (int k = 0; k < 3; ++k) {
    Value pair = arith::OrIOp::create(b, shiftLeft(words[k], whole(32)), words[k + 1]);
    window.push_back(shiftRight(shiftLeft(pair, offset), whole(32)));
  }
  return window;
}

/// From 2^28 on: m 2^e with a whole m of 24 bits. Bits of 2 / pi in front of that which is worth 2
/// behind the product give whole circles. Of the product's 96 bits the upper 64 are enough.
CircularFunctions::Reduced CircularFunctions::reduceLarge(Value bits) {
  Value exponent = shiftRight(bits, whole(23));
  Value m =
      arith::OrIOp::create(b, arith::AndIOp::create(b, bits, whole(0x7fffff)), whole(0x800000));
  // Small arguments, whose result is not taken, are kept within the table.
  Value position = arith::SubIOp::create(b, exponent, whole(152));
  position = arith::MaxSIOp::create(b, position, whole(0));
  position = arith::MinSIOp::create(b, position, whole(127));
  SmallVector<Value> window = getWindow(position);
  Value upper = shiftLeft(arith::MulIOp::create(b, m, window[0]), whole(32));
  Value lower = shiftRight(arith::MulIOp::create(b, m, window[2]), whole(32));
  Value product = arith::AddIOp::create(b, upper, arith::MulIOp::create(b, m, window[1]));
  product = arith::AddIOp::create(b, product, lower);
  Value quadrant =
      shiftRight(arith::AddIOp::create(b, product, whole(int64_t(1) << 61)), whole(62));
  Value rest = arith::SubIOp::create(b, product, shiftLeft(quadrant, whole(62)));
  Value angle = arith::MulFOp::create(b, arith::SIToFPOp::create(b, wide, rest),
                                      number(0x1.921fb54442d18p-62));
  return {quadrant, angle};
}

Value CircularFunctions::build(bool isCosine) {
  Value size = math::AbsFOp::create(b, x);
  Value bits = arith::ExtUIOp::create(b, integer, arith::BitcastOp::create(b, narrow, size));
  Reduced small = reduceSmall(arith::ExtFOp::create(b, wide, size)), large = reduceLarge(bits);
  // As integers, sizes are in the order of floats: 2^28, and infinity.
  Value isSmall = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, bits, whole(0x4d800000));
  Value quadrant = select(isSmall, small.quadrant, large.quadrant);
  Value rest = select(isSmall, small.rest, large.rest);
  if (isCosine)
    quadrant = arith::AddIOp::create(b, quadrant, whole(1));
  Value square = arith::MulFOp::create(b, rest, rest);
  Value odd = polynomial(square, {-1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6});
  Value sine = math::FmaOp::create(b, arith::MulFOp::create(b, square, rest), odd, rest);
  Value cosine = polynomial(
      square, {1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0});
  Value result = arith::TruncFOp::create(b, single, select(hasBit(quadrant, 1), cosine, sine));
  result = select(hasBit(quadrant, 2), arith::NegFOp::create(b, result), result);
  if (!isCosine) {
    // The sign of the argument, that of a zero too.
    Value sign =
        arith::AndIOp::create(b, arith::BitcastOp::create(b, narrow, x), bits32(0x80000000));
    Value signedBits = arith::XOrIOp::create(b, arith::BitcastOp::create(b, narrow, result), sign);
    result = arith::BitcastOp::create(b, single, signedBits);
  }
  // Neither infinities nor NaN have one.
  Value isFinite = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, bits, whole(0x7f800000));
  return select(isFinite, result, arith::SubFOp::create(b, x, x));
}

Value mlir::memopt::expandSine(OpBuilder &builder, Location location, Value x, bool isCosine) {
  return CircularFunctions(builder, location, x).build(isCosine);
}
