//===- DynamicCodes.h - numbers in 8 bits -------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022: a code of 8 bits with a
// dynamic exponent. After the sign (signed codes only) come e zeros, a one and r fraction bits: the
// value is 10^-e times the middle of the fraction's bucket, of which [0.1, 1] has 2^r. One more
// code stands for 0 and one for 1.
//
// A byte here is the code's magnitude bits, negated for negative numbers: byte 0 is 0, so state
// that starts from zero is a tensor of zeros. What the bits leave over is 1: byte 1 of unsigned
// codes, byte -128 of signed ones.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_OPTIMIZERS_DYNAMICCODES_H
#define MEMOPT_LIB_TRANSFORMS_OPTIMIZERS_DYNAMICCODES_H

#include "memopt/Transforms/Utils/GenericBuilder.h"

namespace mlir::memopt {

/// The values of all bytes, as f32, by the byte read as an unsigned number.
DenseElementsAttr getDynamicCodes(MLIRContext *context, bool isSigned);

/// The byte of 1.
int8_t getCodeOfOne(bool isSigned);

/// The value of an i8; `table` is the constant tensor of getDynamicCodes.
Value emitDecode(ImplicitLocOpBuilder &b, Value code, Value table);

/// The i8 of the value nearest to an f32 in [-1, 1], or [0, 1] when not signed.
Value emitEncode(ImplicitLocOpBuilder &b, Value x, bool isSigned);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_OPTIMIZERS_DYNAMICCODES_H
