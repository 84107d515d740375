//===- LoopSchedule.h - rules of schedules for processors --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_LOOPS_LOOPSCHEDULE_H
#define MEMOPT_CONVERSION_LOOPS_LOOPSCHEDULE_H

#include "memopt/Conversion/Core/Schedule/KernelSchedule.h"

namespace mlir::memopt {

class LoopScheduleRules : public ScheduleRules {
public:
  /// `blockBytes`: of one block of lanes, several machine vectors so that their latencies overlap.
  LoopScheduleRules(int64_t blockBytes, bool isScalar);

  int64_t fitLanes(int64_t size, int64_t bytes, int64_t together) const override;
  bool fitTiles(const ElementGraph &graph, KernelNest &tiled, int64_t rows,
                int64_t columns) const override;
  double addOverheads(const ElementGraph &graph, const KernelStage &stage) const override;
  std::unique_ptr<ScheduleRules> getRulesOfWideLanes() const override;

private:
  int64_t blockBytes;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_LOOPS_LOOPSCHEDULE_H
