//===- RowKernels.h - the row loops of attention ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Work on rows of scores, compiled for each instruction set as BlockKernels.h says. Counts are in
// elements and multiples of `columnsPerPanel`: rows are padded to whole panels.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_OWN_ROWKERNELS_H
#define MEMOPT_RUNTIME_LIB_KERNELS_OWN_ROWKERNELS_H

#include "memopt-runtime/kernels/own/BlockKernels.h"

namespace memopt::libraries {

/// Where the random words of a row of elements come from (Philox.h).
struct RandomRow {
  int64_t element, step, id, seed;
};

template <typename T> struct RowKernels {
  /// The largest element; NaN if one is NaN.
  T (*maximum)(const T *row, int64_t count);
  /// row = exp(row - shift); the sum of the new row, in an order fixed by count. exp is within 1
  /// ulp of the rounded value (float) for arguments down to -87, below which it is 0.
  T (*exponentiate)(T *row, int64_t count, T shift);
  void (*scale)(T *row, int64_t count, T factor);
  /// gradient = probability * (gradient - delta): the gradient of softmax.
  void (*softmaxGradient)(T *gradient, const T *probability, int64_t count, T delta);
  /// row[i] = word of element i < threshold ? 0 : row[i] * factor. For any count; elements up to
  /// the next multiple of 16 are overwritten.
  void (*dropout)(T *row, int64_t count, const RandomRow &random, uint64_t threshold, T factor);
  /// softmaxGradient of the gradient after dropout, then dropout of the probabilities.
  void (*dropoutGradient)(T *gradient, T *probability, int64_t count, T delta,
                          const RandomRow &random, uint64_t threshold, T factor);
};

/// The kernels for the processor at hand, or for a given lesser set. Instances: float and double.
template <typename T> const RowKernels<T> &rowKernels(InstructionSet set = instructionSet());

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_OWN_ROWKERNELS_H
