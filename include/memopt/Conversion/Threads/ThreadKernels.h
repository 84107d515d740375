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
/// operand that it lies over, or -1.
SmallVector<KernelLaunch> buildThreadKernels(KernelFunctionBuilder &functions, const DeviceOps &ops,
                                             const ElementGraph &graph,
                                             const KernelSchedule &schedule,
                                             const ThreadScheduleRules &rules,
                                             ArrayRef<int64_t> aliases, int64_t next);

/// The kernels of an attention call, with operands that begin at `offsets`; `symbol` and `number`
/// are the call's.
SmallVector<KernelLaunch> buildAttentionKernels(ModuleOp program, LibraryCallOp call,
                                                AttentionAttr attention, const DeviceOps &ops,
                                                StringRef symbol, unsigned number, int64_t next);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_THREADKERNELS_H
