//===- OrderConstraints.h - what an order respects beside values -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order of a block's instructions follows from who reads whose values, and from what is written
// over: a variable's old value, the batch, what an iteration of a scan began with.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_MEMORY_ORDERCONSTRAINTS_H
#define MEMOPT_LIB_TRANSFORMS_MEMORY_ORDERCONSTRAINTS_H

#include "memopt/Analysis/StepModel.h"
#include "memopt/Planning/Problem/PlanProblem.h"

#include "llvm/ADT/MapVector.h"

namespace mlir::memopt {

/// The instruction that a plan counts the results of `op` to: of a wait, its start.
Operation *getMaker(Operation *op);

class OrderConstraints {
public:
  /// `numbers`: the op of the problem, by instruction of the block.
  OrderConstraints(Block &block, const DenseMap<Operation *, int32_t> &numbers,
                   ::memopt::planning::PlanProblem &problem)
      : block(block), numbers(numbers), problem(problem) {}

  /// Says of each op of the problem what it comes after.
  void add(const StepModel &step);

private:
  /// An instruction of the block that reads a variable's value or overwrites it.
  struct Access {
    enum Kind : uint8_t {
      Keeps, ///< reads the value that was written, not by way of the variable
      Reads,
      Writes
    } kind;
    Operation *begin, *end;
  };
  using Accesses = llvm::MapVector<StringAttr, SmallVector<Access>>;

  Accesses collectAccesses() const;
  void addAccesses(const StepModel &step);
  void addYields();
  void addLoop(RepeatOp loop);
  void addAfter(Operation *op, Operation *earlier);
  bool isIn(Operation *op) const { return op && op->getBlock() == &block; }

  Block &block;
  const DenseMap<Operation *, int32_t> &numbers;
  ::memopt::planning::PlanProblem &problem;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_MEMORY_ORDERCONSTRAINTS_H
