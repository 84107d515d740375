//===- KernelGraph.h - buffers and live ranges of a kernel graph -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_ANALYSIS_KERNELGRAPH_H
#define MEMOPT_ANALYSIS_KERNELGRAPH_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"

namespace mlir::memopt {

/// The function that holds the step, or null.
func::FuncOp getStepFunction(ModuleOp module);

/// Whether `op` runs at run time: a kernel or a library call. Reads, writes, marks and reshapes do
/// not.
bool isInstruction(Operation *op);

/// Whether `op` gives its operand another shape and nothing else, so that both are one buffer.
bool isReshape(Operation *op);

/// The value whose buffer `value` lies in: reshapes looked through.
Value getBufferRoot(Value value);

/// The path of the module that a location came from, such as "net.layer1.0.conv1"; empty when
/// unknown.
StringRef getModulePath(Location location);

/// The byte offset that memory planning gave to the buffer of `value`; fails where it gave none.
FailureOr<int64_t> getPlannedOffset(Value value);

/// One contiguous piece of memory with one life in a step.
struct Buffer {
  enum class Kind { Variable, Input, Result, Workspace };
  Kind kind;
  int64_t bytes;
  /// Instruction times [begin, end): instruction i runs at time i + 1, inputs are there at 0, and
  /// what the caller reads afterwards lives to `exitTime`. Variables live throughout.
  int64_t begin, end;
  VariableOp variable;     ///< of a variable
  Value value;             ///< of an input or result: the root value
  Operation *op = nullptr; ///< of a result or workspace: the instruction that makes or needs it
  unsigned result = 0;     ///< of a result: its number

  /// Name for reports and the module that it belongs to.
  std::string describe() const;
};

/// The buffers of a kernel graph. A value that is written to a variable counts as its own buffer
/// unless `isStoredDirectly` says that its producer may write into the variable's bytes.
class KernelGraph {
public:
  explicit KernelGraph(func::FuncOp function);

  ArrayRef<Operation *> getInstructions() const { return instructions; }
  ArrayRef<Buffer> getBuffers() const { return buffers; }
  int64_t getExitTime() const { return static_cast<int64_t>(instructions.size()) + 1; }
  int64_t getTime(Operation *instruction) const { return times.lookup(instruction); }

  /// Number of the buffer that holds `value`, reshapes looked through.
  unsigned getBufferOf(Value value) const { return bufferOf.lookup(getBufferRoot(value)); }
  /// Number of the workspace's buffer of `instruction`, or -1.
  int64_t getWorkspaceOf(Operation *instruction) const {
    auto it = workspaceOf.find(instruction);
    return it == workspaceOf.end() ? -1 : static_cast<int64_t>(it->second);
  }

  /// Writes whose value cannot be made in place: their producer is no instruction, the variable's
  /// old value is still read later, or the kernel reads it in another order. Each needs a copy.
  SmallVector<WriteOp> getWritesNeedingCopies() const { return copies; }

  /// The buffers that result `buffer` may take over where they end: operands of at least its bytes
  /// that the instruction reads element by element as it writes; the preferred ones first.
  SmallVector<unsigned> getTakeableBuffers(unsigned buffer) const;
  /// By buffer: the one that it takes over, or -1. Each result in turn takes the first that ends
  /// where it begins and that no other took.
  SmallVector<int32_t> getBuffersInPlace() const;

  /// Sum of the bytes of all variables, which are alive throughout.
  int64_t getVariableBytes() const;

  /// Sum of the bytes of all buffers alive at each time, from 0 to after the exit; a result and the
  /// buffer that it takes over count once.
  SmallVector<int64_t> getLiveBytes() const;

private:
  void numberInstructions(func::FuncOp function);
  void addVariables(func::FuncOp function);
  void addInputsAndResults(func::FuncOp function);
  void extendToUses(func::FuncOp function);
  void bindWrites(func::FuncOp function);
  bool canStoreDirectly(WriteOp write, ArrayRef<Value> oldValues) const;
  int64_t getLastUse(Value root) const;

  SmallVector<Operation *> instructions;
  SmallVector<Buffer> buffers;
  SmallVector<WriteOp> copies;
  DenseMap<Operation *, int64_t> times;
  DenseMap<Value, unsigned> bufferOf;
  DenseMap<Operation *, unsigned> workspaceOf;
  DenseMap<StringAttr, unsigned> variableBuffer;
  llvm::MapVector<Value, int64_t> lastUse;
};

} // namespace mlir::memopt

#endif // MEMOPT_ANALYSIS_KERNELGRAPH_H
