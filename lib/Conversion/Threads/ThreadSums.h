//===- ThreadSums.h - sums that threads of a device share --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_THREADSUMS_H
#define MEMOPT_LIB_CONVERSION_THREADS_THREADSUMS_H

#include "ThreadGroup.h"
#include "memopt/Conversion/Core/Emission/SumEmitter.h"

namespace mlir::memopt {

class ThreadSums : public SumEmitter {
public:
  ThreadSums(NodeEmitter &nodes, const KernelStage &stage, const ScheduleRules &rules,
             ThreadGroup &threads)
      : SumEmitter(nodes, stage, rules), threads(threads) {}

private:
  void emitWithLanes(ArrayRef<unsigned> group, const LaneChoice &choice, Scope *lanesOf) override;
  SmallVector<Value> emitRound(const GroupLoops &all, Value first, int64_t count,
                               ValueRange carried) override;
  void combineSharers(ArrayRef<const Combiner *> combiners, MutableArrayRef<Value> values,
                      int64_t count) override;
  SmallVector<Value> emitThreadsOneByOne(const GroupLoops &all, Value first, int64_t count,
                                         ValueRange carried);
  Value getLaneOfThread(const LaneChoice &choice);
  void emitLaneByLane(ArrayRef<unsigned> group, const LaneChoice &choice, Scope *lanesOf);
  Value combineByShuffles(const Combiner &combiner, Value value, int64_t count);

  ThreadGroup &threads;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_THREADSUMS_H
