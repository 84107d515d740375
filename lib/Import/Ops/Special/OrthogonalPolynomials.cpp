//===- OrthogonalPolynomials.cpp - polynomials of a given degree -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each family is a recurrence p[k + 1] = (a[k] + b[k] x) p[k] - c[k] p[k - 1] (Digital Library of
// Mathematical Functions, 18.9), whose steps are laid out one after the other: the degree must be a
// number in the graph.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Special/SpecialFunctions.h"

using namespace llvm;
using namespace memopt::pt2;

namespace {
struct Step {
  double constant, factor, before; ///< a, b and c
};

struct Family {
  double atDegreeOne[2]; ///< p[1] is the first plus the second times x
  Step (*getStep)(double k);
};
} // namespace

static Step doubling(double) { return {0, 2, 1}; }
static Step hermite(double k) { return {0, 2, 2 * k}; }
static Step hermiteOfProbability(double k) { return {0, 1, k}; }
static Step laguerre(double k) { return {(2 * k + 1) / (k + 1), -1 / (k + 1), k / (k + 1)}; }
static Step legendre(double k) { return {0, (2 * k + 1) / (k + 1), k / (k + 1)}; }

constexpr Family kChebyshevT{{0, 1}, doubling}, kChebyshevU{{0, 2}, doubling},
    kChebyshevV{{-1, 2}, doubling}, kChebyshevW{{1, 2}, doubling}, kHermiteH{{0, 2}, hermite},
    kHermiteHe{{0, 1}, hermiteOfProbability}, kLaguerre{{1, -1}, laguerre},
    kLegendre{{0, 1}, legendre};

static Element evaluate(const Family &family, Element x, int64_t degree) {
  Element before = x.like(1), value = x * family.atDegreeOne[1] + family.atDegreeOne[0];
  if (degree < 1)
    return x.like(degree == 0);
  for (int64_t k = 1; k != degree; ++k) {
    Step step = family.getStep(double(k));
    Element next = (x * step.factor + step.constant) * value - before * step.before;
    before = value;
    value = next;
  }
  return value;
}

/// `isShifted`: of 2 x - 1, whose range is 0 to 1.
template <const Family &family, bool isShifted = false> static Error lower(OpContext &op) {
  // Below it values leave the range of any type.
  constexpr double most = 512;
  double degree = std::trunc(op.scalar("n").asDouble());
  if (!(degree <= most))
    return op.error("argument 'n': expected a degree of at most " + toString(most) + ", found " +
                    toString(degree));
  int64_t whole = std::max(degree, -1.0);
  return mapDoubles(
      op, [&](Element x) { return evaluate(family, isShifted ? x * 2 - 1 : x, whole); }, "x");
}

void memopt::pt2::registerOrthogonalPolynomials(OpTable &table) {
  constexpr StringLiteral atDegree = "Tensor x, Scalar n";
  table.add("aten.special_chebyshev_polynomial_t.n_scalar", atDegree, lower<kChebyshevT>);
  table.add("aten.special_chebyshev_polynomial_u.n_scalar", atDegree, lower<kChebyshevU>);
  table.add("aten.special_chebyshev_polynomial_v.n_scalar", atDegree, lower<kChebyshevV>);
  table.add("aten.special_chebyshev_polynomial_w.n_scalar", atDegree, lower<kChebyshevW>);
  table.add("aten.special_shifted_chebyshev_polynomial_t.n_scalar", atDegree,
            lower<kChebyshevT, true>);
  table.add("aten.special_shifted_chebyshev_polynomial_u.n_scalar", atDegree,
            lower<kChebyshevU, true>);
  table.add("aten.special_shifted_chebyshev_polynomial_v.n_scalar", atDegree,
            lower<kChebyshevV, true>);
  table.add("aten.special_shifted_chebyshev_polynomial_w.n_scalar", atDegree,
            lower<kChebyshevW, true>);
  table.add("aten.special_hermite_polynomial_h.n_scalar", atDegree, lower<kHermiteH>);
  table.add("aten.special_hermite_polynomial_he.n_scalar", atDegree, lower<kHermiteHe>);
  table.add("aten.special_laguerre_polynomial_l.n_scalar", atDegree, lower<kLaguerre>);
  table.add("aten.special_legendre_polynomial_p.n_scalar", atDegree, lower<kLegendre>);
}
