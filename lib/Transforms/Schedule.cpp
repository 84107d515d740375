//===- Schedule.cpp - order the instructions for the lowest peak -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Input and output: the kernel graph. The order that autodiff leaves keeps every gradient until the
// optimizer at the end; here each update moves to where its gradient is final, weight gradients to
// where they free the most, and so on, all as one search over orders: Planning's solveOrder, each
// instruction running once. The new order is kept only when it is better.
//
//===----------------------------------------------------------------------===//

#include "OrderProblem.h"

#include "memopt/Transforms/Passes.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_SCHEDULEPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

namespace {
struct SchedulePass : public mlir::memopt::impl::SchedulePassBase<SchedulePass> {
  using SchedulePassBase::SchedulePassBase;

  void runOnOperation() override {
    func::FuncOp function = getStepFunction(getOperation());
    if (!function)
      return;
    insertVariableCopies(function);
    OrderProblem problem(function, CostModel(getOperation()));
    planning::RematOptions options;
    options.iterations = iterations;
    options.threads = threads;
    std::vector<int32_t> given(problem.getProblem().ops.size());
    std::iota(given.begin(), given.end(), 0);
    llvm::Expected<planning::RematMeasure> before =
        planning::measureRemat(problem.getProblem(), given);
    llvm::Expected<planning::RematSolution> solution =
        planning::solveOrder(problem.getProblem(), options);
    if (!before || !solution) {
      llvm::Error error =
          llvm::joinErrors(before ? llvm::Error::success() : before.takeError(),
                           solution ? llvm::Error::success() : solution.takeError());
      emitError(getOperation().getLoc())
          << "scheduling failed: " << llvm::toString(std::move(error));
      return signalPassFailure();
    }
    if (llvm::Error wrong = planning::verifyRemat(problem.getProblem(), options, *solution)) {
      emitError(getOperation().getLoc())
          << "scheduling failed: " << llvm::toString(std::move(wrong));
      return signalPassFailure();
    }
    llvm::Expected<std::vector<int32_t>> early = planning::releaseEarly(
        problem.getProblem(), solution->peak < before->peak ? solution->order : given);
    if (!early) {
      emitError(getOperation().getLoc())
          << "scheduling failed: " << llvm::toString(early.takeError());
      return signalPassFailure();
    }
    if (*early != given)
      problem.apply(*early);
  }
};
} // namespace
