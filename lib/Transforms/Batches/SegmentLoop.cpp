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

/// The first `count` times `size` tokens of each of `whole`, in slices for as many turns.
SmallVector<Value> SegmentTiler::stackSlices(ArrayRef<Value> whole, int64_t count, int64_t size) {
  Rows rows{0, count * size};
  SmallVector<Value> stacked;
  for (Value value : whole) {
    Value taken = value;
    if (rows.end != segment.getTokens())
      taken = cut(value, segment.getTokenDims(value), rows, segment.getTileType(value, rows.end));
    stacked.push_back(reshapeTo(builder, value.getLoc(), taken,
                                stackShape(count, segment.getTileType(value, size))));
  }
  return stacked;
}

/// What the turns come to: sums over tokens, and values of tokens.
SegmentTiler::LoopResults SegmentTiler::collectResults() const {
  LoopResults results;
  for (Operation *op : segment.getOps())
    for (OpResult result : op->getResults())
      if (!segment.isSameForAll(op) && isNeededOutside(result))
        (segment.getTokenDims(result) ? results.stacked : results.summed).push_back(result);
  return results;
}

/// What a sum begins with: that of other micro-batches, or -0.0, to which any number is added
/// without a change.
Value SegmentTiler::startSum(OpResult result) {
  if (Value old = readOldSum(result))
    return old;
  auto type = cast<RankedTensorType>(getSumType(result));
  return createSplat(builder, result.getLoc(), type, -0.0);
}

/// The body of a loop over parts like `tiles`, whose operands are mapped.
void SegmentTiler::fillTurn(ScanOp open, ArrayRef<Value> uniform, const LoopResults &results,
                            ArrayRef<Rows> tiles) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(&open.getBody().front());
  auto yield = YieldOp::create(builder, open.getLoc());
  builder.setInsertionPoint(yield);
  for (Value value : uniform)
    values.map(value, makeUniform(builder, value, segment.getTileType(value, tiles.back().end)));
  for (Operation *op : segment.getOps())
    if (isOfTurn(segment, op))
      build(op, tiles);
  for (Operation &op : open.getBody().front())
    op.removeDiscardableAttr(MemoptDialect::kCloneAttr); // no twin of it is in here
  SmallVector<Value> left;
  for (OpResult result : results.summed)
    left.push_back(sums.lookup(result));
  for (OpResult result : results.stacked)
    left.push_back(values.lookup(result));
  yield->setOperands(left);
}

void SegmentTiler::buildLoop(int64_t count, ArrayRef<Rows> tiles) {
  int64_t size = tiles.back().end;
  LoopInputs inputs = collectInputs(segment);
  LoopResults results = collectResults();
  SmallVector<Value> slices = stackSlices(inputs.slices, count, size);
  SmallVector<Value> starts =
      llvm::map_to_vector(results.summed, [&](OpResult result) { return startSum(result); });
  Operation *first = segment.getOps().front();
  auto open = ScanOp::create(builder, first->getLoc(), inputs.fixed, slices,
                             SmallVector<int64_t>(slices.size(), 0), starts, count,
                             /*reverse=*/false);
  note(open, first);
  values.clear();
  values.map(inputs.fixed, open.getFixedArguments());
  values.map(inputs.slices, open.getSliceArguments());
  for (auto [result, argument] : llvm::zip_equal(results.summed, open.getCarriedArguments()))
    sums[result] = argument;
  fillTurn(open, inputs.uniform, results, tiles);
  ScanOp loop = ScanOp::finish(builder, open);
  for (auto [result, last] : llvm::zip_equal(results.summed, loop.getLastValues()))
    sums[result] = last;
  for (auto [result, stacked] : llvm::zip_equal(results.stacked, loop.getStacked()))
    pieces[result].push_back(reshapeTo(builder, result.getLoc(), stacked,
                                       segment.getTileType(result, count * size).getShape()));
  ++number;
}
