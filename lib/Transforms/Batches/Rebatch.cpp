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

using namespace mlir;
using namespace mlir::memopt;

void mlir::memopt::remarkBatchSize(const StepModel &step, const BatchModel &batch, int64_t size) {
  if (size == batch.getBatchSize())
    return;
  emitRemark(step.getFunction().getLoc())
      << "compiled for " << size << " samples instead of " << batch.getBatchSize();
}

void mlir::memopt::markBatchDimensions(const StepModel &step, const BatchModel &batch) {
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
static SmallVector<std::pair<OpOperand *, BatchDimension>>
findSharedOperands(const StepModel &step, const BatchModel &batch) {
  SmallVector<std::pair<OpOperand *, BatchDimension>> found;
  for (Operation &op : step.getBody()) {
    auto iteration = dyn_cast<IterationOpInterface>(op);
    if (!iteration || !batch.touchesSamples(&op))
      continue;
    IterationSpace space = iteration.getIterationSpace();
    SmallVector<Value> values(op.getOperands());
    llvm::append_range(values, op.getResults());
    SmallVector<int64_t> inner(space.kinds.size(), 0); // of loops that count samples
    for (auto [value, map] : llvm::zip_equal(values, space.maps))
      if (std::optional<BatchDimension> dimension = batch.getDimension(value); dimension && map)
        if (auto loop = dyn_cast<AffineDimExpr>(map.getResult(dimension->dim)))
          inner[loop.getPosition()] = dimension->inner;
    for (auto [operand, map] : llvm::zip_first(op.getOpOperands(), space.maps)) {
      if (!map || batch.getDimension(operand.get()))
        continue;
      for (auto [dim, expr] : llvm::enumerate(map.getResults()))
        if (auto loop = dyn_cast<AffineDimExpr>(expr); loop && inner[loop.getPosition()])
          found.push_back({&operand, {static_cast<int64_t>(dim), inner[loop.getPosition()]}});
    }
  }
  return found;
}

/// The dimension `dim` as two, the second of them of `inner`; the value itself where it has no
/// more.
static Value splitDimension(OpBuilder &builder, Value value, int64_t dim, int64_t inner) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(type.getShape());
  if (shape[dim] == inner)
    return value;
  shape[dim] /= inner;
  shape.insert(shape.begin() + dim + 1, inner);
  SmallVector<ReassociationIndices> groups;
  for (int64_t old = 0; old < type.getRank(); ++old)
    groups.push_back({old <= dim ? old : old + 1});
  groups[dim].push_back(dim + 1);
  return tensor::ExpandShapeOp::create(builder, value.getLoc(), type.clone(shape), value, groups);
}

/// Repeats what an operand holds for one sample along a dimension, merged with it or not.
static void repeatAlong(OpOperand &operand, BatchDimension place, int64_t size) {
  Operation *op = operand.getOwner();
  OpBuilder builder(op);
  Value split = splitDimension(builder, operand.get(), place.dim, place.inner);
  auto type = cast<RankedTensorType>(split.getType());
  bool isSplit = split != operand.get();
  int64_t samples = place.dim + isSplit;
  SmallVector<int64_t> shape(type.getShape()), dimensions;
  shape.insert(shape.begin() + samples, size);
  SmallVector<ReassociationIndices> groups;
  for (int64_t old = 0; old < type.getRank(); ++old)
    dimensions.push_back(old < samples ? old : old + 1);
  for (int64_t old = 0; old < type.getRank() - isSplit; ++old)
    groups.push_back({old <= place.dim ? old : old + 1 + isSplit});
  for (int64_t merged = place.dim; merged < samples + 1; ++merged)
    groups[place.dim].push_back(merged + 1);
  // What is itself repeated along others is so along all at once: two sums in the backward pass
  // would give ranks and micro-batches the terms of the second to add up.
  if (auto inner = split.getDefiningOp<BroadcastOp>()) {
    split = inner.getInput();
    dimensions = llvm::map_to_vector(inner.getDimensions(),
                                     [&](int64_t dimension) { return dimensions[dimension]; });
  }
  Value repeated = BroadcastOp::create(builder, op->getLoc(), type.clone(shape), split,
                                       builder.getDenseI64ArrayAttr(dimensions));
  Value merged = tensor::CollapseShapeOp::create(builder, op->getLoc(), repeated, groups);
  if (Phase phase = getPhase(op); phase != Phase::Forward) { // of which nobody speaks
    setPhase(repeated.getDefiningOp(), phase);
    setPhase(merged.getDefiningOp(), phase);
    if (isSplit)
      setPhase(split.getDefiningOp(), phase);
  }
  operand.set(merged);
}

void mlir::memopt::rebatch(const StepModel &step, const BatchModel &batch, int64_t size) {
  if (batch.getBatchSize() == 1)
    for (auto [operand, place] : findSharedOperands(step, batch))
      repeatAlong(*operand, place, size);
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
