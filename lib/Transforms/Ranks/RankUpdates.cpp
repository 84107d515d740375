//===- RankUpdates.cpp - running statistics of several ranks ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Ranks/RankUpdates.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::memopt;

RankUpdates::RankUpdates(ArrayRef<Operation *> updates, int64_t ranks, OpBuilder &builder)
    : updates(updates), ranks(ranks), builder(builder), members(updates.begin(), updates.end()) {}

/// Moves of so many ranks are written out.
static constexpr int64_t kMostWrittenOut = 8;

void RankUpdates::build(function_ref<void(Operation *)> onWrite) {
  SmallVector<SmallVector<Operation *>> chains{llvm::to_vector(updates)};
  if (ranks > kMostWrittenOut)
    chains = getChains();
  for (ArrayRef<Operation *> chain : chains) {
    // In front of each chain, so that few rows are alive at a time.
    llvm::SmallPtrSet<Operation *, 8> own(chain.begin(), chain.end());
    SmallVector<Value> rows;
    for (auto &[original, value] : ofRank)
      if (llvm::any_of(original.getUsers(), [&](Operation *user) { return own.contains(user); })) {
        gather(value);
        rows.push_back(original);
      }
    bool isLoop = ranks > kMostWrittenOut && buildLoop(chain);
    for (int64_t rank = isLoop ? ranks - 1 : 0; rank < ranks; ++rank)
      buildRank(chain, rows, rank, onWrite);
  }
}

/// A row for each rank; once for each value.
void RankUpdates::gather(Value &value) {
  if (!gathered.insert(value).second)
    return;
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape{ranks};
  llvm::append_range(shape, type.getShape());
  value = CollectiveOp::create(builder, value.getLoc(), type.clone(shape),
                               CollectiveKind::AllGather, value, ranks);
  setPhase(value.getDefiningOp(), Phase::Optimizer);
  gathered.insert(value);
}

/// Updates of buffers that have nothing to do with each other, each in program order.
SmallVector<SmallVector<Operation *>> RankUpdates::getChains() const {
  llvm::EquivalenceClasses<const void *> together;
  for (Operation *op : updates) {
    together.insert(op);
    for (Value operand : op->getOperands()) {
      if (Operation *maker = operand.getDefiningOp();
          !isMadeOutside(operand) && !maker->hasTrait<OpTrait::ConstantLike>())
        together.unionSets(op, maker);
      if (auto read = operand.getDefiningOp<ReadOp>())
        together.unionSets(op, read.getVariableAttr().getAttr().getAsOpaquePointer());
    }
    if (auto write = dyn_cast<WriteOp>(op))
      together.unionSets(op, write.getVariableAttr().getAttr().getAsOpaquePointer());
  }
  llvm::MapVector<const void *, SmallVector<Operation *>> chains;
  for (Operation *op : updates)
    if (!op->hasTrait<OpTrait::ConstantLike>())
      chains[together.getLeaderValue(op)].push_back(op);
  return llvm::to_vector(llvm::make_second_range(chains.takeVector()));
}

/// The moves of all ranks but the last, whose own are written out behind the loop: what is state
/// only changes where the loss is known, and a loop changes what it carries from its start. Not
/// where a buffer gets a value without its old one being read: nothing would be carried.
bool RankUpdates::buildLoop(ArrayRef<Operation *> chain) {
  llvm::MapVector<StringAttr, WriteOp> writes;
  for (Operation *op : chain)
    if (auto write = dyn_cast<WriteOp>(op))
      writes[write.getVariableAttr().getAttr()] = write;
  llvm::MapVector<StringAttr, SmallVector<Value>> reads; // of what is written
  llvm::SetVector<Value> fixed, slices;
  SmallVector<Operation *> constants;
  for (Operation *op : chain)
    for (Value operand : op->getOperands()) {
      auto read = operand.getDefiningOp<ReadOp>();
      if (read && writes.contains(read.getVariableAttr().getAttr()))
        reads[read.getVariableAttr().getAttr()].push_back(operand);
      else if (ofRank.contains(operand))
        slices.insert(operand);
      else if (Operation *maker = operand.getDefiningOp();
               maker && maker->hasTrait<OpTrait::ConstantLike>())
        constants.push_back(maker);
      else if (isMadeOutside(operand))
        fixed.insert(operand);
    }
  if (writes.empty() || reads.size() != writes.size())
    return false;
  auto make = [&](const llvm::SetVector<Value> &values, function_ref<Value(Value)> get) {
    return llvm::map_to_vector(values, get);
  };
  SmallVector<Value> carried;
  for (auto &[name, write] : writes)
    carried.push_back(shared.lookup(reads.find(name)->second.front()));
  auto scan =
      ScanOp::create(builder, chain.front()->getLoc(),
                     make(fixed, [&](Value value) { return shared.lookup(value); }),
                     make(slices, [&](Value value) { return ofRank.find(value)->second; }),
                     SmallVector<int64_t>(slices.size(), 0), carried, ranks - 1, /*reverse=*/false);
  IRMapping mapping;
  mapping.map(fixed.getArrayRef(), scan.getFixedArguments());
  mapping.map(slices.getArrayRef(), scan.getSliceArguments());
  for (auto [entry, argument] : llvm::zip_equal(writes, scan.getCarriedArguments()))
    for (Value read : reads.find(entry.first)->second)
      mapping.map(read, argument);
  OpBuilder inside = OpBuilder::atBlockEnd(&scan.getBody().front());
  for (Operation *constant : constants)
    if (!mapping.contains(constant->getResult(0)))
      inside.clone(*constant, mapping);
  for (Operation *op : chain)
    if (!isa<WriteOp>(op))
      inside.clone(*op, mapping);
  SmallVector<Value> next;
  for (auto &[name, write] : writes)
    next.push_back(mapping.lookup(write.getValue()));
  YieldOp::create(inside, scan.getLoc(), next);
  scan = ScanOp::finish(builder, scan);
  setPhase(scan, Phase::Optimizer);
  for (auto [entry, value] : llvm::zip_equal(writes, scan.getLastValues()))
    current[entry.first] = value;
  return true;
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

void RankUpdates::buildRank(ArrayRef<Operation *> chain, ArrayRef<Value> rows, int64_t rank,
                            function_ref<void(Operation *)> onWrite) {
  IRMapping mapping = shared;
  for (Value original : rows)
    mapping.map(original, getPart(original, rank));
  for (Operation *op : chain) {
    for (Value operand : op->getOperands())
      if (Operation *maker = operand.getDefiningOp();
          maker && maker->hasTrait<OpTrait::ConstantLike>() && !mapping.contains(operand))
        builder.clone(*maker, mapping);
      else if (auto read = operand.getDefiningOp<ReadOp>())
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
  for (Operation *op : chain)
    if (auto write = dyn_cast<WriteOp>(op))
      current[write.getVariableAttr().getAttr()] = mapping.lookup(write.getValue());
}
