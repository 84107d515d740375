//===- Rebatch.cpp - a step for another number of samples -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rebatch.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/SmallBitVector.h"

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

/// Operands that hold one thing for all samples where an op counts them: of a batch of one sample
/// they may have had a dimension of that size, as positions [1, tokens, features] do.
static SmallVector<std::pair<OpOperand *, int64_t>> findSharedOperands(const StepModel &step,
                                                                       const BatchModel &batch) {
  SmallVector<std::pair<OpOperand *, int64_t>> found;
  for (Operation &op : step.getBody()) {
    auto iteration = dyn_cast<IterationOpInterface>(op);
    if (!iteration || !batch.touchesSamples(&op))
      continue;
    IterationSpace space = iteration.getIterationSpace();
    SmallVector<Value> values(op.getOperands());
    llvm::append_range(values, op.getResults());
    llvm::SmallBitVector counts(space.kinds.size());
    for (auto [value, map] : llvm::zip_equal(values, space.maps))
      if (std::optional<BatchDimension> dimension = batch.getDimension(value); dimension && map)
        if (auto loop = dyn_cast<AffineDimExpr>(map.getResult(dimension->dim)))
          counts.set(loop.getPosition());
    for (auto [operand, map] : llvm::zip_first(op.getOpOperands(), space.maps)) {
      if (!map || batch.getDimension(operand.get()))
        continue;
      for (auto [dim, expr] : llvm::enumerate(map.getResults()))
        if (auto loop = dyn_cast<AffineDimExpr>(expr); loop && counts.test(loop.getPosition()))
          found.push_back({&operand, static_cast<int64_t>(dim)});
    }
  }
  return found;
}

/// Repeats what an operand holds for one sample along a dimension, merged with it or not.
static void repeatAlong(OpOperand &operand, int64_t dim, int64_t size) {
  Operation *op = operand.getOwner();
  OpBuilder builder(op);
  auto type = cast<RankedTensorType>(operand.get().getType());
  SmallVector<int64_t> shape(type.getShape()), dimensions;
  shape.insert(shape.begin() + dim, size);
  SmallVector<ReassociationIndices> groups;
  for (int64_t old = 0; old < type.getRank(); ++old) {
    dimensions.push_back(old < dim ? old : old + 1);
    groups.push_back({dimensions.back()});
  }
  groups[dim].insert(groups[dim].begin(), dim);
  Value repeated = BroadcastOp::create(builder, op->getLoc(), type.clone(shape), operand.get(),
                                       builder.getDenseI64ArrayAttr(dimensions));
  Value merged = tensor::CollapseShapeOp::create(builder, op->getLoc(), repeated, groups);
  if (Phase phase = getPhase(op); phase != Phase::Forward) // of which nobody speaks
    for (Value value : {repeated, merged})
      setPhase(value.getDefiningOp(), phase);
  operand.set(merged);
}

void memopt::rebatch(const StepModel &step, const BatchModel &batch, int64_t size) {
  if (batch.getBatchSize() == 1)
    for (auto [operand, dim] : findSharedOperands(step, batch))
      repeatAlong(*operand, dim, size);
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
