//===- Exponents.cpp - numbers taken apart -------------------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The exponent of a number, found by comparisons with powers of two, and the number next to it. All
// is exact: numbers are multiplied by powers of two.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Special/SpecialFunctions.h"

using namespace llvm;
using namespace memopt::pt2;

namespace {
/// size = mantissa 2^exponent with a mantissa from 1/2 to below 1; `unit` is 2^exponent times a
/// constant that was given.
struct Apart {
  Element mantissa, exponent, unit;
};
} // namespace

static Apart takeApart(Element size, double unit = 1) {
  Element exponent = size.like(0), power = size.like(unit);
  // Twice 512: the smallest numbers are below 2^-1023.
  for (int step : {512, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1}) {
    double up = std::ldexp(1.0, step), down = std::ldexp(1.0, -step);
    Element isHigh = greaterOrEqual(size, up), isLow = less(size, step == 1 ? 0.5 : down);
    size = select(isHigh, size * down, select(isLow, size * up, size));
    exponent = select(isHigh, exponent + step, select(isLow, exponent - step, exponent));
    power = select(isHigh, power * up, select(isLow, power * down, power));
  }
  Element isOne = greaterOrEqual(size, 1);
  return {select(isOne, 0.5 * size, size), select(isOne, exponent + 1, exponent),
          select(isOne, 2 * power, power)};
}

static Error lowerFrexp(OpContext &op) {
  Tensor self = op.tensor("self");
  RETURN_IF_ERROR(op.checkReal(self.dtype));
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  Element x(op.b, op.get(castTo(op, self, DType::F64)));
  Element size = abs(x), isNumber = greater(size, 0) & less(size, kInfinity);
  Apart apart = takeApart(select(isNumber, size, 1.0));
  Element mantissa = select(isNumber, copySign(apart.mantissa, x), x);
  mantissa = with(mantissa, x, select(isNumber, apart.mantissa / size, 1.0));
  op.setResult(0, castTo(op, op.wrap(DType::F64, mantissa), self.dtype));
  Element exponent = withoutGradient(select(isNumber, apart.exponent, 0.0));
  op.setResult(1, convert(op.b, exponent, DType::F64, DType::I32));
  return Error::success();
}

/// In the direction of `other`.
static Error lowerNextAfter(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  if (type != DType::F32 && type != DType::F64)
    return op.error("numbers of the type " + getName(type) + " are not supported");
  // Digits behind the first, and the smallest number.
  int digits = type == DType::F64 ? 53 : 24;
  double least = type == DType::F64 ? 0x1p-1074 : 0x1p-149;
  ASSIGN_OR_RETURN(
      Tensor result,
      elementwise(op, {op.tensor("self"), op.tensor("other")}, DType::F64, DType::F64,
                  inBuild([&](ArrayRef<Element> v) {
                    Element x = v[0], y = v[1], size = abs(x);
                    Element isNumber = greater(size, 0) & less(size, kInfinity);
                    Apart apart = takeApart(select(isNumber, size, 1.0), std::ldexp(1.0, -digits));
                    Element isOutward = less(x, y) ^ less(x, 0);
                    // Below a power of two numbers lie closer.
                    Element step = select(equals(apart.mantissa, 0.5) & !isOutward,
                                          0.5 * apart.unit, apart.unit);
                    step = largerOf(step, step.like(least));
                    Element next = select(isOutward, size + step, size - step);
                    if (type == DType::F32)
                      next = select(greater(next, getLargestFinite(type)), kInfinity, next);
                    next = select(equals(size, kInfinity), getLargestFinite(type), next);
                    next = copySign(next, x);
                    next = select(equals(x, 0), copySign(x.like(least), y), next);
                    next = select(equals(x, y), y, next);
                    next = select(isNaN(x) | isNaN(y), kNaN, next);
                    return with(next, x, select(equals(x, y), 0.0, x.like(1)));
                  })));
  return setResult(op, castTo(op, result, type));
}

void memopt::pt2::registerExponents(OpTable &table) {
  table.add("aten.frexp.Tensor", "Tensor self", lowerFrexp);
  table.add("aten.nextafter.default", "Tensor self, Tensor other", lowerNextAfter);
}
