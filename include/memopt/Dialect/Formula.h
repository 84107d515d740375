//===- Formula.h - formulas over scalars and vectors -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How code is written that computes numbers: bodies of generics, and what expands an op into simpler
// ones. Two others write formulas over tensors, by rules of their own: the importer's Element follows
// PyTorch, and a gradient's Term takes a zero for a gradient that does not flow. An optimizer's
// Quantity records a formula before it is known where it is computed.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_FORMULA_H
#define MEMOPT_DIALECT_FORMULA_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::memopt {

/// `value` as `type`, both scalars: floats, integers or an index.
Value convertTo(ImplicitLocOpBuilder &b, Value value, Type type);
/// A constant of `type`, a scalar or each lane of a vector: floats are rounded, integers cut.
Value createConstant(ImplicitLocOpBuilder &b, Type type, double value);
/// The same for integers, of the lowest bits of `value`.
Value createIntConstant(ImplicitLocOpBuilder &b, Type type, int64_t value);

/// Writes formulas over values of one type, a scalar or a vector. Each function makes an op; what
/// compares gives booleans, which are false where a float is no number.
struct Formula {
  ImplicitLocOpBuilder &b;
  Type type;

  bool isFloat() const { return isa<FloatType>(getElementTypeOrSelf(type)); }

  Value number(double value) { return createConstant(b, type, value); }
  Value integer(int64_t value) { return createIntConstant(b, type, value); }
  /// The float that has these bits.
  Value ofBits(uint64_t bits);
  /// A scalar in the type of this formula.
  Value wide(Value value) { return convertTo(b, value, type); }

  Value add(Value l, Value r);
  Value sub(Value l, Value r);
  Value mul(Value l, Value r);
  Value equal(Value l, Value r);
  Value scale(double factor, Value value) { return mul(number(factor), value); }
  Value square(Value value) { return mul(value, value); }

  // Of floats.
  Value div(Value l, Value r);
  Value fma(Value l, Value r, Value addend);
  Value negate(Value value);
  Value abs(Value value);
  Value sqrt(Value value);
  Value roundToEven(Value value);
  /// The magnitude of `value` with the sign of `sign`.
  Value copySign(Value value, Value sign);
  /// By Horner's rule, with a multiply-add for each coefficient but the first.
  Value polynomial(Value x, ArrayRef<double> highestFirst);
  /// `value`, or 0 where `weight` is.
  Value unlessZero(Value weight, Value value);
  /// 1 / sqrt(value + eps)
  Value inverseRoot(Value value, double eps);
  Value less(Value l, Value r);
  Value lessEqual(Value l, Value r);
  Value isNumber(Value value);
  Value isNaN(Value value);

  // Of integers.
  Value both(Value l, Value r);
  Value either(Value l, Value r);
  Value differing(Value l, Value r);
  Value left(Value value, Value by);
  Value right(Value value, Value by); ///< zeros come in
  Value compare(arith::CmpIPredicate predicate, Value l, Value r);

  Value select(Value condition, Value l, Value r);
  /// The same bits as a value of this type.
  Value bitcast(Value value);
};

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_FORMULA_H
