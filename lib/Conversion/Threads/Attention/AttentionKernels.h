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

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONKERNELS_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONKERNELS_H

#include "memopt/Dialect/Kernels/AttentionTiles.h"
#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

class DeviceOps;

/// One launch of a call.
struct AttentionKernel {
  AttentionStage stage;
  AttentionTiles tiles;
  std::optional<MatrixTiles> matrices; ///< in place of `tiles`, on tensor cores
  int64_t blocks;

  int64_t getThreads() const { return matrices ? matrices->getThreads() : tiles.getThreads(); }
  int64_t getSharedBytes() const { return matrices ? matrices->sharedBytes : tiles.sharedBytes; }
  /// Blocks that share a multiprocessor; two hide each other's waits.
  int64_t getBlocksOfSm() const { return matrices ? matrices->blocks : 2; }
};

/// None where heads are too wide. `offsets`: elements at which operands begin.
SmallVector<AttentionKernel> listAttentionKernels(AttentionAttr call, ArrayRef<int64_t> offsets,
                                                  TargetAttrInterface target);

/// What a kernel has at hand.
struct AttentionArguments {
  const DeviceOps &ops;
  ValueRange buffers;        ///< operands, results and the workspace of the call
  ArrayRef<int64_t> offsets; ///< elements at which operands begin, at multiples of an access
  Value randomId;            ///< of dropout, as i64; null without
};

/// The buffer of a call that is its mask, behind queries, keys and values.
inline constexpr unsigned kMaskBuffer = 3;
/// Buffers of a call in front of its results: queries, keys, values, mask and scalars of dropout.
unsigned countAttentionInputs(AttentionAttr call);

/// Emits the body of a kernel at the builder's insertion point.
void emitAttentionKernel(OpBuilder &builder, Location location, AttentionAttr call,
                         const AttentionKernel &kernel, const AttentionArguments &arguments);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONKERNELS_H
