//===- SumOrder.h - the order of the additions of a sum -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The last bits of a sum of floating-point numbers depend on the order of its additions. That order
// follows from the sum's op alone, its domain and how it reads its operands, so that fusion,
// recomputation and whatever else puts the sum into another kernel keep its bits:
//
// - An op that reads along its last reduction dims sums in lanes along them, which are folded in a
//   fixed tree. As few of the last dims as fill the lanes are one run.
// - Any other op adds one number after the other.
// - A long sum goes through blocks, so that its error grows with the block's length and the number
//   of blocks and not with their product (Higham, The Accuracy of Floating Point Summation). The
//   cut follows from the op's dims, not from the loops of a kernel.
//
// Where several share a run, the lanes are those of as many as the run is worth, and also few long
// sums that read across have them, for there is little else for them to do. Where fewer share a
// kernel's element, one of them takes all lanes, one after the other.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_SCHEDULE_SUMORDER_H
#define MEMOPT_CONVERSION_CORE_SCHEDULE_SUMORDER_H

#include "memopt/Conversion/Core/Schedule/KernelSchedule.h"

namespace mlir::memopt {

/// Which of a reduction's loops runs over lanes, and how many there are.
struct LaneChoice {
  unsigned loop;
  int64_t lanes;           ///< of one of those who share the run
  int64_t sharers = 1;     ///< who have such lanes each
  bool isOneByOne = false; ///< what goes into the lanes is computed as scalars
  int64_t getWidth() const { return lanes * sharers; }
  bool operator==(const LaneChoice &other) const {
    return std::tie(loop, lanes, sharers, isOneByOne) ==
           std::tie(other.loop, other.lanes, other.sharers, other.isOneByOne);
  }
};

/// The lanes of `reduction`, if its order has any, whatever it adds up.
std::optional<LaneChoice> getLanesOfSum(const ElementGraph &graph,
                                        const ElementReduction &reduction,
                                        const ScheduleRules &rules);

/// Variables whose loops cannot run over lanes: one of the sums under `roots` that depend on them
/// is made in lanes of its own, and is long or holds another sum.
llvm::SmallDenseSet<AtomId> collectLoopsWithoutLanes(const ElementGraph &graph,
                                                     ArrayRef<NodeId> roots,
                                                     const ScheduleRules &rules);

/// One loop of a reduction, outermost first.
struct SumLoop {
  unsigned variable; ///< which of the reduction's; its loops follow one another
  int64_t size;
  int64_t stride; ///< what an iteration adds to the variable
  /// Iterations of a block, or rounds of all lanes, whose sum is added to the others'; 0: no
  /// blocks.
  int64_t block = 0;
  bool isInLanes = false;
  bool operator==(const SumLoop &other) const {
    return std::tie(variable, size, stride, block, isInLanes) ==
           std::tie(other.variable, other.size, other.stride, other.block, other.isInLanes);
  }
};

SmallVector<SumLoop> getSumLoops(const ElementReduction &reduction,
                                 std::optional<LaneChoice> lanes);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_SCHEDULE_SUMORDER_H
