//===- AttentionKernels.h - attention on a device ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The call of docs/LibraryCalls.md as kernels of a device, after FlashAttention-2 (Dao, 2023):
// scores exist as tiles in registers only. The gradient makes them again from the logarithms of
// sums that the forward pass leaves. Each sum belongs to one block of threads, which adds in order,
// so that no atomics are needed and bits repeat; for that dq and dk, dv are passes of their own.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTIONKERNELS_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTIONKERNELS_H

#include "memopt/Dialect/AttentionTiles.h"
#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

class DeviceOps;

enum class AttentionStage { Forward, QueryGradient, KeyGradient, MaskGradient };

/// One launch of a call; the stages of a call run in order.
struct AttentionKernel {
  AttentionStage stage;
  AttentionTiles tiles;
  int64_t blocks;
};

/// None where heads are too wide.
SmallVector<AttentionKernel> listAttentionKernels(AttentionAttr call, int64_t sharedBytes);

/// What a kernel has at hand.
struct AttentionArguments {
  const DeviceOps &ops;
  ValueRange buffers;        ///< operands, results and the workspace of the call
  ArrayRef<int64_t> offsets; ///< elements at which operands begin, at multiples of an access
  Value randomId;            ///< of dropout, as i64; null without
};

/// Emits the body of a kernel at the builder's insertion point.
void emitAttentionKernel(OpBuilder &builder, Location location, AttentionAttr call,
                         const AttentionKernel &kernel, const AttentionArguments &arguments);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTIONKERNELS_H
