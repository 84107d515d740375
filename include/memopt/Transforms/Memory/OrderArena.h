//===- OrderArena.h - the arena that an order of instructions leaves -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_MEMORY_ORDERARENA_H
#define MEMOPT_TRANSFORMS_MEMORY_ORDERARENA_H

#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Planning/Problem/PlanProblem.h"

namespace mlir::memopt {

/// A buffer as one of an arena problem, free to lie anywhere but for variables.
::memopt::planning::ArenaBuffer getArenaBuffer(const Buffer &buffer);

/// The arena problem of a step under any order of the instructions of one block. A problem of
/// order knows the bodies of these instructions by their peaks alone, and what surrounds the block
/// as residents; here both are spelled out, so that the height is the one that plan-memory finds.
class OrderArena {
public:
  /// `block` is that of a step or of a loop; instruction i is op i + 1 of the problem of order. The
  /// arena is that of the whole step, or of the time alone in which the block runs.
  OrderArena(const KernelGraph &graph, Block &block, ArrayRef<Operation *> instructions,
             bool isWhole);

  /// What plan-memory solves once `order` has been applied. Fails where `order` is no plan.
  llvm::Expected<::memopt::planning::ArenaProblem>
  build(const ::memopt::planning::PlanProblem &problem, ArrayRef<int32_t> order, Space space) const;

  /// Bytes of `space` that the bodies of an instruction need at most at a time, beside what lives
  /// outside of them: of buffers that each fill whole units of their alignment, of which
  /// `alignment` becomes the largest.
  int64_t getBytesOfBodies(size_t instruction, Space space, int64_t &alignment) const;

  /// When the actions of an order run.
  struct Times {
    SmallVector<int64_t> begins; ///< by position and behind the last: copies for it come first
    SmallVector<int64_t> runs;   ///< by position
    /// The buffers of scans' carried values, each with the time of its copy, or -1 without one.
    SmallVector<std::pair<size_t, int64_t>> carried;
  };

private:
  /// Buffers by space; they name each other by their numbers therein.
  using Arenas = std::array<::memopt::planning::ArenaProblem, kNumSpaces>;
  struct Instruction {
    int64_t span = 1;      ///< times that it takes, its bodies' included
    size_t numWorkspaces;  ///< of its own
    size_t numCarried = 0; ///< of a scan: so many of its first results lie where they begin
    Arenas bodies;         ///< with times since its own
  };

  void addBuffers(const KernelGraph &graph, Block &block,
                  const DenseMap<Operation *, unsigned> &numbers, bool isWhole);
  ::memopt::planning::PlanProblem
  getInstructionsAlone(::memopt::planning::PlanProblem problem) const;
  const Instruction *findInstruction(::memopt::planning::PlanAction action) const;
  Times getTimes(const ::memopt::planning::PlanProblem &problem, ArrayRef<int32_t> order,
                 const ::memopt::planning::ArenaProblem &byPosition, Space space) const;

  int64_t begin, end; ///< times of what stands before the block, and behind its last instruction
  Arenas outside;
  SmallVector<Instruction, 0> instructions;
};

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_MEMORY_ORDERARENA_H
