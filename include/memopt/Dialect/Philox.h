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

#ifndef MEMOPT_DIALECT_PHILOX_H
#define MEMOPT_DIALECT_PHILOX_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <array>
#include <optional>

namespace mlir::memopt {

/// What tells the random numbers of one op from those of others, as i64.
struct RandomStream {
  Value seed, step;
  int64_t id;
};

/// The words, i32, that belong to the element with number `element`, an i64.
std::array<Value, 4> createRandomWords(ImplicitLocOpBuilder &b, const RandomStream &stream,
                                       Value element);

/// The least first word of what dropout keeps; nothing where it keeps none.
std::optional<uint32_t> getDropoutThreshold(double probability);

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_PHILOX_H
