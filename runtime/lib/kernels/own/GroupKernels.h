//===- GroupKernels.h - the row loops of grouped convolutions -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums over windows of packed rows, compiled for each instruction set as BlockKernels.h says. A
// packed row has one vector of channels for each column; channels never meet, so that a window is
// summed lane by lane.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_OWN_GROUPKERNELS_H
#define MEMOPT_RUNTIME_LIB_KERNELS_OWN_GROUPKERNELS_H

#include "memopt-runtime/kernels/own/BlockKernels.h"

namespace memopt::libraries {

/// The most channels of a vector on any processor.
constexpr int64_t maxVectorLanes = 16;

/// The packed rows that a window reads, `taps` vectors of each for each column. Where `group` is
/// not 1 but 2, 4 or 8 (a divisor of the lanes), lane l of a sum meets all channels of its group:
/// those of lanes l - l % group to l - l % group + group - 1. Steps count elements.
template <typename T> struct Window {
  const T *const *values; ///< of each row: what its first tap meets at the first column
  int64_t rows, taps, columns, group;
  int64_t tapStep;    ///< from what a tap meets to what the next one does
  int64_t columnStep; ///< from what a column meets to what the next one does
};

/// result = start + sum over rows, taps and members of groups of values * weights, for each column.
template <typename T> struct Filtering {
  Window<T> window;
  const T *const *weights;        ///< of each row: those of its first tap
  int64_t weightStep, memberStep; ///< from a tap's weights to the next one's, and between members
  const T *start;
  T *result;
  int64_t resultStep; ///< from column to column
};

/// sums += sum over columns of values * gradient, for each row, tap and member of groups.
template <typename T> struct Correlation {
  Window<T> window;
  T *const *sums;     ///< of each row: that of its first tap, a vector before the next one's
  int64_t memberStep; ///< from the sum of a member of a group to the next one's
  const T *gradient;
  int64_t gradientStep; ///< from column to column
};

/// Kernels that read `Stored` elements from memory and compute in `Computed`.
template <typename Stored, typename Computed> struct GroupKernels {
  const char *name;
  int64_t lanes; ///< channels of a vector

  /// Packs `channels` channels of each of `columns` columns from channels-last `source` into
  /// vectors, those of one vector of channels `vectorStep` elements behind those of the one before.
  /// Lanes that stand for no channel are zero.
  void (*pack)(Computed *packed, int64_t vectorStep, const Stored *source, int64_t columns,
               int64_t columnStep, int64_t channels);

  void (*convolve)(const Filtering<Computed> &filtering);
  void (*correlate)(const Correlation<Computed> &correlation);

  /// The contrary of pack, for one vector: rounds to `Stored`.
  void (*unpack)(Stored *target, const Computed *packed, int64_t columns, int64_t columnStep,
                 int64_t channels);
  /// The same without rounding 16-bit numbers.
  void (*unpackWide)(Wide<Stored> *target, const Computed *packed, int64_t columns,
                     int64_t columnStep, int64_t channels);
};

/// The kernels for the processor at hand, or for a given lesser set. Instances: <double, double>,
/// and <S, float> for S = float, BFloat16 and Float16.
template <typename Stored, typename Computed>
const GroupKernels<Stored, Computed> &groupKernels(InstructionSet set = instructionSet());

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_OWN_GROUPKERNELS_H
