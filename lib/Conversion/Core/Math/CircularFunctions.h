//===- CircularFunctions.h - sine and cosine as arithmetic ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of f32, in f64 and without tables or branches, so that vectors and devices compute them alike:
// libdevice's keep an array on the stack for large arguments. The argument less the next multiple
// of pi / 2 comes from two products below 2^28, and beyond from the bits of 2 / pi that the
// argument's exponent leaves of weight (Payne and Hanek, Radian reduction for trigonometric
// functions, SIGNUM Newsletter 18, 1983). Its sine or cosine is a Taylor polynomial, in error by
// 1e-11 at most: results are those of exact numbers, rounded, but for a few halves.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_CORE_MATH_CIRCULARFUNCTIONS_H
#define MEMOPT_LIB_CONVERSION_CORE_MATH_CIRCULARFUNCTIONS_H

#include "mlir/IR/Builders.h"

namespace mlir::memopt {

/// The sine or cosine of `x`, an f32 or a vector of them.
Value expandSine(OpBuilder &builder, Location location, Value x, bool isCosine);

/// The same of an f64 or a vector of them (WideCircularFunctions.cpp).
Value expandWideSine(OpBuilder &builder, Location location, Value x, bool isCosine);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_CORE_MATH_CIRCULARFUNCTIONS_H
