//===- UpstreamGradients.cpp - gradient rules of arith, math and tensor ops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Elementwise rules are the table ScalarOps.def; what needs more than a formula follows
// it.
//
//===----------------------------------------------------------------------===//

#include "../IR/UpstreamInterfaces.h"
#include "GradientBuilder.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::memopt;
using arith::CmpFPredicate;

namespace {

//===----------------------------------------------------------------------===//
// Formulas with a case distinction
//===----------------------------------------------------------------------===//

/// g, halved where a and b are equal, zero where `loses` holds.
Term unlessOrHalf(CmpFPredicate loses, Term a, Term b, Term g) {
  return select(compare(loses, a, b), 0.0, select(compare(CmpFPredicate::OEQ, a, b), g * 0.5, g));
}

/// Where b is NaN `first`, else where a is `second`, else `otherwise`: the operand that is a number
/// is the result.
template <typename First, typename Second>
Term whereNumbers(Term a, Term b, Term otherwise, First first, Second second) {
  Term rest = select(compare(CmpFPredicate::UNO, a, a), second, otherwise);
  return select(compare(CmpFPredicate::UNO, b, b), first, rest);
}

/// x / (a^2 + b^2), zero at the origin, where the angle has no gradient.
Term overSquares(Term x, Term a, Term b) {
  Term squares = a * a + b * b;
  return select(compare(CmpFPredicate::OEQ, squares, 0.0), 0.0, x / squares);
}

/// d(a^b)/da; a power of zero is constant even at a = 0, where the formula would say 0 * inf.
Term powerBaseGradient(Term g, Term a, Term b) {
  std::optional<double> power = getSplat(b);
  if (power && *power == 0.0)
    return g * 0.0;
  if (power)
    return g * (*power * pow(a, b - 1.0));
  return select(compare(CmpFPredicate::OEQ, b, 0.0), 0.0, g * (b * pow(a, b - 1.0)));
}

/// d(a^b)/db; zero to a power that is not negative does not change with it.
Term powerExponentGradient(Term g, Term a, Term b, Term y) {
  Term formula = g * (y * log(a));
  Term atZero = select(compare(CmpFPredicate::OGE, b, 0.0), 0.0, formula);
  return select(compare(CmpFPredicate::OEQ, a, 0.0), atZero, formula);
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

/// Gives `Derived` the terms of a formula: g, the operands, the result.
template <typename Derived, typename OpTy>
struct Elementary : DifferentiableOpInterface::ExternalModel<Derived, OpTy> {
  LogicalResult differentiate(Operation *op, OpBuilder &builder, ArrayRef<Value> resultGradients,
                              ArrayRef<bool> needed, MutableArrayRef<Value> gradients) const {
    GradientBuilder b(builder, op->getLoc());
    Derived::fill(op, b(resultGradients[0]), needed, gradients);
    return success();
  }
};

template <typename OpTy> struct Rule;

#define UNARY(OP, FLOPS, COST, DX)                                                                 \
  template <> struct Rule<OP> : Elementary<Rule<OP>, OP> {                                         \
    static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) { \
      [[maybe_unused]] Term x(g.getBuilder(), op->getOperand(0));                                  \
      [[maybe_unused]] Term y(g.getBuilder(), op->getResult(0));                                   \
      if (needed[0])                                                                               \
        grads[0] = DX;                                                                             \
    }                                                                                              \
  };
#define BINARY(OP, FLOPS, COST, DA, DB)                                                            \
  template <> struct Rule<OP> : Elementary<Rule<OP>, OP> {                                         \
    static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) { \
      [[maybe_unused]] Term a(g.getBuilder(), op->getOperand(0));                                  \
      [[maybe_unused]] Term b(g.getBuilder(), op->getOperand(1));                                  \
      [[maybe_unused]] Term y(g.getBuilder(), op->getResult(0));                                   \
      if (needed[0])                                                                               \
        grads[0] = DA;                                                                             \
      if (needed[1])                                                                               \
        grads[1] = DB;                                                                             \
    }                                                                                              \
  };
#define TERNARY(OP, FLOPS, COST, DA, DB, DC)                                                       \
  template <> struct Rule<OP> : Elementary<Rule<OP>, OP> {                                         \
    static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) { \
      [[maybe_unused]] Term a(g.getBuilder(), op->getOperand(0));                                  \
      [[maybe_unused]] Term b(g.getBuilder(), op->getOperand(1));                                  \
      [[maybe_unused]] Term c(g.getBuilder(), op->getOperand(2));                                  \
      if (needed[0])                                                                               \
        grads[0] = DA;                                                                             \
      if (needed[1])                                                                               \
        grads[1] = DB;                                                                             \
      if (needed[2])                                                                               \
        grads[2] = DC;                                                                             \
    }                                                                                              \
  };
#define ZERO(OP, FLOPS, COST)                                                                      \
  template <> struct Rule<OP> : Elementary<Rule<OP>, OP> {                                         \
    static void fill(Operation *, Term, ArrayRef<bool>, MutableArrayRef<Value>) {}                 \
  };
#include "../IR/ScalarOps.def"

template <> struct Rule<arith::SelectOp> : Elementary<Rule<arith::SelectOp>, arith::SelectOp> {
  static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) {
    Value condition = op->getOperand(0);
    if (needed[1])
      grads[1] = select(condition, g, 0.0);
    if (needed[2])
      grads[2] = select(condition, 0.0, g);
  }
};

/// Conversions between floating-point types convert the gradient back.
template <typename OpTy> struct ConversionRule : Elementary<ConversionRule<OpTy>, OpTy> {
  static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) {
    if (needed[0])
      grads[0] = g.getBuilder().convert(g, tensorType(op->getOperand(0)).getElementType());
  }
};

template <> struct Rule<math::FPowIOp> : Elementary<Rule<math::FPowIOp>, math::FPowIOp> {
  static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) {
    if (!needed[0])
      return;
    GradientBuilder &b = g.getBuilder();
    Term x = b(op->getOperand(0));
    Term power = b.fold<arith::SIToFPOp>(x.getType(), op->getOperand(1));
    grads[0] = powerBaseGradient(g, x, power);
  }
};

//===----------------------------------------------------------------------===//
// Tensor ops
//===----------------------------------------------------------------------===//

template <typename OpTy> struct ReshapeRule : Elementary<ReshapeRule<OpTy>, OpTy> {
  static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) {
    if (needed[0])
      grads[0] = g.getBuilder().reshape(g, tensorType(op->getOperand(0)).getShape());
  }
};
} // namespace

/// Moves the elements of `value` apart, `strides[i]` along dimension i, zeros between and after
/// them.
static Term spread(GradientBuilder &b, Value value, ArrayRef<int64_t> strides) {
  SmallVector<int64_t> low, high, apart, together;
  for (auto [size, stride] : llvm::zip(tensorType(value).getShape(), strides)) {
    low.append({0, 0});
    high.append({0, stride - 1});
    apart.append({size, 1});
    together.push_back(size * stride);
  }
  return b.reshape(b.pad(b.reshape(value, apart), low, high), together);
}

namespace {
/// A slice's gradient lies in zeros.
template <>
struct Rule<tensor::ExtractSliceOp>
    : DifferentiableOpInterface::ExternalModel<Rule<tensor::ExtractSliceOp>,
                                               tensor::ExtractSliceOp> {
  LogicalResult differentiate(Operation *op, OpBuilder &builder, ArrayRef<Value> resultGradients,
                              ArrayRef<bool> needed, MutableArrayRef<Value> grads) const {
    auto extract = cast<tensor::ExtractSliceOp>(op);
    ArrayRef<int64_t> offsets = extract.getStaticOffsets(), strides = extract.getStaticStrides();
    ArrayRef<int64_t> sizes = extract.getStaticSizes();
    for (ArrayRef<int64_t> numbers : {offsets, sizes, strides})
      if (ShapedType::isDynamicShape(numbers))
        return op->emitOpError("has a gradient only when offsets, sizes and strides are static");
    if (!needed[0])
      return success();
    GradientBuilder b(builder, op->getLoc());
    // A slice may drop dimensions of size one; the gradient gets them back first.
    Term gradient = b.reshape(resultGradients[0], sizes);
    if (!extract.hasUnitStride())
      gradient = spread(b, gradient, strides);
    // The zeros after the last element may reach beyond the source.
    SmallVector<int64_t> low(offsets.size(), 0), part, high;
    for (auto [size, before, width] :
         llvm::zip(extract.getSourceType().getShape(), offsets, gradient.getType().getShape())) {
      part.push_back(std::min(width, size - before));
      high.push_back(size - before - part.back());
    }
    grads[0] = b.pad(b.slice(gradient, low, part), offsets, high);
    return success();
  }
};

template <> struct Rule<tensor::ConcatOp> : Elementary<Rule<tensor::ConcatOp>, tensor::ConcatOp> {
  static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) {
    int64_t dimension = cast<tensor::ConcatOp>(op).getDim(), position = 0;
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      RankedTensorType type = tensorType(operand);
      SmallVector<int64_t> offsets(type.getRank(), 0);
      offsets[dimension] = position;
      if (needed[index])
        grads[index] = g.getBuilder().slice(g, offsets, type.getShape());
      position += type.getDimSize(dimension);
    }
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

void mlir::memopt::attachUpstreamGradients(MLIRContext *context) {
#define SCALAR(OP, FLOPS, COST) OP::attachInterface<Rule<OP>>(*context);
#include "../IR/ScalarOps.def"
  arith::SelectOp::attachInterface<Rule<arith::SelectOp>>(*context);
  arith::ExtFOp::attachInterface<ConversionRule<arith::ExtFOp>>(*context);
  arith::TruncFOp::attachInterface<ConversionRule<arith::TruncFOp>>(*context);
  math::FPowIOp::attachInterface<Rule<math::FPowIOp>>(*context);
  tensor::CastOp::attachInterface<ReshapeRule<tensor::CastOp>>(*context);
  tensor::CollapseShapeOp::attachInterface<ReshapeRule<tensor::CollapseShapeOp>>(*context);
  tensor::ExpandShapeOp::attachInterface<ReshapeRule<tensor::ExpandShapeOp>>(*context);
  tensor::ExtractSliceOp::attachInterface<Rule<tensor::ExtractSliceOp>>(*context);
  tensor::ConcatOp::attachInterface<Rule<tensor::ConcatOp>>(*context);
}
