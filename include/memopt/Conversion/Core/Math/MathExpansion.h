//===- MathExpansion.h - elementary functions as arithmetic -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// exp, log, tanh, erf and their kin on f32 as straight-line arithmetic, which vectorizes by itself.
// Errors against float64, in units in the last place: exp 0.94, log 0.8, tanh 0.92, erf 0.93, sin
// and cos 0.5 (CircularFunctions.h). Other types and functions call libm, lane by lane.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_MATH_MATHEXPANSION_H
#define MEMOPT_CONVERSION_CORE_MATH_MATHEXPANSION_H

#include "mlir/IR/Builders.h"

namespace mlir::memopt {

/// Makes the ops of math op `name` on `operands`, scalars or vectors, all of `type`. Null when the
/// op needs no expansion, because the conversion to LLVM knows it.
Value expandMath(OpBuilder &builder, Location location, OperationName name, Type type,
                 ValueRange operands);

/// Calls `function` of libm, named without the letter of its type, for every lane of operands of
/// `type`.
Value callLibm(OpBuilder &builder, Location location, StringRef function, Type type,
               ValueRange operands);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_MATH_MATHEXPANSION_H
