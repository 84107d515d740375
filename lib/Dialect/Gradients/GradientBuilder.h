//===- GradientBuilder.h - formulas of gradient rules -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lets a gradient rule be written as the formula that it is: `Term` is a tensor with arithmetic
// operators, `GradientBuilder` makes terms and the shape ops between them. Neutral elements and
// splat constants fold on the way, so that a formula costs no ops that a person would have left
// out.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_DIALECT_GRADIENTS_GRADIENTBUILDER_H
#define MEMOPT_LIB_DIALECT_GRADIENTS_GRADIENTBUILDER_H

#include "../IR/Verification.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

namespace mlir::memopt {

class GradientBuilder;

/// A floating-point tensor inside a formula. Operands of an operator have one type; a number takes
/// the type of the term beside it.
class Term {
public:
  Term(GradientBuilder &builder, Value value) : builder(&builder), value(value) {}

  operator Value() const { return value; }
  RankedTensorType getType() const { return tensorType(value); }
  GradientBuilder &getBuilder() const { return *builder; }

private:
  GradientBuilder *builder;
  Value value;
};

Term operator+(Term a, Term b);
Term operator-(Term a, Term b);
Term operator*(Term a, Term b);
Term operator/(Term a, Term b);
Term operator-(Term a);
Term operator+(Term a, double b);
Term operator-(Term a, double b);
Term operator-(double a, Term b);
Term operator*(Term a, double b);
Term operator*(double a, Term b);
Term operator/(Term a, double b);
Term operator/(double a, Term b);

/// `condition ? a : b`, element by element.
Term select(Value condition, Term a, Term b);
Term select(Value condition, Term a, double b);
Term select(Value condition, double a, Term b);
Value compare(arith::CmpFPredicate predicate, Term a, Term b);
Value compare(arith::CmpFPredicate predicate, Term a, double b);

Term exp(Term x);
Term log(Term x);
Term sqrt(Term x);
Term rsqrt(Term x);
Term sin(Term x);
Term cos(Term x);
Term sinh(Term x);
Term cosh(Term x);
Term trunc(Term x);
Term pow(Term x, Term y);
Term sigmoid(Term x);

class GradientBuilder {
public:
  GradientBuilder(OpBuilder &builder, Location loc) : builder(builder), loc(loc) {}

  OpBuilder &getBuilder() { return builder; }
  Location getLoc() const { return loc; }

  Term operator()(Value value) { return Term(*this, value); }
  /// A constant with every element `number`.
  Term splat(RankedTensorType type, double number);

  template <typename OpTy, typename... Args> OpTy create(Args &&...args) {
    return OpTy::create(builder, loc, std::forward<Args>(args)...);
  }
  /// The op's only result, or what it folds to.
  template <typename OpTy, typename... Args> Term fold(Args &&...args) {
    return Term(*this, builder.createOrFold<OpTy>(loc, std::forward<Args>(args)...));
  }

  //===--------------------------------------------------------------------===//
  // Shapes
  //===--------------------------------------------------------------------===//

  /// Same elements in row-major order under another shape.
  Term reshape(Value value, ArrayRef<int64_t> shape);
  Term broadcast(Value value, RankedTensorType type, ArrayRef<int64_t> dimensions);
  Term transpose(Value value, ArrayRef<int64_t> permutation);
  /// Reduces `dimensions`, which vanish.
  Term reduce(ReduceKind kind, Value value, ArrayRef<int64_t> dimensions);
  Term sum(Value value, ArrayRef<int64_t> dimensions) {
    return reduce(ReduceKind::Add, value, dimensions);
  }
  /// The part of `value` that begins at `offsets` with `sizes`, dense.
  Term slice(Value value, ArrayRef<int64_t> offsets, ArrayRef<int64_t> sizes);
  Term pad(Value value, ArrayRef<int64_t> low, ArrayRef<int64_t> high);
  /// Brings back dimensions that a reduction of `type` removed: element of the result equal along
  /// them.
  Term unreduce(Value value, RankedTensorType type, ArrayRef<int64_t> dimensions);
  Term convert(Value value, Type elementType);

private:
  OpBuilder &builder;
  Location loc;
};

/// The splat constant behind `value`.
std::optional<double> getSplat(Value value);

/// Dimensions of a tensor of `rank` that are not in `dimensions`, increasing.
SmallVector<int64_t> otherDimensions(int64_t rank, ArrayRef<int64_t> dimensions);
/// begin, begin + 1, ..., end - 1.
SmallVector<int64_t> dimensionRange(int64_t begin, int64_t end);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_DIALECT_GRADIENTS_GRADIENTBUILDER_H
