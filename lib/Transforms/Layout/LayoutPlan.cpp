//===- LayoutPlan.cpp - in which order dimensions lie in memory --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayoutPlan.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

DimOrder mlir::memopt::getRowMajor(int64_t rank) {
  DimOrder order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

DimOrder mlir::memopt::getChannelsLast(int64_t rank) {
  DimOrder order = getRowMajor(rank);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

bool mlir::memopt::isRowMajor(ArrayRef<int64_t> order) { return llvm::is_sorted(order); }

bool mlir::memopt::areSameBytes(ArrayRef<int64_t> a, ArrayRef<int64_t> b, ArrayRef<int64_t> shape) {
  auto isLarge = [&](int64_t dim) { return shape[dim] != 1; };
  return llvm::equal(llvm::make_filter_range(a, isLarge), llvm::make_filter_range(b, isLarge));
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Elementwise ops tie everything, when all has one shape.
static bool hasOneShape(Operation *op) {
  if (!OpTrait::hasElementwiseMappableTraits(op) || op->getNumOperands() == 0 ||
      op->getNumResults() != 1)
    return false;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return type && llvm::all_of(op->getOperandTypes(), [&](Type operand) {
           auto tensor = dyn_cast<RankedTensorType>(operand);
           return tensor && tensor.getShape() == type.getShape();
         });
}

std::optional<TiedValues> mlir::memopt::getTiedValues(Operation *op) {
  TiedValues tied;
  if (auto layout = dyn_cast<LayoutOpInterface>(op)) {
    tied = layout.getTiedValues();
  } else if (hasOneShape(op)) {
    for (OpOperand &operand : op->getOpOperands())
      tied.operands.push_back(&operand);
    tied.results.push_back(op->getResult(0));
    tied.shape.assign(tensorType(op->getResult(0)).getShape());
  }
  return tied.operands.empty() ? std::nullopt : std::optional(std::move(tied));
}

DimOrder mlir::memopt::expandOrder(const TiedValues &tied, size_t number, ArrayRef<int64_t> order) {
  if (tied.dims.empty())
    return DimOrder(order);
  DimOrder expanded;
  for (int64_t dim : order)
    llvm::append_range(expanded, tied.dims[number][dim]);
  return expanded;
}

std::optional<DimOrder> mlir::memopt::getOpOrder(const TiedValues &tied, size_t number,
                                                 ArrayRef<int64_t> order) {
  DimOrder expanded = expandOrder(tied, number, order);
  return expanded.size() == tied.shape.size() ? std::optional(std::move(expanded)) : std::nullopt;
}

std::optional<DimOrder> mlir::memopt::getValueOrder(const TiedValues &tied, size_t number,
                                                    ArrayRef<int64_t> order) {
  if (tied.dims.empty())
    return DimOrder(order);
  ArrayRef<DimGroup> groups = tied.dims[number];
  SmallVector<int64_t> places = invertPermutationVector(order);
  // A group lies where its first dimension with several elements does; without one, anywhere.
  SmallVector<int64_t> groupPlaces;
  for (const DimGroup &group : groups) {
    const auto *first = llvm::find_if(group, [&](int64_t dim) { return tied.shape[dim] != 1; });
    groupPlaces.push_back(places[first == group.end() ? group.front() : *first]);
  }
  DimOrder collapsed = getRowMajor(groups.size());
  llvm::sort(collapsed, [&](int64_t a, int64_t b) { return groupPlaces[a] < groupPlaces[b]; });
  DimOrder expanded = expandOrder(tied, number, collapsed), present(order);
  llvm::erase_if(present, [&](int64_t dim) { return !llvm::is_contained(expanded, dim); });
  if (!areSameBytes(present, expanded, tied.shape))
    return std::nullopt;
  return collapsed;
}

//===----------------------------------------------------------------------===//
// Plan
//===----------------------------------------------------------------------===//

LayoutPlan::LayoutPlan(Block &block) : block(block) {
  for (Operation &op : block) {
    std::optional<TiedValues> tied = getTiedValues(&op);
    if (!tied || !tied->prefersChannelsLast)
      continue;
    for (Value value : tied->getAll())
      assign(value, getChannelsLast(tensorType(value).getRank()));
  }
  for (size_t next = 0; next < queue.size(); ++next) {
    Value value = queue[next];
    DimOrder order = orders.lookup(value);
    if (Operation *op = value.getDefiningOp())
      propagate(op, value, order);
    for (Operation *user : value.getUsers())
      propagate(user, value, order);
  }
}

DimOrder LayoutPlan::getOrder(Value value) const {
  auto found = orders.find(value);
  return found == orders.end() ? getRowMajor(tensorType(value).getRank()) : found->second;
}

/// Whether the op that makes `value` can make it in another order.
static bool isMovable(Value value) {
  Operation *op = value.getDefiningOp();
  std::optional<TiedValues> tied = op ? getTiedValues(op) : std::nullopt;
  return tied && llvm::is_contained(tied->results, value);
}

void LayoutPlan::assign(Value value, DimOrder order) {
  if (value.getParentBlock() != &block || !isMovable(value))
    return;
  // What came out row-major needs no company: other values are row-major anyway.
  bool travels = !isRowMajor(order);
  if (orders.try_emplace(value, std::move(order)).second && travels)
    queue.push_back(value);
}

void LayoutPlan::propagate(Operation *op, Value known, ArrayRef<int64_t> order) {
  std::optional<TiedValues> tied = op->getBlock() == &block ? getTiedValues(op) : std::nullopt;
  if (!tied)
    return;
  SmallVector<Value> values = tied->getAll();
  for (auto [from, value] : llvm::enumerate(values)) {
    std::optional<DimOrder> opOrder =
        value == known ? getOpOrder(*tied, from, order) : std::nullopt;
    if (!opOrder || (tied->hasLayoutAttribute && *opOrder != getChannelsLast(order.size())))
      continue;
    for (auto [to, other] : llvm::enumerate(values))
      if (std::optional<DimOrder> follows = getValueOrder(*tied, to, *opOrder))
        assign(other, *follows);
  }
}

void LayoutPlan::print(raw_ostream &os) const {
  for (Operation &op : block) {
    for (Value value : op.getResults()) {
      auto found = orders.find(value);
      if (found == orders.end() || isRowMajor(found->second))
        continue;
      os << op.getName() << " " << value.getType() << " [";
      llvm::interleaveComma(found->second, os);
      os << "]\n";
    }
  }
}
