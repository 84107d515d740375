//===- KernelGraph.h - buffers and live ranges of a kernel graph -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The kernel graph as memory planning sees it: instructions at times, loops as intervals of times,
// buffers with lives. Times count instructions in the order of the program, an instruction before
// those of its own blocks: instruction i runs at time i + 1, inputs are there at 0, and what the
// caller reads afterwards lives to the exit time.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_ANALYSIS_KERNELGRAPH_H
#define MEMOPT_ANALYSIS_KERNELGRAPH_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::memopt {

/// One contiguous piece of memory with one life in a step.
struct Buffer {
  enum class Kind { Variable, Input, Result, Workspace };
  Kind kind;
  Space space;
  int64_t bytes;
  int64_t begin, end;      ///< times, half-open; variables live throughout
  VariableOp variable;     ///< of a variable
  Value value;             ///< of an input or result: the root value
  Operation *op = nullptr; ///< of a result or workspace: the instruction that makes or needs it
  unsigned number = 0;     ///< of a result or workspace: its number among those of the instruction
  bool hasBlocks = false;  ///< begins and ends with a block of the disk: transfers read or write it
  int64_t alignment = 1;   ///< it begins at a multiple of this

  /// Name for reports and the module that it belongs to.
  std::string describe() const;
};

/// The blocks of one instruction, which run `count` times in a row.
struct Loop {
  Operation *op;
  int64_t begin, end; ///< times of the instructions inside, half-open
  int64_t count;
};

class StepModel;

/// What the rest of this file relies on, with a diagnostic at what breaks it: verifyTensorGraph,
/// StepModel::verifyAccesses, nothing but instructions, accesses, marks, reshapes and the return,
/// and bytes whose sum fits 64 bits.
LogicalResult verifyKernelGraph(const StepModel &step);

/// The buffers of a kernel graph. A value that is written to a variable counts as its own buffer
/// unless its producer may write into the variable's bytes.
class KernelGraph {
public:
  explicit KernelGraph(func::FuncOp function);

  ArrayRef<Operation *> getInstructions() const { return instructions; }
  ArrayRef<Buffer> getBuffers() const { return buffers; }
  ArrayRef<Loop> getLoops() const { return loops; }
  int64_t getExitTime() const { return static_cast<int64_t>(instructions.size()) + 1; }
  int64_t getTime(Operation *instruction) const { return times.lookup(instruction); }

  /// Number of the buffer that holds `value`, reshapes looked through.
  unsigned getBufferOf(Value value) const { return bufferOf.lookup(getBufferRoot(value)); }
  /// getPlannedOffset, for many values: a variable is found without a walk over all of them.
  FailureOr<int64_t> getOffset(Value value) const;
  /// Numbers of the buffers of an instruction's workspaces.
  ArrayRef<unsigned> getWorkspacesOf(Operation *instruction) const {
    auto found = workspacesOf.find(instruction);
    return found == workspacesOf.end() ? ArrayRef<unsigned>() : ArrayRef(found->second);
  }

  /// Writes whose value cannot be made in place: their producer is no instruction of their block or
  /// runs before the commit, the variable's old value is still read later, or the kernel reads it
  /// in another order. Each needs a copy.
  ArrayRef<WriteOp> getWritesNeedingCopies() const { return copies; }

  /// What iterations of scans yield and do not make in the bytes where it belongs: an argument of
  /// the body, a value that is yielded twice, a carried value that is still read. Each needs a copy.
  ArrayRef<OpOperand *> getYieldsNeedingCopies() const { return yieldCopies; }
  /// Whether the instruction that makes a value may make it in the bytes of the carried value that
  /// `yield` gives its next.
  bool canReplaceCarried(OpResult value, OpOperand &yield) const;

  /// The buffers that result `buffer` may take over where they end: operands of at least its bytes
  /// that the instruction reads element by element as it writes (or row by row, where the target
  /// allows it); the preferred ones first.
  SmallVector<unsigned> getTakeableBuffers(unsigned buffer) const;
  /// By buffer: the one that it takes over, or -1. Each result in turn takes the first that ends
  /// where it begins and that no other took. Found when it is first asked for.
  ArrayRef<int32_t> getBuffersInPlace() const;

  /// Sum of the bytes of all variables of a space, which are alive throughout.
  int64_t getVariableBytes(Space space) const;

  /// Sum of the bytes of all buffers of a space alive at each time, from 0 to after the exit; a
  /// result and the buffer that it takes over count once.
  SmallVector<int64_t> getLiveBytes(Space space) const;

private:
  void numberInstructions(Block &block);
  void addVariables(func::FuncOp function);
  void addInputs(func::FuncOp function);
  void addResults();
  void extendToUses(func::FuncOp function);
  void extendToUse(Value value, Operation *user, int64_t time);
  void extendFlight(Operation *start, int64_t waitTime);
  int64_t stretchOverLoops(Value root, Operation *user, int64_t time) const;
  void bindWrites(func::FuncOp function);
  void bindYields();
  bool bindYield(OpOperand &yield);
  void roundToBlocks();
  void align(int64_t least);
  int64_t getBeginTime(Operation *producer) const;
  bool isBeforeCommit(Operation *producer, WriteOp write) const;
  bool canStoreDirectly(WriteOp write, ArrayRef<ReadOp> reads, ArrayRef<WriteOp> all) const;
  bool canTake(ArrayRef<InPlaceOperand> allowed, unsigned operand) const;

  bool mayTakeRows;
  int64_t commitTime = 0; ///< 0 without a commit
  SmallVector<Operation *> instructions;
  SmallVector<Buffer> buffers;
  SmallVector<Loop> loops;
  SmallVector<WriteOp> copies;
  SmallVector<OpOperand *> yieldCopies;
  DenseMap<Operation *, int64_t> times;
  DenseMap<Operation *, unsigned> loopOf;
  DenseMap<Value, unsigned> bufferOf;
  DenseMap<Operation *, SmallVector<unsigned, 1>> workspacesOf;
  DenseMap<StringAttr, unsigned> variableBuffer;
  DenseMap<Value, int64_t> lastUse;
  mutable SmallVector<int32_t> inPlaceOf; ///< by buffer; empty before it is asked for
};

} // namespace mlir::memopt

#endif // MEMOPT_ANALYSIS_KERNELGRAPH_H
