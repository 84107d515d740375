//===- SyncBatchNorm.h - batch norms over all ranks -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A batch norm of one rank's samples becomes one of the samples of all ranks, of which each has n:
//
//   %y, %mean, %var = batch_norm %x   ->   %m, %v of this rank's samples
//                                          %mean = (all_reduce %m) / ranks
//                                          %var = (all_reduce %v + (%m - %mean)^2) / ranks
//                                          %y = (%x - %mean) / sqrt(%var + eps) * scale + offset
//
// which is the pairwise formula of Chan, Golub and LeVeque (1979) for equal counts. The backward
// pass sums two vectors over the ranks; what scale and offset get is still this rank's part, as
// every gradient is.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_BATCHES_SYNCBATCHNORM_H
#define MEMOPT_LIB_TRANSFORMS_BATCHES_SYNCBATCHNORM_H

#include "MicroBatches.h"

namespace mlir::memopt {

/// Whether `op`, of the graph as it was, normalizes by statistics of a rank's samples, or is the
/// gradient of such an op.
bool isSynchronized(Operation *op, const BatchModel &batch);

/// Builds what takes the place of such an op, or of a copy of it; one value for each result.
SmallVector<Value> buildSynchronized(OpBuilder &builder, Operation *op, int64_t ranks);

/// Fails, with a diagnostic, where statistics of one rank would still move a buffer, or those of
/// all serve for more than gradients and running statistics; and where there are none.
LogicalResult verifySynchronized(const StepModel &step, const BatchModel &batch,
                                 const MicroBatches &plan);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_BATCHES_SYNCBATCHNORM_H
