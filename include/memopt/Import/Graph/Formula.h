//===- Formula.h - formulas over the elements of tensors -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lets a lowering be written as the formula that it is. An Element is a tensor whose elements the
// formula is about; operands of an operator have one shape and one element type, and a number takes
// the type of the element beside it. Integers are signed: lowerings bring unsigned bytes and
// booleans to wider integers first (getArithmeticType). Comparisons are ordered, so that NaN makes
// all of them false but `differs`.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_GRAPH_FORMULA_H
#define MEMOPT_IMPORT_GRAPH_FORMULA_H

#include "memopt/Import/Graph/OpContext.h"

namespace memopt::pt2 {

class Element {
public:
  Element(mlir::ImplicitLocOpBuilder &b, mlir::Value value) : builder(&b), value(value) {}

  operator mlir::Value() const { return value; }
  mlir::ImplicitLocOpBuilder &getBuilder() const { return *builder; }
  mlir::Type getType() const { return value.getType(); }
  bool isReal() const { return mlir::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(value)); }
  /// A tensor of this one's type with every element `number`.
  Element like(double number) const { return {*builder, splat(*builder, getType(), number)}; }

private:
  mlir::ImplicitLocOpBuilder *builder;
  mlir::Value value;
};

Element operator+(Element a, Element b);
Element operator-(Element a, Element b);
Element operator*(Element a, Element b);
Element operator/(Element a, Element b); ///< reals only
Element operator-(Element a);
inline Element operator+(Element a, double b) { return a + a.like(b); }
inline Element operator+(double a, Element b) { return b.like(a) + b; }
inline Element operator-(Element a, double b) { return a - a.like(b); }
inline Element operator-(double a, Element b) { return b.like(a) - b; }
inline Element operator*(Element a, double b) { return a * a.like(b); }
inline Element operator*(double a, Element b) { return b * b.like(a); }
inline Element operator/(Element a, double b) { return a / a.like(b); }
inline Element operator/(double a, Element b) { return b.like(a) / b; }

// Conditions: elements are booleans.
Element less(Element a, Element b);
Element lessOrEqual(Element a, Element b);
Element equals(Element a, Element b);
Element differs(Element a, Element b);
inline Element greater(Element a, Element b) { return less(b, a); }
inline Element greaterOrEqual(Element a, Element b) { return lessOrEqual(b, a); }
inline Element less(Element a, double b) { return less(a, a.like(b)); }
inline Element lessOrEqual(Element a, double b) { return lessOrEqual(a, a.like(b)); }
inline Element equals(Element a, double b) { return equals(a, a.like(b)); }
inline Element differs(Element a, double b) { return differs(a, a.like(b)); }
inline Element greater(Element a, double b) { return greater(a, a.like(b)); }
inline Element greaterOrEqual(Element a, double b) { return greaterOrEqual(a, a.like(b)); }
Element isNaN(Element a);
Element isInfinite(Element a);
Element operator&(Element a, Element b);
Element operator|(Element a, Element b);
Element operator^(Element a, Element b);
Element operator!(Element a);
/// `condition ? a : b`, element by element.
Element select(Element condition, Element a, Element b);
inline Element select(Element condition, Element a, double b) {
  return select(condition, a, a.like(b));
}
inline Element select(Element condition, double a, Element b) {
  return select(condition, b.like(a), b);
}

// Functions of reals.
Element exp(Element x);
Element expm1(Element x);
Element log(Element x);
Element log1p(Element x);
Element sqrt(Element x);
Element pow(Element x, Element y);
Element abs(Element x); ///< integers too
Element floor(Element x);
Element trunc(Element x);
Element roundToEven(Element x);
Element sin(Element x);
Element cos(Element x);
Element tanh(Element x);
Element erf(Element x);
Element erfc(Element x);
Element sigmoid(Element x);
Element softplus(Element x);
/// The magnitude of `x` with the sign of `y`.
Element copySign(Element x, Element y);
/// x - y trunc(x / y), without rounding.
Element truncatedRemainder(Element x, Element y);
/// The largest finite number of a floating-point type.
double getLargestFinite(DType type);
/// The larger (smaller); reals: NaN where either is.
Element largerOf(Element a, Element b);
Element smallerOf(Element a, Element b);
/// -1, 0 or 1; NaN gives 0.
Element signOf(Element x);

/// x log y (or x log(1 + y)), and 0 wherever x is.
Element timesLog(Element x, Element y, bool plusOne = false);

/// `value`, whose gradient passes to `inputs[i]` times `slopes[i]` and nowhere else.
Element withSlopes(Element value, llvm::ArrayRef<std::pair<Element, Element>> inputsAndSlopes);
/// `value`, through which no gradient passes.
Element withoutGradient(Element value);

/// A formula of elements, one for each operand.
using FormulaFn = llvm::function_ref<Element(llvm::ArrayRef<Element>)>;
/// `formula` as elementwise() takes it.
inline auto inBuild(FormulaFn formula) {
  return [formula](mlir::ImplicitLocOpBuilder &b, mlir::ValueRange values) -> mlir::Value {
    llvm::SmallVector<Element> elements;
    for (mlir::Value value : values)
      elements.push_back({b, value});
    return formula(elements);
  };
}
/// elementwise() by a formula, in the arithmetic type of the result, which becomes the operator's.
llvm::Error mapElements(OpContext &op, llvm::ArrayRef<Operand> operands, FormulaFn formula,
                        Evaluate evaluate = nullptr);
/// The same for operators that give real numbers alone.
llvm::Error mapReals(OpContext &op, llvm::ArrayRef<Operand> operands, FormulaFn formula);

/// The type in which an operator computes that depends on the sign or size of integers: unsigned
/// bytes and booleans have a sign there; others stay.
inline DType getArithmeticType(DType type) {
  return type == DType::U8 || type == DType::Bool ? DType::I32 : type;
}

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_GRAPH_FORMULA_H
