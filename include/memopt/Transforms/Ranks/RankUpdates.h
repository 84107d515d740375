//===- RankUpdates.h - running statistics of several ranks ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A buffer such as a running mean moves once for each rank, in their order, as it would for as many
// micro-batches of one rank:
//
//   %new = f(read @mean, %statistic)   ->   %all = collective <all_gather> %statistic over 2
//   write %new, @mean                       %a = f(read @mean, %all[0])
//                                           %b = f(%a, %all[1])
//                                           write %b, @mean
//
// Each rank computes all moves: the values are few, and no rank waits for another one's turn. Of
// many ranks they are a loop, so that the program is as long for a thousand ranks as for ten:
//
//   %a = scan count(999) slices(%s = %all) carried(%old = read @mean) { yield f(%old, %s) }
//   write f(%a, %all[999]), @mean
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_RANKS_RANKUPDATES_H
#define MEMOPT_TRANSFORMS_RANKS_RANKUPDATES_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::memopt {

class RankUpdates {
public:
  /// `updates` are in program order and end in writes; new ops come where `builder` stands.
  RankUpdates(ArrayRef<Operation *> updates, int64_t ranks, OpBuilder &builder);

  bool isMadeOutside(Value value) const { return !members.contains(value.getDefiningOp()); }
  /// An operand from outside, and what it has become: the same on all ranks,
  void setShared(Value original, Value value) { shared.map(original, value); }
  /// or a value that each rank has of its own.
  void setOfRank(Value original, Value value) { ofRank[original] = value; }

  /// Calls `onWrite` for each write that it makes.
  void build(function_ref<void(Operation *)> onWrite);

private:
  void gather(Value &value);
  SmallVector<SmallVector<Operation *>> getChains() const;
  bool buildLoop(ArrayRef<Operation *> chain);
  Value getPart(Value original, int64_t rank);
  void buildRank(ArrayRef<Operation *> chain, ArrayRef<Value> rows, int64_t rank,
                 function_ref<void(Operation *)> onWrite);

  ArrayRef<Operation *> updates;
  int64_t ranks;
  OpBuilder &builder;
  DenseSet<Operation *> members;
  IRMapping shared;
  llvm::MapVector<Value, Value> ofRank; ///< then what was gathered of it
  DenseSet<Value> gathered;             ///< and what it was gathered of
  DenseMap<StringAttr, Value> current;  ///< of buffers, after the ranks so far
};

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_RANKS_RANKUPDATES_H
