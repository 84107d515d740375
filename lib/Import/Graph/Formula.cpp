//===- Formula.cpp - formulas over the elements of tensors -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace memopt::pt2;
using llvm::ArrayRef;
using mlir::Value;
namespace arith = mlir::arith;
namespace math = mlir::math;

template <typename OpTy, typename... Args> static Element make(Element first, Args &&...args) {
  return {first.getBuilder(),
          OpTy::create(first.getBuilder(), std::forward<Args>(args)...).getResult()};
}

template <typename Real, typename Integer> static Element combine(Element a, Element b) {
  return a.isReal() ? make<Real>(a, a, b) : make<Integer>(a, a, b);
}

static bool isBoolean(Element a) { return mlir::getElementTypeOrSelf(a.getType()).isInteger(1); }

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

// Sums and products of booleans are those of PyTorch: or, and.
Element memopt::pt2::operator+(Element a, Element b) {
  return isBoolean(a) ? a | b : combine<arith::AddFOp, arith::AddIOp>(a, b);
}
Element memopt::pt2::operator-(Element a, Element b) {
  return combine<arith::SubFOp, arith::SubIOp>(a, b);
}
Element memopt::pt2::operator*(Element a, Element b) {
  return isBoolean(a) ? a & b : combine<arith::MulFOp, arith::MulIOp>(a, b);
}
Element memopt::pt2::operator/(Element a, Element b) { return make<arith::DivFOp>(a, a, b); }
Element memopt::pt2::operator-(Element a) {
  return a.isReal() ? make<arith::NegFOp>(a, a) : a.like(0) - a;
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

static Element compare(Element a, Element b, arith::CmpFPredicate real,
                       arith::CmpIPredicate integer) {
  return a.isReal() ? make<arith::CmpFOp>(a, real, a, b) : make<arith::CmpIOp>(a, integer, a, b);
}

Element memopt::pt2::less(Element a, Element b) {
  return compare(a, b, arith::CmpFPredicate::OLT, arith::CmpIPredicate::slt);
}
Element memopt::pt2::lessOrEqual(Element a, Element b) {
  return compare(a, b, arith::CmpFPredicate::OLE, arith::CmpIPredicate::sle);
}
Element memopt::pt2::equals(Element a, Element b) {
  return compare(a, b, arith::CmpFPredicate::OEQ, arith::CmpIPredicate::eq);
}
Element memopt::pt2::differs(Element a, Element b) {
  return compare(a, b, arith::CmpFPredicate::UNE, arith::CmpIPredicate::ne);
}
Element memopt::pt2::isNaN(Element a) {
  return make<arith::CmpFOp>(a, arith::CmpFPredicate::UNO, a, a);
}
Element memopt::pt2::isInfinite(Element a) {
  return equals(abs(a), std::numeric_limits<double>::infinity());
}
Element memopt::pt2::operator&(Element a, Element b) { return make<arith::AndIOp>(a, a, b); }
Element memopt::pt2::operator|(Element a, Element b) { return make<arith::OrIOp>(a, a, b); }
Element memopt::pt2::operator^(Element a, Element b) { return make<arith::XOrIOp>(a, a, b); }
Element memopt::pt2::operator!(Element a) { return a ^ a.like(1); }
Element memopt::pt2::select(Element condition, Element a, Element b) {
  return make<arith::SelectOp>(a, condition, a, b);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Element memopt::pt2::exp(Element x) { return make<math::ExpOp>(x, x); }
Element memopt::pt2::expm1(Element x) { return make<math::ExpM1Op>(x, x); }
Element memopt::pt2::log(Element x) { return make<math::LogOp>(x, x); }
Element memopt::pt2::log1p(Element x) { return make<math::Log1pOp>(x, x); }
Element memopt::pt2::sqrt(Element x) { return make<math::SqrtOp>(x, x); }
Element memopt::pt2::pow(Element x, Element y) { return make<math::PowFOp>(x, x, y); }
Element memopt::pt2::abs(Element x) {
  return x.isReal() ? make<math::AbsFOp>(x, x) : make<math::AbsIOp>(x, x);
}
Element memopt::pt2::floor(Element x) { return make<math::FloorOp>(x, x); }
Element memopt::pt2::trunc(Element x) { return make<math::TruncOp>(x, x); }
Element memopt::pt2::roundToEven(Element x) { return make<math::RoundEvenOp>(x, x); }
Element memopt::pt2::sin(Element x) { return make<math::SinOp>(x, x); }
Element memopt::pt2::cos(Element x) { return make<math::CosOp>(x, x); }
Element memopt::pt2::tanh(Element x) { return make<math::TanhOp>(x, x); }
Element memopt::pt2::erf(Element x) { return make<math::ErfOp>(x, x); }
Element memopt::pt2::erfc(Element x) { return make<math::ErfcOp>(x, x); }
Element memopt::pt2::sigmoid(Element x) { return make<mlir::memopt::SigmoidOp>(x, x); }
Element memopt::pt2::softplus(Element x) { return make<mlir::memopt::SoftplusOp>(x, x); }
Element memopt::pt2::copySign(Element x, Element y) { return make<math::CopySignOp>(x, x, y); }
Element memopt::pt2::truncatedRemainder(Element x, Element y) {
  return make<arith::RemFOp>(x, x, y);
}
double memopt::pt2::getLargestFinite(DType type) {
  switch (type) {
  case DType::F16:
    return 65504;
  case DType::BF16:
    return 0x1.fep127;
  case DType::F32:
    return std::numeric_limits<float>::max();
  default:
    return std::numeric_limits<double>::max();
  }
}
Element memopt::pt2::largerOf(Element a, Element b) {
  return isBoolean(a) ? a | b : combine<arith::MaximumFOp, arith::MaxSIOp>(a, b);
}
Element memopt::pt2::smallerOf(Element a, Element b) {
  return isBoolean(a) ? a & b : combine<arith::MinimumFOp, arith::MinSIOp>(a, b);
}
Element memopt::pt2::signOf(Element x) {
  return select(greater(x, 0), x.like(1), select(less(x, 0), x.like(-1), x.like(0)));
}

Element memopt::pt2::timesLog(Element x, Element y, bool plusOne) {
  Element logarithm = plusOne ? log1p(y) : log(y), isZero = equals(x, 0);
  Element value = select(isNaN(y), y, select(isZero, 0.0, x * logarithm));
  Element vanishes = isZero & lessOrEqual(y, plusOne ? -1 : 0);
  return withSlopes(value, {{x, select(vanishes, 0.0, logarithm)}, {y, x / (plusOne ? y + 1 : y)}});
}

Element memopt::pt2::withoutGradient(Element value) {
  return make<mlir::memopt::StopGradientOp>(value, value.getType(), value);
}

Element memopt::pt2::withSlopes(Element value,
                                ArrayRef<std::pair<Element, Element>> inputsAndSlopes) {
  mlir::ImplicitLocOpBuilder &b = value.getBuilder();
  Value reaching = mlir::memopt::IncomingGradientOp::create(b, value, b.getI64IntegerAttr(0));
  llvm::SmallVector<Value> inputs, gradients;
  for (auto [input, slope] : inputsAndSlopes) {
    inputs.push_back(input);
    gradients.push_back(Element(b, reaching) * slope);
  }
  auto marked = mlir::memopt::CustomGradientOp::create(b, value.getType(), Value(value), reaching,
                                                       inputs, gradients);
  return Element(b, marked.getResult(0));
}
