//===- LoopSums.h - sums of processors ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_LOOPS_LOOPSUMS_H
#define MEMOPT_LIB_CONVERSION_LOOPS_LOOPSUMS_H

#include "memopt/Conversion/Core/Emission/SumEmitter.h"

namespace mlir::memopt {

/// Sums in vectors: lanes are those of one vector, or of a block of several.
class LoopSums : public SumEmitter {
public:
  using SumEmitter::SumEmitter;

private:
  void emitWithLanes(ArrayRef<unsigned> group, const LaneChoice &choice, Scope *lanesOf) override;
  SmallVector<Value> emitRound(const GroupLoops &all, Value first, int64_t count,
                               ValueRange carried) override;
  SmallVector<Value> emitOneByOne(const GroupLoops &all, Value first, int64_t lanes,
                                  ValueRange carried);
  void emitFolded(ArrayRef<unsigned> group, Scope *lanesOf);
  Value fold(const Combiner &combiner, SmallVector<Value> lanes);
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_LOOPS_LOOPSUMS_H
