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

#include "KernelFusion.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_VERIFYKERNELGRAPHPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

namespace {
struct VerifyKernelGraphPass : memopt::impl::VerifyKernelGraphPassBase<VerifyKernelGraphPass> {
  void runOnOperation() override {
    if (getOperation().isExternal())
      return;
    for (Operation &op : getOperation().getBody().front())
      if (!isa<KernelOp, LibraryCallOp, ReadOp, WriteOp, GradientOp, func::ReturnOp>(op) &&
          !isBufferAlias(&op)) {
        op.emitOpError()
            << "does not belong in a kernel graph: expected a kernel, a library call, a "
               "read, a write or a reshape of a buffer";
        signalPassFailure();
      }
  }
};
} // namespace
