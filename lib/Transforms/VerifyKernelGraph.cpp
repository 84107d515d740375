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

static LogicalResult verifyBlock(Block &block) {
  for (Operation &op : block) {
    if (auto instruction = dyn_cast<InstructionOpInterface>(op)) {
      for (Block *body : instruction.getBodies())
        if (failed(verifyBlock(*body)))
          return failure();
      continue;
    }
    if (!isa<ReadOp, WriteOp, GradientOp, YieldOp, func::ReturnOp>(op) && !isReshape(&op))
      return op.emitOpError() << "does not belong in a kernel graph: expected an instruction, a "
                                 "read, a write or a reshape of a buffer";
  }
  return success();
}

namespace {
struct VerifyKernelGraphPass : memopt::impl::VerifyKernelGraphPassBase<VerifyKernelGraphPass> {
  void runOnOperation() override {
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step) || failed(step->verifyAccesses()) || failed(verifyBlock(step->getBody())))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
