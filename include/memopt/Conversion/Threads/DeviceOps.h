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

#include <array>

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

  // Copies from the device's memory, space `getGlobalSpace()`, into shared memory, which go on while
  // the thread does. What they write is the thread's to read when it has waited, and that of others
  // behind a barrier.
  /// Copies `bytes`, 4, 8 or 16, which is also the alignment; zeros instead of those from `valid`
  /// on, an i32.
  virtual void copyAhead(ImplicitLocOpBuilder &b, Value to, Value from, int64_t bytes,
                         Value valid) const = 0;
  /// Waits for all of this thread's copies.
  virtual void awaitCopies(ImplicitLocOpBuilder &b) const = 0;

  // Products of matrices, by all threads of a warp. A thread has two neighbours of a row in one
  // i32: those of row n / 4 and columns 2 (n mod 4) and 1 more, of an 8 x 8 matrix of 16-bit
  // numbers.
  /// Four matrices in shared memory: threads 8 i to 8 i + 7 say where the rows of matrix i begin,
  /// at multiples of 16 bytes. `isTransposed`: what lies as rows are columns.
  virtual std::array<Value, 4> loadMatrices(ImplicitLocOpBuilder &b, Value row,
                                            bool isTransposed) const = 0;
  /// Adds the products of 16 x 16 numbers of type `element` and 16 x 8 to 16 x 8 f32. The matrices
  /// of `left` are those of rows 0 and 8, then of columns 8; of `right`, whose threads hold columns
  /// as rows, those of rows 0 and 8. A thread has of `sums` what it has of two matrices.
  virtual std::array<Value, 4> multiplyMatrices(ImplicitLocOpBuilder &b, Type element,
                                                ArrayRef<Value> left, ArrayRef<Value> right,
                                                ArrayRef<Value> sums) const = 0;
  /// 2 to the power of an f32, within two units in the last place; numbers below the normal ones
  /// are 0.
  virtual Value exponentiate(ImplicitLocOpBuilder &b, Value power) const = 0;

  virtual unsigned getGlobalSpace() const = 0;
  /// The address space of a block's shared memory.
  virtual unsigned getSharedSpace() const = 0;
  /// Makes a function one that is launched: with `threads` in a block, and so few registers that
  /// `blocks` fit a multiprocessor.
  virtual void markKernel(LLVM::LLVMFuncOp function, int64_t threads, int32_t blocks) const = 0;
};

/// The value, a number of at most 64 bits, of the thread whose number differs in bit `distance`.
Value shuffleWarp(const DeviceOps &ops, ImplicitLocOpBuilder &b, Value mask, Value value,
                  int64_t distance);

/// A block's shared memory, of as many bytes as the launch says; all kernels of a module share its
/// declaration.
Value getSharedMemory(const DeviceOps &ops, ImplicitLocOpBuilder &b);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_DEVICEOPS_H
