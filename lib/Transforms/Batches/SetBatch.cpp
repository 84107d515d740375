//===- SetBatch.cpp - compile for another batch size ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A graph is exported for one batch size. The iteration spaces of its ops say which dimensions
// count samples; here these get another size. Means divide by counts, which follow. What mixes
// samples other than by a sum or a statistic stops the pass, by name.
//
//===----------------------------------------------------------------------===//

#include "Rebatch.h"

#include "memopt/Transforms/Passes.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_SETBATCHPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

namespace {
struct SetBatchPass : mlir::memopt::impl::SetBatchPassBase<SetBatchPass> {
  using SetBatchPassBase::SetBatchPassBase;

  void runOnOperation() override {
    if (size == 0)
      return;
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step))
      return signalPassFailure();
    FailureOr<BatchModel> batch = BatchModel::create(*step);
    if (failed(batch))
      return signalPassFailure();
    if (onlyOfOne && batch->getBatchSize() > 1)
      return;
    markBatchDimensions(*step, *batch);
    rebatch(*step, *batch, size);
    remarkBatchSize(*step, *batch, size);
  }
};
} // namespace
