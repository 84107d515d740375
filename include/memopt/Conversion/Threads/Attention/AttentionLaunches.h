//===- AttentionLaunches.h - attention as launches --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_ATTENTION_ATTENTIONLAUNCHES_H
#define MEMOPT_CONVERSION_THREADS_ATTENTION_ATTENTIONLAUNCHES_H

#include "memopt/Conversion/Threads/DeviceOps.h"
#include "memopt/Conversion/Threads/KernelLaunch.h"
#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

/// Adds the kernels of an attention call, whose numbers go on from `next`; `symbol` and `number` are
/// the call's.
SmallVector<KernelLaunch> buildAttentionKernels(ModuleOp program, LibraryCallOp call,
                                                AttentionAttr attention, const DeviceOps &ops,
                                                StringRef symbol, unsigned number, int64_t next);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_ATTENTION_ATTENTIONLAUNCHES_H
