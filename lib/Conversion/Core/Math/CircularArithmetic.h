//===- CircularArithmetic.h - what sines are computed with ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Doubles and words of 64 bits, one for each lane of the argument: both expansions compute with
// these (CircularFunctions.cpp, WideCircularFunctions.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_CORE_MATH_CIRCULARARITHMETIC_H
#define MEMOPT_LIB_CONVERSION_CORE_MATH_CIRCULARARITHMETIC_H

#include "memopt/Dialect/Formula.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::memopt {

class CircularArithmetic {
public:
  CircularArithmetic(OpBuilder &builder, Location location, Value x)
      : b(location, builder), x(x), wide{b, like(b.getF64Type())}, words{b, like(b.getI64Type())} {}

protected:
  /// The type with this element for each lane of the argument.
  Type like(Type element) {
    auto vector = dyn_cast<VectorType>(x.getType());
    return vector ? Type(vector.clone(element)) : element;
  }
  Value hasBit(Value value, int64_t bit) {
    return words.equal(words.both(value, words.integer(bit)), words.integer(bit));
  }

  ImplicitLocOpBuilder b;
  Value x;
  Formula wide, words; ///< doubles, and integers of 64 bits
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_CORE_MATH_CIRCULARARITHMETIC_H
