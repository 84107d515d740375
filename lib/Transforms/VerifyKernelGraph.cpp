//===- VerifyKernelGraph.cpp - rejects what no kernel graph has --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs behind form-kernels and behind passes on the kernel graph. What it accepts is what planning
// and code generation know: kernels, library calls, reads, writes, marks of gradients, reshapes
// that rename a buffer, and the return.
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_VERIFYKERNELGRAPHPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

namespace {
struct VerifyKernelGraphPass : memopt::impl::VerifyKernelGraphPassBase<VerifyKernelGraphPass> {
  void runOnOperation() override {
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step) || failed(verifyKernelGraph(*step)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
