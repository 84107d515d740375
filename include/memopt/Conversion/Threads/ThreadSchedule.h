//===- ThreadSchedule.h - rules of schedules for GPUs; threads of stages -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_THREADSCHEDULE_H
#define MEMOPT_CONVERSION_THREADS_THREADSCHEDULE_H

#include "memopt/Conversion/Core/Schedule/KernelSchedule.h"
#include "memopt/Conversion/Threads/DeviceMachine.h"

namespace mlir::memopt {

/// Threads of a stage: those that share an iteration of the parallel loop (a power of two: within a
/// warp, or a whole block), and those of a block.
struct ThreadShape {
  int64_t group = 1, block = 1;
  int64_t getGroupsOfBlock() const { return block / group; }
};

class ThreadScheduleRules : public ScheduleRules {
public:
  explicit ThreadScheduleRules(const DeviceMachine &machine, bool isScalar = false);
  const DeviceMachine &getMachine() const { return machine; }

  /// Lanes are those of one thread, which divide the loop.
  int64_t fitLanes(int64_t size, int64_t bytes, int64_t together) const override;
  /// Threads that share vectors: within a warp, or a whole block.
  int64_t countSharers(int64_t vectors) const override;
  bool fitTiles(const ElementGraph &graph, KernelNest &tiled, int64_t rows,
                int64_t columns) const override;
  bool goesByTokens(const ElementGraph &graph, const KernelScatter &scatter) const override;
  double addOverheads(const ElementGraph &graph, const KernelStage &stage) const override;
  std::unique_ptr<ScheduleRules> getRulesOfWideLanes() const override;

  ThreadShape chooseThreads(const ElementGraph &graph, const KernelStage &stage) const;

private:
  int64_t countGroupThreads(const ElementGraph &graph, const KernelStage &stage) const;

  DeviceMachine machine;
};

/// Like those of KernelSchedule.h, where a group of threads takes a part.
int64_t countBlocks(const IndexTable &table, const KernelStage &stage, const ThreadShape &shape);
int64_t countTrips(const IndexTable &table, const KernelStage &stage, const ThreadShape &shape);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_THREADSCHEDULE_H
