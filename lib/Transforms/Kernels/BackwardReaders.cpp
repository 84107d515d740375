//===- BackwardReaders.cpp - who reads a forward value later ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BackwardReaders.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::memopt;

/// Readers of a value that are at most this many ops apart are close; about the backward pass of
/// one layer.
static constexpr int64_t kNear = 16;

bool mlir::memopt::isAfterForward(Operation *op) { return getPhase(op) != Phase::Forward; }

SmallVector<Value> mlir::memopt::getTensorsRead(Operation *op) {
  llvm::SetVector<Value> values;
  for (Value operand : op->getOperands())
    values.insert(operand);
  getUsedValuesDefinedAbove(op->getRegions(), values);
  return llvm::to_vector(llvm::make_filter_range(
      values, [](Value value) { return isa<RankedTensorType>(value.getType()); }));
}

BackwardReaders::BackwardReaders(Block &block) : block(block) {
  int64_t position = 0;
  for (Operation &op : block) {
    bool isFree = isa<ReadOp, tensor::EmptyOp, arith::ConstantOp, linalg::FillOp>(op);
    positions[&op] = isFree ? position : ++position;
  }
}

SmallVector<BackwardReaders::Group> BackwardReaders::getGroups(Operation *op) const {
  Group uses;
  for (OpOperand &use : op->getUses())
    if (isAfterForward(getReader(use)))
      uses.push_back(&use);
  llvm::sort(uses, [&](OpOperand *a, OpOperand *b) {
    Operation *first = getReader(*a), *second = getReader(*b);
    return first != second && first->isBeforeInBlock(second);
  });
  SmallVector<Group> groups;
  auto isNear = [&](OpOperand *use, const Group &group) {
    // What two loops read lives through each of them.
    bool areLoops = isa<ScanOp>(getReader(*use)) && isa<ScanOp>(getReader(*group.back()));
    return areLoops || getPosition(*use) - getPosition(*group.front()) <= kNear;
  };
  for (OpOperand *use : uses) {
    if (groups.empty() || !isNear(use, groups.back()))
      groups.emplace_back();
    groups.back().push_back(use);
  }
  return groups;
}
