//===- ThreadKernels.h - kernels as launches of a device ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_THREADKERNELS_H
#define MEMOPT_CONVERSION_THREADS_THREADKERNELS_H

#include "memopt/Conversion/Core/Emission/KernelFunction.h"
#include "memopt/Conversion/Threads/DeviceOps.h"
#include "memopt/Conversion/Threads/KernelLaunch.h"
#include "memopt/Conversion/Threads/ThreadSchedule.h"

namespace mlir::memopt {

/// Adds a function for each stage, whose numbers go on from `next`. `aliases`: for each result the
/// operand that it lies over, or -1. All buffers begin at multiples of `alignment` bytes; 0: of
/// their elements.
SmallVector<KernelLaunch> buildThreadKernels(KernelFunctionBuilder &functions, const DeviceOps &ops,
                                             const ElementGraph &graph,
                                             const KernelSchedule &schedule,
                                             const ThreadScheduleRules &rules,
                                             ArrayRef<int64_t> aliases, int64_t alignment,
                                             int64_t next);

/// Fills a function of `threads` in a block, of which `blocks` fit a multiprocessor, with what `emit`
/// makes of its arguments.
void fillThreadKernel(OpBuilder &builder, LLVM::LLVMFuncOp function, const DeviceOps &ops,
                      int64_t threads, int32_t blocks,
                      llvm::function_ref<void(ArrayRef<Value>)> emit);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_THREADKERNELS_H
