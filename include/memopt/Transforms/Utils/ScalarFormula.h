//===- ScalarFormula.h - formulas over scalars --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_SCALARFORMULA_H
#define MEMOPT_TRANSFORMS_UTILS_SCALARFORMULA_H

#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::memopt {

/// Writes formulas over scalars of one floating-point type.
struct Formula {
  ImplicitLocOpBuilder &b;
  Type type;

  Value number(double value) { return createConstant(b, type, value); }
  /// `value` in the type of this formula.
  Value wide(Value value) { return convertTo(b, value, type); }
  Value add(Value l, Value r) { return arith::AddFOp::create(b, l, r); }
  Value sub(Value l, Value r) { return arith::SubFOp::create(b, l, r); }
  Value mul(Value l, Value r) { return arith::MulFOp::create(b, l, r); }
  Value div(Value l, Value r) { return arith::DivFOp::create(b, l, r); }
  Value scale(double factor, Value value) { return mul(number(factor), value); }
  /// `value`, or 0 where `weight` is.
  Value unlessZero(Value weight, Value value) {
    Value isZero = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, weight, number(0.0));
    return arith::SelectOp::create(b, isZero, number(0.0), value);
  }
  Value square(Value value) { return mul(value, value); }
  /// 1 / sqrt(value + eps)
  Value inverseRoot(Value value, double eps) {
    return div(number(1.0), math::SqrtOp::create(b, add(value, number(eps))));
  }
};

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_SCALARFORMULA_H
