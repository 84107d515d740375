//===- OrthogonalPolynomials.cpp - polynomials of a given degree -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each family is a recurrence p[k + 1] = (a[k] + b[k] x) p[k] - c[k] p[k - 1] (Digital Library of
// Mathematical Functions, 18.9). Of a degree that is a number in the graph its steps are laid out
// one after the other; of one that is a tensor they are a loop, up to the largest degree, in which
// each element keeps the value at its own.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Special/SpecialFunctions.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using Builder = mlir::ImplicitLocOpBuilder;
using Elements = ArrayRef<Element>;

namespace {
/// first + slope k, for a, b and c.
struct Line {
  double first, slope;
};

struct Family {
  Line atDegreeOne; ///< p[1], of x
  Line constant, factor, before;
  bool isDivided; ///< all three by k + 1
};
} // namespace

constexpr Line kNothing{0, 0}, kOne{1, 0}, kTwo{2, 0};
constexpr Family kChebyshevT{{0, 1}, kNothing, kTwo, kOne, false},
    kChebyshevU{{0, 2}, kNothing, kTwo, kOne, false},
    kChebyshevV{{-1, 2}, kNothing, kTwo, kOne, false},
    kChebyshevW{{1, 2}, kNothing, kTwo, kOne, false},
    kHermiteH{{0, 2}, kNothing, kTwo, {0, 2}, false},
    kHermiteHe{{0, 1}, kNothing, kOne, {0, 1}, false},
    kLaguerre{{1, -1}, {1, 2}, {-1, 0}, {0, 1}, true},
    kLegendre{{0, 1}, kNothing, {1, 2}, {0, 1}, true};

/// The largest degree: above it values leave the range of any type.
constexpr int64_t kMostDegree = 512;

static double at(const Family &family, Line line, double k) {
  return (line.first + line.slope * k) / (family.isDivided ? k + 1 : 1);
}
static Element at(const Family &family, Line line, Element k) {
  if (!line.slope && !family.isDivided)
    return k.like(line.first);
  Element value = k * line.slope + line.first;
  return family.isDivided ? value / (k + 1) : value;
}

/// p[k + 1] of p[k] and the one before; k is a number or has elements.
template <typename Degree>
static Element step(const Family &family, Element x, Degree k, Element value, Element before) {
  return (x * at(family, family.factor, k) + at(family, family.constant, k)) * value -
         before * at(family, family.before, k);
}

static Element startAtOne(const Family &family, Element x) {
  return x * family.atDegreeOne.slope + family.atDegreeOne.first;
}

static Element evaluate(const Family &family, Element x, int64_t degree) {
  Element before = x.like(1), value = startAtOne(family, x);
  if (degree < 1)
    return x.like(degree == 0);
  for (int64_t k = 1; k != degree; ++k) {
    Element next = step(family, x, double(k), value, before);
    before = value;
    value = next;
  }
  return value;
}

/// Whole degrees, one for each element; NaN above the largest.
static Element evaluate(const Family &family, Element x, Element degree) {
  auto &b = x.getBuilder();
  ArrayRef<int64_t> sizes = mlir::cast<RankedTensorType>(x.getType()).getShape();
  Element first = startAtOne(family, x);
  Element found =
      select(lessOrEqual(degree, 0), select(equals(degree, 0), first.like(1), 0.0), first);
  auto numbers = RankedTensorType::get({kMostDegree}, b.getF64Type());
  Value turns = mlir::memopt::IotaOp::create(b, numbers.clone(b.getI64Type()), 0);
  turns = convert(b, turns, DType::I64, DType::F64);
  auto scan = mlir::memopt::ScanOp::create(b, {x, degree}, turns, /*firsts=*/{1},
                                           {x.like(1), first, found}, kMostDegree - 1, false);
  Builder inner(b.getLoc(), b.getContext());
  inner.setInsertionPointToEnd(&scan.getBody().front());
  auto in = [&](Value value) -> Element { return {inner, value}; };
  auto fixed = scan.getFixedArguments(), carried = scan.getCarriedArguments();
  Element k = in(broadcastValue(inner, scan.getSliceArguments().front(), sizes));
  Element next = step(family, in(fixed[0]), k, in(carried[1]), in(carried[0]));
  Element kept = select(greater(in(fixed[1]), k), next, in(carried[2]));
  mlir::memopt::YieldOp::create(inner, SmallVector<Value>{carried[1], next, kept});
  scan = mlir::memopt::ScanOp::finish(b, scan);
  Element last(b, scan.getLastValues().back());
  return select(greater(degree, double(kMostDegree)), kNaN, last);
}

/// `isShifted`: of 2 x - 1, whose range is 0 to 1.
template <const Family &family, bool isShifted = false> static Error lower(OpContext &op) {
  double degree = std::trunc(op.scalar("n").asDouble());
  if (!(degree <= kMostDegree))
    return op.error("argument 'n': expected a degree of at most " + toString(double(kMostDegree)) +
                    ", found " + toString(degree));
  int64_t whole = std::max(degree, -1.0);
  return mapDoubles(
      op, [&](Element x) { return evaluate(family, isShifted ? x * 2 - 1 : x, whole); }, "x");
}

/// As PyTorch has them these have no gradients.
template <const Family &family, bool isShifted = false> static Error lowerTensor(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  ASSIGN_OR_RETURN(Tensor result,
                   elementwise(op, {op.operand("x"), op.operand("n")}, DType::F64, DType::F64,
                               inBuild([&](Elements v) {
                                 Element x = withoutGradient(isShifted ? v[0] * 2 - 1 : v[0]);
                                 return evaluate(family, x, trunc(withoutGradient(v[1])));
                               })));
  return setResult(op, castTo(op, result, type));
}

void memopt::pt2::registerOrthogonalPolynomials(OpTable &table) {
  constexpr StringLiteral atDegree = "Tensor x, Scalar n", atTensor = "Tensor x, Tensor n",
                          ofNumber = "Scalar x, Tensor n";
#define POLYNOMIAL(name, ...)                                                                      \
  table.add("aten.special_" name ".n_scalar", atDegree, lower<__VA_ARGS__>);                       \
  table.add("aten.special_" name ".default", atTensor, lowerTensor<__VA_ARGS__>);                  \
  table.add("aten.special_" name ".x_scalar", ofNumber, lowerTensor<__VA_ARGS__>);
  POLYNOMIAL("chebyshev_polynomial_t", kChebyshevT)
  POLYNOMIAL("chebyshev_polynomial_u", kChebyshevU)
  POLYNOMIAL("chebyshev_polynomial_v", kChebyshevV)
  POLYNOMIAL("chebyshev_polynomial_w", kChebyshevW)
  POLYNOMIAL("shifted_chebyshev_polynomial_t", kChebyshevT, true)
  POLYNOMIAL("shifted_chebyshev_polynomial_u", kChebyshevU, true)
  POLYNOMIAL("shifted_chebyshev_polynomial_v", kChebyshevV, true)
  POLYNOMIAL("shifted_chebyshev_polynomial_w", kChebyshevW, true)
  POLYNOMIAL("hermite_polynomial_h", kHermiteH)
  POLYNOMIAL("hermite_polynomial_he", kHermiteHe)
  POLYNOMIAL("laguerre_polynomial_l", kLaguerre)
  POLYNOMIAL("legendre_polynomial_p", kLegendre)
#undef POLYNOMIAL
}
