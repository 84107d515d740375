//===- Philox.h - counter-based random numbers in IR ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC'11) spelled out in
// integer arithmetic. memopt-runtime/Philox.h is the definition; the two must agree bit by bit.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_KERNELS_PHILOX_H
#define MEMOPT_DIALECT_KERNELS_PHILOX_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <array>
#include <optional>

namespace mlir::memopt {

/// What tells the random numbers of one op from those of others, as i64.
struct RandomStream {
  Value seed, step, id;
};

/// The words, i32, of counter number `counter`, an i64 or lanes of them: words 4 counter to
/// 4 counter + 3 of the stream.
std::array<Value, 4> createRandomWords(ImplicitLocOpBuilder &b, const RandomStream &stream,
                                       Value counter);

/// One word, i32, of the stream, by its number, an i64 or lanes of them.
Value createRandomWord(ImplicitLocOpBuilder &b, const RandomStream &stream, Value number);

/// The least word of what dropout keeps; nothing where it keeps none.
std::optional<uint32_t> getDropoutThreshold(double probability);

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_KERNELS_PHILOX_H
