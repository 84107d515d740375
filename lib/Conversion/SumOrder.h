//===- SumOrder.h - the order of the additions of a sum -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The last bits of a sum of floating-point numbers depend on the order of its additions. On a
// processor that order follows from the sum's op alone, its domain and how it reads its operands,
// so that fusion, recomputation and whatever else puts the sum into another kernel keep its bits:
//
// - An op that reads along its last reduction dims sums in lanes along them, which are folded in a
//   fixed tree. As few of the last dims as make `kLaneRun` numbers are one run.
// - Any other op adds one number after the other.
// - A long sum goes through blocks, so that its error grows with the block's length and the number
//   of blocks and not with their product (Higham, The Accuracy of Floating Point Summation). The
//   cut follows from the op's dims, not from the loops of a kernel.
//
// Threads of a device share sums as the loops of a kernel allow; there the order follows from the
// kernel.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_SUMORDER_H
#define MEMOPT_LIB_CONVERSION_SUMORDER_H

#include "KernelSchedule.h"

namespace mlir::memopt {

/// The last reduction dims of `op` that are one run of lanes, dims of size 1 left out; 0: none.
unsigned countLaneDims(linalg::LinalgOp op);

/// The lanes of `reduction` on a processor, if its order has any, whatever it adds up.
std::optional<LaneChoice> getOrderedLanes(const ElementGraph &graph,
                                          const ElementReduction &reduction,
                                          const ScheduleTarget &target);

/// Numbers of a sum along lanes that may also be made in the lanes of a loop around it, each by
/// itself and then folded.
constexpr int64_t kFoldedSum = 16;

/// Variables whose loops cannot run over lanes: one of the sums under `roots` that depend on them
/// is made in lanes of its own, and is long or holds another sum.
llvm::SmallDenseSet<AtomId> collectLoopsWithoutLanes(const ElementGraph &graph,
                                                     ArrayRef<NodeId> roots,
                                                     const ScheduleTarget &target);

/// One loop of a reduction, outermost first.
struct SumLoop {
  unsigned variable; ///< which of the reduction's; its loops follow one another
  int64_t size;
  int64_t stride;    ///< what an iteration adds to the variable
  int64_t block = 0; ///< iterations of a block, whose sum is added to the others'; 0: no blocks
  bool isInLanes = false;
  bool operator==(const SumLoop &other) const {
    return std::tie(variable, size, stride, block, isInLanes) ==
           std::tie(other.variable, other.size, other.stride, other.block, other.isInLanes);
  }
};

SmallVector<SumLoop> getSumLoops(const ElementGraph &graph, const ElementReduction &reduction,
                                 std::optional<LaneChoice> lanes, const ScheduleTarget &target);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_SUMORDER_H
