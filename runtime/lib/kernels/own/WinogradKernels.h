//===- WinogradKernels.h - transforms of F(2 x 2, 3 x 3) ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin and Gray, "Fast Algorithms for Convolutional
// Neural Networks", arXiv:1509.09308, section 4.1), compiled for each instruction set as
// BlockKernels.h says. A tile of 4 x 4 pixels and a filter of 3 x 3 taps become 16 points each; the
// points of 2 x 2 results are their products, summed over channels, 16 multiplications where plain
// sums have 36. All matrices of the transforms have elements 0, 1, -1 and 1/2.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_OWN_WINOGRADKERNELS_H
#define MEMOPT_RUNTIME_LIB_KERNELS_OWN_WINOGRADKERNELS_H

#include "memopt-runtime/kernels/own/BlockKernels.h"

namespace memopt::libraries {

constexpr int64_t winogradPoints = 16;
constexpr int64_t winogradTaps = 9;

/// Where the points of a tile go: channel c of point p to p * pointStep + c / run * runStep + c % run
/// elements. A run is whole vectors.
struct PointLayout {
  int64_t pointStep, run, runStep;
};

/// Pixels are channels that lie together; tables of pixels are row-major.
struct WinogradKernels {
  /// B^T d B of 4 x 4 pixels.
  void (*transformValues)(const float *const *pixels, int64_t channels, float *points,
                          const PointLayout &layout);

  /// A g A^T of 2 x 2 pixels: what the points of the gradient of a tile's results are.
  void (*transformGradients)(const float *const *pixels, int64_t channels, float *points,
                             const PointLayout &layout);

  /// G g G^T of filters whose channels lie in panels of columns: `steps` times 9 taps, each a panel
  /// wide. Points go to points + p * pointStep, `steps` panels each. `flips`: of the filters turned by
  /// 180 degrees.
  void (*transformFilters)(const float *taps, int64_t steps, float *points, int64_t pointStep,
                           bool flips);

  /// A^T m A of the sums at 16 points, with a bias unless that is null, and its relu with `relu`
  /// (NaN stays), to 2 x 2 pixels.
  void (*transformSums)(const float *points, int64_t pointStep, int64_t channels, const float *bias,
                        bool relu, float *const *pixels);

  /// G^T m G of the sums at 16 points: the gradient of 9 taps, each with `channels` elements, `tapStep`
  /// elements apart.
  void (*transformFilterSums)(const float *points, int64_t pointStep, int64_t channels, float *taps,
                              int64_t tapStep);
};

/// The kernels for the processor at hand, or for a given lesser set.
const WinogradKernels &winogradKernels(InstructionSet set = instructionSet());

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_OWN_WINOGRADKERNELS_H
