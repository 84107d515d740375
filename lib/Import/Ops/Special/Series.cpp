//===- Series.cpp - incomplete gamma functions and zeta ------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Series that need more terms the larger their arguments are: loops of the program.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Loops.h"
#include "memopt/Import/Ops/Special/SpecialFunctions.h"

using namespace llvm;
using namespace memopt::pt2;

//===----------------------------------------------------------------------===//
// Incomplete gamma functions
//===----------------------------------------------------------------------===//

/// As many terms as arguments up to 10,000 need, which is a few times their root.
constexpr int64_t kMostTerms = 1000;

/// sum x^n / ((a + 1) ... (a + n))
static Element sumSeries(Element a, Element x) {
  Loop loop = repeat(kMostTerms, false, {a, x}, {}, {a.like(1), a.like(1), a}, [](const Turn &at) {
    Element x = at.fixed[1], sum = at.carried[0];
    Element divisor = at.carried[2] + 1, term = at.carried[1] * x / divisor;
    return Yields{{sum + term, term, divisor}, {}};
  });
  return loop.last[0];
}

/// Cephes' continued fraction for x above 1 and a; numerators and denominators are scaled down
/// before they overflow.
static Element continueFraction(Element a, Element x) {
  constexpr double big = 4503599627370496.0;
  Element z = x - a + 2, first = x + 1;
  Loop loop =
      repeat(kMostTerms, false, {}, {}, {first, x.like(1), z * x, x, 1 - a, z, x.like(0)},
             [&](const Turn &at) {
               Element p = at.carried[0], before = at.carried[1];
               Element q = at.carried[2], qBefore = at.carried[3];
               Element y = at.carried[4] + 1, z = at.carried[5] + 2;
               Element count = at.carried[6] + 1, factor = y * count;
               Element next = p * z - before * factor, below = q * z - qBefore * factor;
               Element scale = select(greater(abs(next), big), next.like(1 / big), next.like(1));
               return Yields{{next * scale, p * scale, below * scale, q * scale, y, z, count}, {}};
             });
  return loop.last[0] / loop.last[2];
}

/// The lower (or upper) part of the integral of t^(a - 1) e^-t, by gamma(a), up to x (from x on).
static Element incompleteGamma(Element a, Element x, bool upper) {
  Element isPlain = greater(a, 0) & greater(x, 0) & less(a, kInfinity) & less(x, kInfinity);
  Element byFraction = isPlain & greater(x, 1) & greater(x, a), bySeries = isPlain & !byFraction;
  auto density = [](Element a, Element x) { return a * log(x) - x - positiveLogGamma(a); };
  Element low = select(bySeries, a, 1.0), part = select(bySeries, x, 1.0);
  Element series = exp(density(low, part)) / low * sumSeries(low, part);
  Element high = select(byFraction, a, 1.0), rest = select(byFraction, x, 2.0);
  Element fraction = exp(density(high, rest)) * continueFraction(high, rest);
  Element value =
      upper ? select(byFraction, fraction, 1 - series) : select(byFraction, 1 - fraction, series);
  // All of the integral lies below x, or none of it.
  Element isAll = (equals(a, 0) & greater(x, 0)) | (equals(x, kInfinity) & less(a, kInfinity));
  Element isNone = (equals(x, 0) & greater(a, 0)) | (equals(a, kInfinity) & less(x, kInfinity));
  value = select(isAll, upper ? 0.0 : 1.0, select(isNone, upper ? 1.0 : 0.0, value));
  Element isWrong = less(a, 0) | less(x, 0) | isNaN(a) | isNaN(x) | (equals(a, 0) & equals(x, 0)) |
                    (equals(a, kInfinity) & equals(x, kInfinity));
  value = select(isWrong, kNaN, value);
  Element slope = exp((a - 1) * log(x) - x - positiveLogGamma(a));
  return with(value, x, upper ? -slope : slope);
}

template <bool upper> static Error lowerIncompleteGamma(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  ASSIGN_OR_RETURN(Tensor result, elementwise(op, {op.tensor("self"), op.tensor("other")},
                                              DType::F64, DType::F64, inBuild([](Elements v) {
                                                return incompleteGamma(v[0], v[1], upper);
                                              })));
  return setResult(op, castTo(op, result, type));
}

//===----------------------------------------------------------------------===//
// Zeta
//===----------------------------------------------------------------------===//

/// Cephes' Hurwitz zeta function, the sum of (q + k)^-x: terms up to an argument of nine, then
/// Euler's and Maclaurin's formula. Below 0 there are terms for arguments down to -32.
static Element zeta(Element x, Element q) {
  Element sum = pow(q, -x), at = q, term = sum;
  constexpr int64_t direct = 9, most = 42;
  for (int64_t k = 0; k != most; ++k) {
    Element next = at + 1, isNeeded = k < direct ? equals(x, x) : lessOrEqual(at, 9);
    at = select(isNeeded, next, at);
    term = select(isNeeded, pow(at, -x), term);
    sum = select(isNeeded, sum + term, sum);
  }
  constexpr double divisors[] = {12,
                                 -720,
                                 30240,
                                 -1209600,
                                 47900160,
                                 -1.8924375803183791606e9,
                                 7.47242496e10,
                                 -2.950130727918164224e12,
                                 1.1646782814350067249e14,
                                 -4.5979787224074726105e15,
                                 1.8152105401943546773e17,
                                 -7.1661652561756670113e18};
  Element end = at;
  sum = sum + term * end / (x - 1) - 0.5 * term;
  Element factor = x.like(1);
  for (auto [k, divisor] : enumerate(divisors)) {
    factor = factor * (x + double(2 * k));
    term = term / end;
    sum = sum + factor * term / divisor;
    factor = factor * (x + double(2 * k + 1));
    term = term / end;
  }
  Element isWhole = equals(q, floor(q)), isLow = lessOrEqual(q, 0);
  sum = select(isLow & differs(x, floor(x)), kNaN, sum);
  sum = select((isLow & isWhole) | equals(x, 1), kInfinity, sum);
  return select(less(x, 1) | isNaN(x) | isNaN(q), kNaN, sum);
}

static Error lowerZeta(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  ASSIGN_OR_RETURN(Tensor result, elementwise(op, {op.operand("self"), op.operand("other")},
                                              DType::F64, DType::F64, inBuild([](Elements v) {
                                                Element x = v[0], q = v[1];
                                                return with(zeta(x, q), q, -x * zeta(x + 1, q));
                                              })));
  return setResult(op, castTo(op, result, type));
}

void memopt::pt2::registerSeries(OpTable &table) {
  table.add("aten.igamma.default", "Tensor self, Tensor other", lowerIncompleteGamma<false>);
  table.add("aten.igammac.default", "Tensor self, Tensor other", lowerIncompleteGamma<true>);
  table.add("aten.special_zeta.default", "Tensor self, Tensor other", lowerZeta);
  table.add("aten.special_zeta.other_scalar", "Tensor self, Scalar other", lowerZeta);
  table.add("aten.special_zeta.self_scalar", "Scalar self, Tensor other", lowerZeta);
}
