//===- UpstreamGradients.cpp - gradient rules of arith, math and tensor ops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Elementwise rules are the table ElementaryGradients.def; what needs more than a formula follows
// it.
//
//===----------------------------------------------------------------------===//

#include "GradientBuilder.h"
#include "UpstreamInterfaces.h"

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

#define UNARY(OP, FLOPS, DX)                                                                       \
  template <> struct Rule<OP> : Elementary<Rule<OP>, OP> {                                         \
    static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) { \
      [[maybe_unused]] Term x(g.getBuilder(), op->getOperand(0));                                  \
      [[maybe_unused]] Term y(g.getBuilder(), op->getResult(0));                                   \
      if (needed[0])                                                                               \
        grads[0] = DX;                                                                             \
    }                                                                                              \
  };
#define BINARY(OP, FLOPS, DA, DB)                                                                  \
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
#define TERNARY(OP, FLOPS, DA, DB, DC)                                                             \
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
#define ZERO(OP, FLOPS)                                                                            \
  template <> struct Rule<OP> : Elementary<Rule<OP>, OP> {                                         \
    static void fill(Operation *, Term, ArrayRef<bool>, MutableArrayRef<Value>) {}                 \
  };
#include "ElementaryGradients.def"

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
      grads[0] = g.getBuilder().convert(g, tensorTypeOf(op->getOperand(0)).getElementType());
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
      grads[0] = g.getBuilder().reshape(g, tensorTypeOf(op->getOperand(0)).getShape());
  }
};
} // namespace

/// Gradients need to know where the slice lies.
static LogicalResult checkStaticSlice(OffsetSizeAndStrideOpInterface op) {
  if (llvm::any_of(op.getStaticOffsets(), ShapedType::isDynamic) ||
      llvm::any_of(op.getStaticSizes(), ShapedType::isDynamic) ||
      llvm::any_of(op.getStaticStrides(), ShapedType::isDynamic))
    return op->emitOpError("has a gradient only when offsets, sizes and strides are static");
  return success();
}

namespace {
template <>
struct Rule<tensor::ExtractSliceOp>
    : DifferentiableOpInterface::ExternalModel<Rule<tensor::ExtractSliceOp>,
                                               tensor::ExtractSliceOp> {
  LogicalResult differentiate(Operation *op, OpBuilder &builder, ArrayRef<Value> resultGradients,
                              ArrayRef<bool> needed, MutableArrayRef<Value> grads) const {
    auto extract = cast<tensor::ExtractSliceOp>(op);
    if (failed(checkStaticSlice(extract)))
      return failure();
    if (!needed[0])
      return success();
    GradientBuilder b(builder, op->getLoc());
    RankedTensorType source = extract.getSourceType();
    if (!extract.hasUnitStride()) {
      grads[0] = b.create<tensor::InsertSliceOp>(resultGradients[0], b.splat(source, 0.0),
                                                 extract.getMixedOffsets(), extract.getMixedSizes(),
                                                 extract.getMixedStrides());
      return success();
    }
    ArrayRef<int64_t> low = extract.getStaticOffsets(), sizes = extract.getStaticSizes();
    SmallVector<int64_t> high;
    for (auto [size, before, part] : llvm::zip(source.getShape(), low, sizes))
      high.push_back(size - before - part);
    // A slice may drop dimensions of size one; the gradient gets them back first.
    grads[0] = b.pad(b.reshape(resultGradients[0], sizes), low, high);
    return success();
  }
};

template <>
struct Rule<tensor::InsertSliceOp>
    : DifferentiableOpInterface::ExternalModel<Rule<tensor::InsertSliceOp>, tensor::InsertSliceOp> {
  LogicalResult differentiate(Operation *op, OpBuilder &builder, ArrayRef<Value> resultGradients,
                              ArrayRef<bool> needed, MutableArrayRef<Value> grads) const {
    auto insert = cast<tensor::InsertSliceOp>(op);
    if (failed(checkStaticSlice(insert)))
      return failure();
    GradientBuilder b(builder, op->getLoc());
    RankedTensorType source = insert.getSourceType();
    Value gradient = resultGradients[0];
    if (needed[0])
      grads[0] = b.create<tensor::ExtractSliceOp>(source, gradient, insert.getMixedOffsets(),
                                                  insert.getMixedSizes(), insert.getMixedStrides());
    if (needed[1])
      grads[1] =
          b.create<tensor::InsertSliceOp>(b.splat(source, 0.0), gradient, insert.getMixedOffsets(),
                                          insert.getMixedSizes(), insert.getMixedStrides());
    return success();
  }
};

template <> struct Rule<tensor::ConcatOp> : Elementary<Rule<tensor::ConcatOp>, tensor::ConcatOp> {
  static void fill(Operation *op, Term g, ArrayRef<bool> needed, MutableArrayRef<Value> grads) {
    int64_t dimension = cast<tensor::ConcatOp>(op).getDim(), position = 0;
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      RankedTensorType type = tensorTypeOf(operand);
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

void memopt::attachUpstreamGradients(MLIRContext *context) {
#define UNARY(OP, FLOPS, DX) OP::attachInterface<Rule<OP>>(*context);
#define BINARY(OP, FLOPS, DA, DB) OP::attachInterface<Rule<OP>>(*context);
#define TERNARY(OP, FLOPS, DA, DB, DC) OP::attachInterface<Rule<OP>>(*context);
#define ZERO(OP, FLOPS) OP::attachInterface<Rule<OP>>(*context);
#include "ElementaryGradients.def"
  arith::SelectOp::attachInterface<Rule<arith::SelectOp>>(*context);
  arith::ExtFOp::attachInterface<ConversionRule<arith::ExtFOp>>(*context);
  arith::TruncFOp::attachInterface<ConversionRule<arith::TruncFOp>>(*context);
  math::FPowIOp::attachInterface<Rule<math::FPowIOp>>(*context);
  tensor::CastOp::attachInterface<ReshapeRule<tensor::CastOp>>(*context);
  tensor::CollapseShapeOp::attachInterface<ReshapeRule<tensor::CollapseShapeOp>>(*context);
  tensor::ExpandShapeOp::attachInterface<ReshapeRule<tensor::ExpandShapeOp>>(*context);
  tensor::ExtractSliceOp::attachInterface<Rule<tensor::ExtractSliceOp>>(*context);
  tensor::InsertSliceOp::attachInterface<Rule<tensor::InsertSliceOp>>(*context);
  tensor::ConcatOp::attachInterface<Rule<tensor::ConcatOp>>(*context);
}
