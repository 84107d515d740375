//===- SegmentLoop.cpp - a segment as a loop over parts of its tokens -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An MLP's parts are alike, and there are some in each layer. As a loop they are one instruction,
// which costs the planner no more than the MLP in one piece:
//
//   %dx, %dw = memopt.scan count(8) fixed(%w) slices(%x, %dy) carried(%sum = -0.0) { ... }
//
//===----------------------------------------------------------------------===//

#include "SegmentTiler.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/ViewBuilders.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// What members read that no turn makes.
struct LoopInputs {
  SmallVector<Value> fixed, slices;
  SmallVector<Value> uniform; ///< which each turn makes for itself
};
} // namespace

/// A constant with the same number everywhere, or no numbers at all.
static bool isUniform(Value value) {
  DenseElementsAttr numbers;
  return value.getDefiningOp<tensor::EmptyOp>() ||
         (matchPattern(value, m_Constant(&numbers)) && numbers.isSplat());
}

/// What all tokens share is made once, but not in as many copies as there are tokens.
static bool isOfTurn(const TokenSegment &segment, Operation *op) {
  return segment.contains(op) &&
         (!segment.isSameForAll(op) || llvm::any_of(op->getResults(), [&](Value result) {
           return segment.getTokenDims(result) != 0;
         }));
}

static LoopInputs collectInputs(const TokenSegment &segment) {
  llvm::SetVector<Value> outside;
  for (Operation *op : segment.getOps())
    if (isOfTurn(segment, op))
      for (Value operand : op->getOperands())
        if (!isOfTurn(segment, operand.getDefiningOp()))
          outside.insert(operand);
  LoopInputs inputs;
  for (Value value : outside)
    if (isUniform(value))
      inputs.uniform.push_back(value);
    else if (segment.getTokenDims(value))
      inputs.slices.push_back(value);
    else
      inputs.fixed.push_back(value);
  return inputs;
}

static Value makeUniform(OpBuilder &builder, Value value, RankedTensorType type) {
  DenseElementsAttr numbers;
  if (!matchPattern(value, m_Constant(&numbers)))
    return tensor::EmptyOp::create(builder, value.getLoc(), type.getShape(), type.getElementType());
  return arith::ConstantOp::create(builder, value.getLoc(), numbers.resizeSplat(type));
}

/// The shape of so many slices, as a loop reads or leaves them.
static SmallVector<int64_t> stackShape(int64_t count, RankedTensorType slice) {
  SmallVector<int64_t> shape{count};
  llvm::append_range(shape, slice.getShape());
  return shape;
}

/// The first `count` times `tiles`, which are the first ones. Sums begin with -0.0, to which any
/// number is added without a change.
void SegmentTiler::buildLoop(int64_t count, ArrayRef<Rows> tiles) {
  Rows all{0, count * tiles.back().end};
  LoopInputs inputs = collectInputs(segment);
  SmallVector<Value> slices, starts;
  for (Value value : inputs.slices) {
    Value rows = value;
    if (all.end != segment.getTokens())
      rows = cut(value, segment.getTokenDims(value), all, segment.getTileType(value, all.end));
    RankedTensorType slice = segment.getTileType(value, tiles.back().end);
    slices.push_back(reshapeTo(builder, value.getLoc(), rows, stackShape(count, slice)));
  }
  SmallVector<OpResult> summed, stacked;
  for (Operation *op : segment.getOps())
    for (OpResult result : op->getResults()) {
      if (segment.isSameForAll(op) || !isNeededOutside(result))
        continue;
      if (segment.getTokenDims(result)) {
        stacked.push_back(result);
        continue;
      }
      Value old = readOldSum(result);
      auto type = cast<RankedTensorType>(getSumType(result));
      starts.push_back(old ? old : createSplat(builder, result.getLoc(), type, -0.0));
      summed.push_back(result);
    }
  auto open = ScanOp::create(builder, segment.getOps().front()->getLoc(), inputs.fixed, slices,
                             SmallVector<int64_t>(slices.size(), 0), starts, count,
                             /*reverse=*/false);
  note(open, segment.getOps().front());
  values.clear();
  values.map(inputs.fixed, open.getFixedArguments());
  values.map(inputs.slices, open.getSliceArguments());
  for (auto [result, argument] : llvm::zip_equal(summed, open.getCarriedArguments()))
    sums[result] = argument;
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&open.getBody().front());
    auto yield = YieldOp::create(builder, open.getLoc());
    builder.setInsertionPoint(yield);
    for (Value value : inputs.uniform)
      values.map(value, makeUniform(builder, value, segment.getTileType(value, tiles.back().end)));
    for (Operation *op : segment.getOps())
      if (isOfTurn(segment, op))
        build(op, tiles);
    for (Operation &op : open.getBody().front())
      op.removeDiscardableAttr(MemoptDialect::kCloneAttr); // no twin of it is in here
    SmallVector<Value> left;
    for (OpResult result : summed)
      left.push_back(sums.lookup(result));
    for (OpResult result : stacked)
      left.push_back(values.lookup(result));
    yield->setOperands(left);
  }
  ScanOp loop = ScanOp::finish(builder, open);
  for (auto [result, last] : llvm::zip_equal(summed, loop.getLastValues()))
    sums[result] = last;
  for (auto [result, slices] : llvm::zip_equal(stacked, loop.getStacked()))
    pieces[result].push_back(reshapeTo(builder, result.getLoc(), slices,
                                       segment.getTileType(result, all.end).getShape()));
  ++number;
}
