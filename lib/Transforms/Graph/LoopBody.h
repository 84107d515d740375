//===- LoopBody.h - what the turns of a written-out loop have in common -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A front end that knows no loops writes the body once for each turn. The turns are one loop where
// each operand of an op in the body is, in all turns alike,
//
//   the same value from outside                        fixed
//   a result of the body, in the same turn             itself
//   the same, of the turn before                       carried; the first turn has a value from outside
//   slice first + step * turn of a value from outside  a slice
//
// or any of these behind ops that only move elements or are constants. Those belong to no turn: each
// may stand anywhere in front of its readers.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_GRAPH_LOOPBODY_H
#define MEMOPT_LIB_TRANSFORMS_GRAPH_LOOPBODY_H

#include "mlir/IR/Builders.h"

#include <map>

namespace mlir::memopt {

/// Whether `op` only moves elements of one operand, or is a constant.
bool movesElements(Operation *op);

/// A turn of a loop as a block: a copy of the first turn's ops, of arguments that say what differs.
class LoopBody {
public:
  using Turns = ArrayRef<Value>; ///< a value in each turn, the first one first
  enum class Kind { Fixed, Slice, Carried };
  /// An argument of the body.
  struct Input {
    Kind kind;
    BlockArgument inside;
    Value whole;       ///< the fixed value, that with the slices [n, ...], or the first carried one
    int64_t first = 0; ///< the slice of the first turn
    bool turnsBack = false;
    SmallVector<Value> next; ///< of a carried value: behind each turn but the last
  };

  /// `ops`: those of all turns, in their order, `period` of each.
  LoopBody(ArrayRef<Operation *> ops, size_t period);
  ~LoopBody();

  /// Copies a turn; fails where the turns are not one loop's.
  LogicalResult build();
  /// What a value is in the body; null where the turns differ in another way than a loop's. Values of
  /// the first turns alone will do.
  Value get(Turns turns);
  BlockArgument addInput(Input input);

  /// The op at `place` in a turn.
  Operation *getOp(size_t turn, size_t place) const { return ops[turn * period + place]; }
  bool isOfTurn(Operation *op) const { return places.contains(op); }

  const ArrayRef<Operation *> ops;
  const size_t period, count;
  const Location location;
  OpBuilder outside; ///< in front of the loop
  Block block;
  OpBuilder inside;              ///< at the end of the block
  SmallVector<Operation *> made; ///< in the block, by place in a turn
  SmallVector<Input> inputs;

private:
  std::optional<size_t> findTurn(Value value) const;
  bool moveOutside(Value value);
  Value find(Turns turns);
  Value getOfSameTurn(Turns turns);
  Value getFixed(Value value);
  Value getMoved(Turns turns);
  Value getConstant(Turns turns);
  Value getSlice(Turns turns);
  Value getJoined(Turns turns);
  Value getCarried(Turns turns);
  Value addSlices(Value whole, int64_t first, bool turnsBack);

  DenseMap<Operation *, size_t> places;
  std::map<std::vector<const void *>, Value> known;
  /// By value, dimension and size of a slice: with the slices in front.
  std::map<std::tuple<const void *, size_t, int64_t>, Value> sliced;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_GRAPH_LOOPBODY_H
