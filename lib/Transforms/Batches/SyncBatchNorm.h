//===- SyncBatchNorm.h - batch norms over all ranks -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which ops BatchStatisticsOpInterface::buildSynchronized replaces, and where that is not enough.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_BATCHES_SYNCBATCHNORM_H
#define MEMOPT_LIB_TRANSFORMS_BATCHES_SYNCBATCHNORM_H

#include "MicroBatches.h"

namespace mlir::memopt {

/// Whether `op`, of the graph as it was, normalizes by statistics of a rank's samples, or is the
/// gradient of such an op.
bool isSynchronized(Operation *op, const BatchModel &batch);

/// Fails, with a diagnostic, where statistics of one rank would still move a buffer, or those of
/// all serve for more than gradients and running statistics; and where there are none.
LogicalResult verifySynchronized(const StepModel &step, const BatchModel &batch,
                                 const MicroBatches &plan);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_BATCHES_SYNCBATCHNORM_H
