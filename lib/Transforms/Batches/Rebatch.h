//===- Rebatch.h - a step for another number of samples ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_BATCHES_REBATCH_H
#define MEMOPT_LIB_TRANSFORMS_BATCHES_REBATCH_H

#include "memopt/Analysis/BatchModel.h"

namespace mlir::memopt {

/// Changes every value that counts samples to `size` of them, arguments included. Counts
/// (memopt.count) follow by themselves.
void rebatch(const StepModel &step, const BatchModel &batch, int64_t size);

/// Tells the user of a batch of `size` samples instead of the exported ones.
void remarkBatchSize(const StepModel &step, const BatchModel &batch, int64_t size);

/// Says on the arguments which of their dimensions counts samples.
void markBatchDimensions(const StepModel &step, const BatchModel &batch);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_BATCHES_REBATCH_H
