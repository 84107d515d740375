//===- IntegerRanges.h - which integers a tensor may hold -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bounds of the elements of integer tensors: of constants and counters by looking at them, of
// inputs by the range that the runtime holds each batch to (`memopt.valid_range`), of arithmetic
// and casts by upstream's rules for scalars (InferIntRangeInterface), which hold for each element.
// What comes from variables, for checkpoints have any, or from real numbers is as wide as its type.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_ANALYSIS_INTEGERRANGES_H
#define MEMOPT_ANALYSIS_INTEGERRANGES_H

#include "memopt/Dialect/Memopt.h"

#include "llvm/ADT/DenseMap.h"

namespace mlir::memopt {

/// Signed, inclusive; booleans are 0 and 1. `other` is one more value, such as the class that a
/// loss ignores.
struct IntegerRange {
  int64_t min, max;
  std::optional<int64_t> other;

  /// Bounds of all, `other` included.
  IntegerRange getHull() const;
  bool isWithin(int64_t low, int64_t high) const { return min >= low && max <= high; }
};

/// Answers on demand, each value once. The IR may grow meanwhile, but values already asked about
/// must not change.
class IntegerRanges {
public:
  /// Of the elements of `value`, an integer or a tensor of integers.
  IntegerRange get(Value value);

private:
  IntegerRange compute(Value value);
  IntegerRange infer(OpResult result);
  IntegerRange getRangeOfParts(ViewOpInterface view);

  llvm::DenseMap<Value, IntegerRange> known;
};

/// The divisor of a division of tensors of integers, which must not be zero; null of other ops.
OpOperand *getIntegerDivisor(Operation *op);

} // namespace mlir::memopt

#endif // MEMOPT_ANALYSIS_INTEGERRANGES_H
