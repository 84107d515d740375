//===- SegmentTiler.h - a segment written out tile by tile -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_BATCHES_SEGMENTTILER_H
#define MEMOPT_LIB_TRANSFORMS_BATCHES_SEGMENTTILER_H

#include "TokenSegment.h"

#include "mlir/IR/IRMapping.h"

#include "llvm/ADT/MapVector.h"

namespace mlir::memopt {

struct Rows {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// Runs a segment part by part of its tokens, and lets go of the segment's own ops. Sums over tokens
/// are added tile by tile, in the order of the tokens, whatever the parts are.
class SegmentTiler {
public:
  explicit SegmentTiler(const TokenSegment &segment)
      : segment(segment), builder(segment.getOps().back()) {}

  /// Writes the ops out for each of `parts` parts; 0: one for each tile.
  void writeOut(int64_t parts);
  /// At most `parts` parts, in a loop; tokens that are too few for another turn are written out.
  /// All ops are of one phase.
  void runInLoop(int64_t parts);

private:
  void prepare();
  void buildPart(ArrayRef<Rows> tiles);

  /// What leaves a loop, by the segment's own results.
  struct LoopResults {
    SmallVector<OpResult> summed, stacked;
  };
  /// The first `count` times `tiles`, which are the first ones.
  void buildLoop(int64_t count, ArrayRef<Rows> tiles);
  SmallVector<Value> stackSlices(ArrayRef<Value> whole, int64_t count, int64_t size);
  LoopResults collectResults() const;
  Value startSum(OpResult result);
  void fillTurn(ScanOp open, ArrayRef<Value> uniform, const LoopResults &results,
                ArrayRef<Rows> tiles);

  void build(Operation *op, ArrayRef<Rows> tiles);
  void buildPointwise(Operation *op, Rows part);
  void buildByTile(Operation *op, ArrayRef<Rows> tiles);
  Operation *clone(Operation *op, IRMapping &values, int64_t tokens);
  Value getOperand(Value value, Rows part);
  Value cut(Value whole, unsigned dims, Rows rows, RankedTensorType type);
  Value join(Value original, ArrayRef<Value> parts);
  Value shape(Value whole, OpResult original);
  Type getSumType(OpResult result) const;
  void addUp(OpResult result, Value part);
  Value readOldSum(OpResult result);
  AccumulateOp findAccumulation(OpResult result) const;
  bool isNeededOutside(OpResult result) const;
  void finish();
  void note(Operation *op, Operation *like);

  const TokenSegment &segment;
  OpBuilder builder;                          ///< in front of the segment's last op
  IRMapping values;                           ///< of the part that is being built
  int64_t number = 0;                         ///< of that part
  DenseMap<Value, SmallVector<Value>> pieces; ///< of results that count tokens, by part
  llvm::MapVector<Value, Value> sums;         ///< of results that do not
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_BATCHES_SEGMENTTILER_H
