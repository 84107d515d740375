//===- BackwardReaders.h - who reads a forward value later ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The ops behind the forward pass that read a value, in groups that stand close to each other: what
// is made anew for them is made once for each group. A reader far away gets its own, else what is
// made would be kept as long as the value it stands for: the input of a block of the network is
// read when its backward begins, to make the block's result, and again when it ends. Loops in a row
// are close, whatever stands between them.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_KERNELS_BACKWARDREADERS_H
#define MEMOPT_LIB_TRANSFORMS_KERNELS_BACKWARDREADERS_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace mlir::memopt {

/// Whether the op belongs to the backward pass or the optimizer.
bool isAfterForward(Operation *op);
/// What `op` reads, its region included, each value once. Scalars and shapes are no data.
SmallVector<Value> getTensorsRead(Operation *op);

class BackwardReaders {
public:
  explicit BackwardReaders(Block &block);

  using Group = SmallVector<OpOperand *>;
  /// The uses of the op's results behind the forward pass, in program order.
  SmallVector<Group> getGroups(Operation *op) const;
  /// The op of the block that reads by a use.
  Operation *getReader(OpOperand &use) const {
    return block.findAncestorOpInBlock(*use.getOwner());
  }
  /// Counts an op that was built in front of another one as standing where that one does.
  void addInFrontOf(Operation *op, Operation *reader) { positions[op] = positions.lookup(reader); }

private:
  int64_t getPosition(OpOperand &use) const { return positions.lookup(getReader(use)); }

  Block &block;
  llvm::DenseMap<Operation *, int64_t> positions; ///< in the program, free ops not counted
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_KERNELS_BACKWARDREADERS_H
