//===- ScalarExpansion.h - integers and halves as plain arithmetic -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the processor does not do alike everywhere, or not at all: divisions that would trap, powers
// of integers, and conversions of half-precision numbers, for which compilers otherwise call
// functions of a support library that nobody links.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_MATH_SCALAREXPANSION_H
#define MEMOPT_CONVERSION_CORE_MATH_SCALAREXPANSION_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::memopt {

/// Makes the ops of arith or math op `name` on `operands`, scalars or vectors, with a result of
/// `type`. Null when the op needs no expansion.
///
/// A division by zero gives the dividend and a remainder by zero 0: nobody may look at them, but
/// the program does not die. The quotient of the least integer by -1 wraps around.
Value expandScalar(OpBuilder &builder, Location location, OperationName name, Type type,
                   ValueRange operands);

/// Makes the conversions between halves and wider floats integer arithmetic. `isDevice`: those stay
/// that are instructions of devices, which round to halves and widen f16; f64 goes by way of f32 in
/// either case.
void expandHalves(ModuleOp kernels, bool isDevice);

/// Whether `type` is stored with 16 bits and computed in f32.
bool isHalfPrecision(Type type);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_MATH_SCALAREXPANSION_H
