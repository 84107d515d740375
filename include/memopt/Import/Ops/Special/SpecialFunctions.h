//===- SpecialFunctions.h - what the files of special functions share -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Special functions are computed in f64 whatever the type, so that a series good to the last digits
// there is exact for all others; speed does not matter. Each brings its own derivative.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_OPS_SPECIAL_SPECIALFUNCTIONS_H
#define MEMOPT_IMPORT_OPS_SPECIAL_SPECIALFUNCTIONS_H

#include "memopt/Import/Graph/Formula.h"

#include <limits>

namespace memopt::pt2 {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kPi = 3.14159265358979323846;

/// A function of the tensor `parameter` in f64, which becomes the operator's result.
llvm::Error mapDoubles(OpContext &op, llvm::function_ref<Element(Element)> formula,
                       llvm::StringRef parameter = "self");

/// The function and its derivative.
inline Element with(Element value, Element x, Element slope) {
  return withSlopes(value, {{x, slope}});
}

/// log gamma of positive numbers.
Element positiveLogGamma(Element x);

/// Horner's scheme, the highest power first.
Element polynomial(Element x, llvm::ArrayRef<double> coefficients);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_OPS_SPECIAL_SPECIALFUNCTIONS_H
