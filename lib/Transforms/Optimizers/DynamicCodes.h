//===- DynamicCodes.h - numbers in 8 and 4 bits -------------------*- C++ -*-===//
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
// Codes of 4 bits, two to a byte, are those of torchao and of Li et al., Memory Efficient
// Optimizers with 4-bit States, NeurIPS 2023: signed ones have the same form, with three decades;
// unsigned ones are linear and leave 0 out, by which Adam divides: k stands for (k + 1) / 16.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_OPTIMIZERS_DYNAMICCODES_H
#define MEMOPT_LIB_TRANSFORMS_OPTIMIZERS_DYNAMICCODES_H

#include "memopt/Transforms/Utils/GenericBuilder.h"

namespace mlir::memopt {

/// How state is kept: in bytes, or in halves of them.
struct StateCode {
  unsigned bits; ///< 8 or 4
  bool isSigned;

  bool isLinear() const { return bits == 4 && !isSigned; }
};

/// The values of all codes, as f32, by the code read as an unsigned number.
DenseElementsAttr getStateCodes(MLIRContext *context, StateCode code);

/// The code of 1, and a byte that has it once or twice.
int8_t getCodeOfOne(StateCode code);
int8_t getByteOfOne(StateCode code);

/// The value of a code in an i8; `table` is the constant tensor of getStateCodes. With 4 bits
/// `half`, 0 or 1, says which of the byte's.
Value emitDecode(ImplicitLocOpBuilder &b, Value code, Value table, Value half = {});

/// The i8 of the value nearest to an f32 in [-1, 1], or [0, 1] when not signed; with 4 bits these
/// are at their place in the byte, and the others 0.
Value emitEncode(ImplicitLocOpBuilder &b, Value x, StateCode code, Value half = {});

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_OPTIMIZERS_DYNAMICCODES_H
