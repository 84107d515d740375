//===- StageEmitter.h - loops of a scheduled stage ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Emission obeys the schedule: the nests of a row, or the points of a stage that is no loop nest.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_EMISSION_STAGEEMITTER_H
#define MEMOPT_CONVERSION_CORE_EMISSION_STAGEEMITTER_H

#include "memopt/Conversion/Core/Emission/BitEmitter.h"
#include "memopt/Conversion/Core/Emission/ScatterEmitter.h"

namespace mlir::memopt {

class ScanEmitter;

class StageEmitter : protected EmitterPart {
public:
  virtual ~StageEmitter();

  /// The nest's loops from `level` on.
  void emitNest(const KernelNest &nest, size_t level);
  void emitStores(const KernelNest &nest);
  /// A loop whose iterations are lanes.
  virtual SmallVector<Value> emitVectorLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                            BodyFn body) = 0;

protected:
  StageEmitter(NodeEmitter &nodes, const KernelStage &stage);
  /// Iterations [begin, end) of the stage's parallel loop, of which a row has `blocks`.
  void emitTrips(Value begin, Value end, int64_t blocks);

  // What each kind of machine does in its own way.
  /// Iterations of the parallel loop, one after the other.
  virtual void emitParallel(Value begin, Value end, llvm::function_ref<void(Value)> body) = 0;
  /// Lanes of block number `block`, which is full or the last.
  virtual void emitBlockAt(AtomId variable, int64_t lanes, Value block,
                           llvm::function_ref<void()> body) = 0;
  virtual void emitTileLoop(const KernelNest &nest) = 0;
  virtual void emitTileAt(const KernelNest &nest, Value block) = 0;
  virtual void emitByTokens(const KernelScatter &scatter, Value begin, Value end) = 0;
  /// One of the nests of a row.
  virtual void emitNestOfRow(const KernelNest &nest) { emitNest(nest, 0); }
  /// Comes before stores of a nest, all of whose values are there.
  virtual void beginStores(const KernelNest &nest) {}
  /// A store that is not in lanes.
  virtual void emitOnce(llvm::function_ref<void()> store) { store(); }

  const KernelStage &stage;
  ScatterEmitter scatters;

private:
  Value emitIsInPlace();
  void emitIteration(Value iteration, int64_t blocks);
  void emitDistributed(const KernelNest &nest, Value block);
  void emitStore(const KernelStore &store, const KernelNest &nest, Value value);
  void emitPoint(const KernelPoints &points, Value point, llvm::function_ref<void()> body);
  void emitIrregular(Value begin, Value end);
  void emitRowScatter(const KernelScatter &scatter, Value begin, Value end);

  BitEmitter bits;
  std::unique_ptr<ScanEmitter> scans;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_EMISSION_STAGEEMITTER_H
