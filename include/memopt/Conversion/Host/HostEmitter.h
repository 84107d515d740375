//===- HostEmitter.h - code of the step function ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The step function is straight host code: it computes the addresses of an instruction's buffers,
// which are constants beside the arenas' bases, and calls a kernel or the runtime. This class is
// what instructions emit themselves with.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_HOST_HOSTEMITTER_H
#define MEMOPT_CONVERSION_HOST_HOSTEMITTER_H

#include "memopt-runtime/interface/ProgramInterface.h"
#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Conversion/Kernels/KernelLowering.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstddef>

namespace mlir::memopt {

/// Gives the function, in the module under construction, that runs a kernel, or a library call that
/// is kernels of a device.
using KernelFunctionFn = llvm::function_ref<FailureOr<KernelFunction>(Operation *op)>;

struct HostOptions {
  /// Report each instruction to the runtime before it runs, which timelines, saved gradients and
  /// the search for the origin of a NaN need.
  bool isInstrumented = true;
  /// Kernels are a device's: the runtime launches them.
  bool launchesKernels = false;
  /// Behind the name of the step's function, which tells it from those of other programs.
  std::string suffix;
};

class HostEmitter {
public:
  HostEmitter(func::FuncOp step, ModuleOp program, KernelFunctionFn lowerKernel,
              const HostOptions &options);

  /// The whole function, `memopt_program_step` with the suffix.
  LogicalResult emitStep();

  //===--------------------------------------------------------------------===//
  // For instructions
  //===--------------------------------------------------------------------===//

  OpBuilder &getBuilder() { return builder; }
  Location getLocation() const { return location; }
  LLVM::LLVMPointerType getPointerType() const { return pointer; }

  /// An i64 constant.
  Value createNumber(int64_t value);
  /// `base` and so many bytes.
  Value createOffset(Value base, int64_t bytes);
  /// The `const memopt_step *` that the step was called with.
  Value getFrame() const { return frame; }

  /// Where a tensor lies; of a slice that scans are at, in the iterations that run.
  FailureOr<Value> createAddress(Value tensor);
  /// Operands, results, workspaces, in this order; tokens have none.
  FailureOr<SmallVector<Value>> createAddresses(InstructionOpInterface instruction);
  /// From the addresses of tensors, in place, to those of elements in them.
  void moveToElements(MutableArrayRef<Value> addresses, ValueRange tensors,
                      ArrayRef<int64_t> elements);
  /// Puts pointers side by side for a call; they are good until the next such list.
  Value createPointerList(ArrayRef<Value> pointers);

  /// Calls the function at `field` of the runtime's table with the session and `arguments`, and
  /// leaves the step when it does not answer 0.
  void callRuntime(size_t field, ArrayRef<Value> arguments);
  /// Calls the generated function of a kernel, or launches those of a device, with the addresses of
  /// its operands and results, and of the word for reports where it checks anything.
  LogicalResult callKernel(KernelOp kernel, ArrayRef<Value> buffers);
  /// Launches the kernels that compute a library call (kOwnKernels).
  LogicalResult launchCall(LibraryCallOp call, ArrayRef<Value> buffers);

  /// Emits `body` inside of a loop over [0, count), with the iteration's number as i64.
  LogicalResult emitLoop(int64_t count, llvm::function_ref<LogicalResult(Value)> body);
  /// The instructions of a block, in order.
  LogicalResult emitBlock(Block &block);
  /// What follows is of this iteration of `scan`.
  void setIteration(Operation *scan, Value number) { iterations[scan] = number; }

private:
  void openStep(LLVM::LLVMFuncOp function);
  LogicalResult emitInstruction(Operation *op);
  void reportInstruction(int64_t index);
  Value loadPointer(Value base, int64_t bytes);
  Value moveToSlices(Value address, Value tensor);
  void leaveUnlessZero(Value code);
  /// Place `index` of a list of pointers.
  Value getSlot(Value list, size_t index);
  void launchKernels(const KernelFunction &function, ArrayRef<Value> arguments);
  void appendRandomIds(SmallVector<Value> &arguments, const KernelFunction &function);
  /// The address of the variable of role index_fault.
  FailureOr<Value> createFaultWord(KernelOp kernel);

  func::FuncOp step;
  ModuleOp program;
  KernelFunctionFn lowerKernel;
  const HostOptions &options;
  KernelGraph graph;
  OpBuilder builder;
  Location location;
  LLVM::LLVMPointerType pointer;
  Value frame, session, table, pointerList;
  Value parameterList; ///< of launches
  Value arenas[MEMOPT_SPACE_COUNT];
  Block *exit = nullptr;
  DenseMap<Operation *, Value> iterations; ///< by scan
};

} // namespace mlir::memopt

#include "memopt/Conversion/Host/HostInterfaces.h.inc"

#endif // MEMOPT_CONVERSION_HOST_HOSTEMITTER_H
