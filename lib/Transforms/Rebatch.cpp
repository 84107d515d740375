//===- Rebatch.cpp - a step for another number of samples -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rebatch.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::memopt;

void memopt::remarkBatchSize(const StepModel &step, const BatchModel &batch, int64_t size) {
  emitRemark(step.getFunction().getLoc())
      << "compiled for " << size << " samples instead of " << batch.getBatchSize();
}

void memopt::markBatchDimensions(const StepModel &step, const BatchModel &batch) {
  func::FuncOp function = step.getFunction();
  for (BlockArgument argument : function.getArguments())
    if (std::optional<BatchDimension> dimension = batch.getDimension(argument))
      function.setArgAttr(argument.getArgNumber(), MemoptDialect::kBatchDimAttr,
                          Builder(function.getContext()).getI64IntegerAttr(dimension->dim));
}

static void updateFunctionType(func::FuncOp function) {
  Operation *end = function.getBody().front().getTerminator();
  function.setFunctionType(FunctionType::get(
      function.getContext(), function.getBody().getArgumentTypes(), end->getOperandTypes()));
}

void memopt::rebatch(const StepModel &step, const BatchModel &batch, int64_t size) {
  for (BlockArgument argument : step.getBody().getArguments())
    argument.setType(batch.getResized(argument, size));
  for (Operation &op : step.getBody()) {
    if (!batch.touchesSamples(&op) || op.getNumResults() == 0)
      continue;
    SmallVector<Type> types = llvm::map_to_vector(
        op.getResults(), [&](Value result) { return batch.getResized(result, size); });
    cast<IterationOpInterface>(op).resize(types);
  }
  updateFunctionType(step.getFunction());
}
