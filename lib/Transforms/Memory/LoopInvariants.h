//===- LoopInvariants.h - what leaves a loop --------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a loop makes anew in each iteration and a single instruction in front of it can make:
// results of kernels, and the packed weights that library calls make for themselves.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_MEMORY_LOOPINVARIANTS_H
#define MEMOPT_LIB_TRANSFORMS_MEMORY_LOOPINVARIANTS_H

#include "memopt/Analysis/CostModel.h"

namespace mlir::memopt {

/// Instructions of a loop that compute the same (in forward and backward, say), or that read the
/// same packed weights.
struct Invariant {
  Operation *loop; ///< a `repeat`, or of packed weights a `scan`
  size_t number;   ///< in the order of the program
  SmallVector<Operation *, 2> instructions{};
  PackWeightsAttr packing{}; ///< null where the instructions are kernels, which leave themselves
  int64_t bytes = 0;         ///< of what lives through the loop then
  int64_t savedNanoseconds = 0;

  void addSavings(int64_t nanoseconds, int64_t times) {
    savedNanoseconds = addCounts(savedNanoseconds, multiplyCounts({nanoseconds, times}));
  }
};

/// Kernels that read nothing that the loop changes.
void collectKernels(RepeatOp loop, const CostModel &costs, SmallVectorImpl<Invariant> &invariants);

/// Weights of convolutions and of products of few rows that the loop, a `repeat` or a `scan`, does not
/// change and the target's library packs in each run.
void collectPackings(InstructionOpInterface loop, const CostModel &costs,
                     SmallVectorImpl<Invariant> &invariants);

/// Makes it in front of the loop. Fails, with a diagnostic, where the target has no such call.
LogicalResult hoist(const Invariant &invariant);

/// Instructions that pack weights as an earlier one of the same phase does, and that one.
SmallVector<std::pair<LibraryCallOp, LibraryCallOp>> findSharedPackings(Block &body);

/// Weights that several loops of a phase read packed alike are packed in front of the first alone, and
/// live until the last. Returns how many instructions are gone.
int64_t sharePackings(Block &body);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_MEMORY_LOOPINVARIANTS_H
