//===- DeviceOps.h - operations of a vendor's GPUs ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All that kernels ask of a vendor, beside what LLVM has for all machines (atomic operations among
// them). `Nvvm` is NVIDIA's.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_DEVICEOPS_H
#define MEMOPT_CONVERSION_THREADS_DEVICEOPS_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::memopt {

class DeviceOps {
public:
  virtual ~DeviceOps() = default;

  // Numbers, i64.
  virtual Value createThreadId(ImplicitLocOpBuilder &b) const = 0; ///< in the block
  virtual Value createBlockId(ImplicitLocOpBuilder &b) const = 0;
  virtual Value createGridSize(ImplicitLocOpBuilder &b) const = 0; ///< blocks

  // Threads of a warp are bits of `mask`, an i32.
  virtual void synchronizeBlock(ImplicitLocOpBuilder &b) const = 0;
  virtual void synchronizeWarp(ImplicitLocOpBuilder &b, Value mask) const = 0;
  /// The 32 bits, of any type, of the thread whose number differs in bit `distance`.
  virtual Value shuffle(ImplicitLocOpBuilder &b, Value mask, Value word,
                        int64_t distance) const = 0;
  /// Whether `condition` holds for one of the threads; for which ones, as an i32.
  virtual Value isAny(ImplicitLocOpBuilder &b, Value mask, Value condition) const = 0;
  virtual Value getVotes(ImplicitLocOpBuilder &b, Value mask, Value condition) const = 0;

  /// The address space of a block's shared memory.
  virtual unsigned getSharedSpace() const = 0;
  /// Makes a function one that is launched: with `threads` in a block, and so few registers that
  /// `blocks` fit a multiprocessor.
  virtual void markKernel(LLVM::LLVMFuncOp function, int64_t threads, int32_t blocks) const = 0;
};

/// The value, a number of at most 64 bits, of the thread whose number differs in bit `distance`.
Value shuffleWarp(const DeviceOps &ops, ImplicitLocOpBuilder &b, Value mask, Value value,
                  int64_t distance);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_DEVICEOPS_H
