//===- BlockKernels.h - the inner loops of our own kernels --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The few loops that need vector instructions, compiled once for each instruction set and chosen
// when the process starts. A matrix product multiplies panels, as in Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008: a panel holds `width`
// rows of A (or columns of B) with all their depth, element (lane, d) of panel p at
//
//   p * panelDepth * width + d * width + lane
//
// Lanes of the last panel that stand for no row hold anything: they only reach rows and columns of
// the result that nobody reads.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_KERNELS_OWN_BLOCKKERNELS_H
#define MEMOPT_RUNTIME_KERNELS_OWN_BLOCKKERNELS_H

#include "memopt-runtime/descriptors/ElementTypes.h"

namespace memopt::libraries {

/// Where packing writes: panels of `width` lanes and `depth` steps. Fields count elements.
template <typename Computed> struct Panels {
  Computed *data;
  int64_t width;
  int64_t depth;
};

/// Most rows and columns of a tile of attention scores: whole panels of columns on every processor.
constexpr int64_t attentionTile = 128;
/// Its rows begin so many elements apart: whole panels of rows, either way up, and cache lines.
constexpr int64_t attentionStride = 144;

/// Kernels that read `Stored` elements from memory and compute in `Computed`.
template <typename Stored, typename Computed> struct BlockKernels {
  const char *name;
  int64_t rowsPerPanel;    ///< width of the panels of the left operand
  int64_t columnsPerPanel; ///< width of the panels of the right operand
  int64_t mostSteps; ///< that a panel of the right operand should have, to stay in a first cache

  /// Packs lanes [0, lanes), lane i read from lane[i][d * depthStride] for d in [0, depth), into
  /// depth steps [depthBegin, depthBegin + depth). A null pointer stands for zeros.
  void (*packLanes)(Panels<Computed> panels, int64_t depthBegin, const Stored *const *lane,
                    int64_t lanes, int64_t depth, int64_t depthStride);

  /// Packs depth steps [0, depth), step d read from step[d][i * laneStride] for lane laneBegin + i,
  /// i in [0, lanes). A null pointer stands for zeros.
  void (*packSteps)(Panels<Computed> panels, int64_t laneBegin, const Stored *const *step,
                    int64_t depth, int64_t lanes, int64_t laneStride);

  /// target[i][j] = source[i][j] * factor for i in [0, rows) and j in [0, count): rows targetStride
  /// and sourceStride apart, elements of the source `step` apart.
  void (*copyRows)(Computed *target, int64_t targetStride, const Stored *source,
                   int64_t sourceStride, int64_t step, int64_t rows, int64_t count,
                   Computed factor);

  /// The sum of a[j * aStep] * b[j * bStep], in an order that follows from count alone.
  Computed (*dot)(const Stored *a, int64_t aStep, const Stored *b, int64_t bStep, int64_t count);

  /// c (rows of cStride elements) = a * b, or += with `accumulate`: `rowPanels` panels of a, row r
  /// and depth d of panel p at p * aPanel + r * aRow + d * aDepth; `columnPanels` panels of b, step
  /// d of panel p at p * bPanel + d * bDepth, its lanes contiguous. Sums run in order of depth.
  /// What is stored is the sum of that and `bias`, a number for each column, if it is not null.
  /// Fast for packed a (aRow 1, aDepth rowsPerPanel) and for tiles of attention, whose rows are
  /// attentionStride apart, either way up.
  void (*multiply)(int64_t rowPanels, int64_t columnPanels, int64_t depth, const Computed *a,
                   int64_t aPanel, int64_t aRow, int64_t aDepth, const Computed *b, int64_t bPanel,
                   int64_t bDepth, Computed *c, int64_t cStride, bool accumulate,
                   const Computed *bias);
};

/// What the loops are compiled for; a later one needs all features of those before it.
enum class InstructionSet { Baseline, Avx2, Avx512 };

/// $MEMOPT_MAX_ISA says "avx2": what AVX-512 brings stays unused, as on a processor without it.
bool isHeldToAvx2();
/// Whether $MEMOPT_MAX_ISA is unset, empty or "avx2".
bool isInstructionLimitKnown();

/// The best one that the processor has within $MEMOPT_MAX_ISA.
InstructionSet instructionSet();

/// The kernels for the processor at hand, or for a given lesser set. Instances: <double, double>,
/// and <S, float> and <S, double> for S = float, BFloat16 and Float16.
template <typename Stored, typename Computed>
const BlockKernels<Stored, Computed> &blockKernels(InstructionSet set = instructionSet());

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_KERNELS_OWN_BLOCKKERNELS_H
