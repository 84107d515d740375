//===- ThreadEmitter.h - stages on the threads of a device -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On a device an iteration of a stage's parallel loop belongs to a group of threads: one, a part of
// a warp, a warp, or a block. What runs over lanes on a processor runs over threads times lanes of
// a thread; everything outside of lanes is computed by every thread of the group, from the same
// addresses. So threads of a group part ways only inside lanes, where nothing is exchanged: sums
// over lanes, tiles and barriers stand outside, where the group is together.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_THREADEMITTER_H
#define MEMOPT_CONVERSION_THREADS_THREADEMITTER_H

#include "memopt/Conversion/Core/Emission/StageEmitter.h"
#include "memopt/Conversion/Threads/DeviceOps.h"
#include "memopt/Conversion/Threads/ThreadSchedule.h"

#include "llvm/ADT/BitVector.h"

namespace mlir::memopt {

class ThreadGroup;
class ThreadSums;
class ThreadTiles;
class WarpScatter;

class ThreadEmitter : public StageEmitter {
public:
  /// `overOperand`: the results that lie over an operand.
  ThreadEmitter(NodeEmitter &nodes, const DeviceOps &ops, const KernelStage &stage,
                const ThreadShape &shape, const ThreadScheduleRules &rules,
                const llvm::BitVector &overOperand);
  ~ThreadEmitter() override;

  /// Emits the iterations that a thread takes: one for each group of the grid in turn.
  void emit();
  /// Every thread of the group goes its own way through its lanes.
  SmallVector<Value> emitVectorLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                    BodyFn body) override;

private:
  void emitParallel(Value begin, Value end, llvm::function_ref<void(Value)> body) override;
  void emitBlockAt(AtomId variable, int64_t lanes, Value block,
                   llvm::function_ref<void()> body) override;
  void emitTileLoop(const KernelNest &nest) override;
  void emitTileAt(const KernelNest &nest, Value block) override;
  void emitByTokens(const KernelScatter &scatter, Value begin, Value end) override;
  void emitNestOfRow(const KernelNest &nest) override;
  void beginStores(const KernelNest &nest) override;
  void emitOnce(llvm::function_ref<void()> store) override;
  bool isOverOperand(const KernelNest &nest);

  const llvm::BitVector &overOperand;
  std::unique_ptr<ThreadGroup> threads;
  std::unique_ptr<ThreadSums> sums;
  std::unique_ptr<ThreadTiles> tiles;
  std::unique_ptr<WarpScatter> warpScatter;
  Value gridStep; ///< groups of the grid
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_THREADEMITTER_H
