//===- LoopEmitter.h - stages as loops of a processor ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_LOOPS_LOOPEMITTER_H
#define MEMOPT_CONVERSION_LOOPS_LOOPEMITTER_H

#include "memopt/Conversion/Core/Emission/StageEmitter.h"
#include "memopt/Conversion/Loops/LoopSchedule.h"

namespace mlir::memopt {

class LoopSums;
class LoopTiles;

class LoopEmitter : public StageEmitter {
public:
  LoopEmitter(NodeEmitter &nodes, const KernelStage &stage, const LoopScheduleRules &rules);
  ~LoopEmitter() override;

  /// Emits iterations [begin, end) of the stage's parallel loop at the builder's insertion point.
  void emit(Value begin, Value end);
  SmallVector<Value> emitVectorLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                    BodyFn body) override;

private:
  void emitParallel(Value begin, Value end, llvm::function_ref<void(Value)> body) override;
  void emitBlockAt(AtomId variable, int64_t lanes, Value block,
                   llvm::function_ref<void()> body) override;
  void emitTileLoop(const KernelNest &nest) override;
  void emitTileAt(const KernelNest &nest, Value block) override;
  void emitByTokens(const KernelScatter &scatter, Value begin, Value end) override;

  std::unique_ptr<LoopSums> sums;
  std::unique_ptr<LoopTiles> tiles;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_LOOPS_LOOPEMITTER_H
