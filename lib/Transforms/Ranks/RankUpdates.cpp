//===- RankUpdates.cpp - running statistics of several ranks ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Ranks/RankUpdates.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

RankUpdates::RankUpdates(ArrayRef<Operation *> updates, int64_t ranks, OpBuilder &builder)
    : updates(updates), ranks(ranks), builder(builder), members(updates.begin(), updates.end()) {}

void RankUpdates::build(function_ref<void(Operation *)> onWrite) {
  gather();
  for (int64_t rank = 0; rank < ranks; ++rank)
    buildRank(rank, onWrite);
}

/// A row for each rank.
void RankUpdates::gather() {
  for (auto &[original, value] : ofRank) {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape{ranks};
    llvm::append_range(shape, type.getShape());
    value = CollectiveOp::create(builder, value.getLoc(), type.clone(shape),
                                 CollectiveKind::AllGather, value, ranks);
    setPhase(value.getDefiningOp(), Phase::Optimizer);
  }
}

Value RankUpdates::getPart(Value original, int64_t rank) {
  Value all = ofRank.find(original)->second;
  auto type = cast<RankedTensorType>(original.getType());
  Location location = original.getLoc();
  SmallVector<OpFoldResult> offsets(type.getRank() + 1, builder.getIndexAttr(0)),
      strides(type.getRank() + 1, builder.getIndexAttr(1)), sizes{builder.getIndexAttr(1)};
  offsets[0] = builder.getIndexAttr(rank);
  for (int64_t size : type.getShape())
    sizes.push_back(builder.getIndexAttr(size));
  Value row = tensor::ExtractSliceOp::create(builder, location, all, offsets, sizes, strides);
  SmallVector<ReassociationIndices> groups;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    groups.push_back(dim ? ReassociationIndices{dim + 1} : ReassociationIndices{0, 1});
  Value part = tensor::CollapseShapeOp::create(builder, location, type, row, groups);
  setPhase(row.getDefiningOp(), Phase::Optimizer);
  setPhase(part.getDefiningOp(), Phase::Optimizer);
  return part;
}

void RankUpdates::buildRank(int64_t rank, function_ref<void(Operation *)> onWrite) {
  IRMapping mapping = shared;
  for (auto &[original, value] : ofRank)
    mapping.map(original, getPart(original, rank));
  for (Operation *op : updates) {
    for (Value operand : op->getOperands())
      if (auto read = operand.getDefiningOp<ReadOp>())
        if (Value moved = current.lookup(read.getVariableAttr().getAttr()))
          mapping.map(operand, moved);
    auto write = dyn_cast<WriteOp>(op);
    if (!write || rank + 1 == ranks) {
      Operation *copy = builder.clone(*op, mapping);
      if (write)
        onWrite(copy);
    }
  }
  // Behind all of them: a buffer's old value may be read for another one's new value.
  for (Operation *op : updates)
    if (auto write = dyn_cast<WriteOp>(op))
      current[write.getVariableAttr().getAttr()] = mapping.lookup(write.getValue());
}
