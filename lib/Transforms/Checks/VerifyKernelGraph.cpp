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
#include "memopt/Dialect/Program.h"
#include "memopt/Transforms/Passes.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_VERIFYKERNELGRAPHPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// What kernels check has an entry in the table of sites and a variable to be reported in.
static LogicalResult verifyChecks(const StepModel &step) {
  auto sites = step.getModule()->getAttrOfType<ArrayAttr>(MemoptDialect::kIndexSitesAttr);
  int64_t count = sites ? static_cast<int64_t>(sites.size()) : 0;
  bool hasWord = static_cast<bool>(findIndexFault(step.getModule()));
  WalkResult result = step.getFunction()->walk([&](CheckOp check) -> WalkResult {
    int64_t site = check.getSite();
    if (site < 0 || site >= std::min(count, kMostIndexSites))
      return check.emitOpError() << "reports for site " << site << ", expected one of the " << count
                                 << " in '" << MemoptDialect::kIndexSitesAttr << "'";
    if (!hasWord)
      return check.emitOpError("has no variable of role index_fault to report in");
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

namespace {
struct VerifyKernelGraphPass
    : mlir::memopt::impl::VerifyKernelGraphPassBase<VerifyKernelGraphPass> {
  void runOnOperation() override {
    FailureOr<StepModel> step = StepModel::create(getOperation());
    if (failed(step) || failed(verifyKernelGraph(*step)) || failed(verifyChecks(*step)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
