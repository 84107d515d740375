//===- LayoutPlan.cpp - in which order dimensions lie in memory --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayoutPlan.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

DimOrder memopt::getRowMajor(int64_t rank) {
  DimOrder order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

DimOrder memopt::getChannelsLast(int64_t rank) {
  DimOrder order = getRowMajor(rank);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

bool memopt::isRowMajor(ArrayRef<int64_t> order) { return llvm::is_sorted(order); }

SmallVector<int64_t> memopt::getPlaces(ArrayRef<int64_t> order) {
  SmallVector<int64_t> places(order.size());
  for (auto [place, dim] : llvm::enumerate(order))
    places[dim] = place;
  return places;
}

DimOrder memopt::restrictOrder(ArrayRef<int64_t> order, ArrayRef<int64_t> dims) {
  DimOrder restricted;
  for (int64_t dim : order) {
    const auto *found = llvm::find(dims, dim);
    if (found != dims.end())
      restricted.push_back(found - dims.begin());
  }
  return restricted;
}

DimOrder memopt::expandOrder(ArrayRef<int64_t> order, ArrayRef<ReassociationIndices> groups) {
  // A tensor of rank 0 has no groups: all dimensions of the other side have size 1.
  DimOrder expanded;
  for (int64_t dim : order)
    llvm::append_range(expanded, groups[dim]);
  return expanded;
}

std::optional<DimOrder> memopt::collapseOrder(ArrayRef<int64_t> order,
                                              ArrayRef<ReassociationIndices> groups,
                                              ArrayRef<int64_t> expandedShape) {
  SmallVector<int64_t> places = getPlaces(order);
  // A group lies where its first dimension with several elements does; without one, anywhere.
  SmallVector<int64_t> groupPlaces;
  for (const ReassociationIndices &group : groups) {
    const auto *first = llvm::find_if(group, [&](int64_t dim) { return expandedShape[dim] != 1; });
    groupPlaces.push_back(places[first == group.end() ? group.front() : *first]);
  }
  DimOrder collapsed = getRowMajor(groups.size());
  llvm::sort(collapsed, [&](int64_t a, int64_t b) { return groupPlaces[a] < groupPlaces[b]; });
  if (groups.empty() || !areSameBytes(order, expandOrder(collapsed, groups), expandedShape))
    return std::nullopt;
  return collapsed;
}

bool memopt::areSameBytes(ArrayRef<int64_t> a, ArrayRef<int64_t> b, ArrayRef<int64_t> shape) {
  auto isLarge = [&](int64_t dim) { return shape[dim] != 1; };
  return llvm::equal(llvm::make_filter_range(a, isLarge), llvm::make_filter_range(b, isLarge));
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Elementwise ops tie everything, when all has one shape.
static bool isElementwise(Operation *op) {
  if (!OpTrait::hasElementwiseMappableTraits(op) || op->getNumOperands() == 0 ||
      op->getNumResults() != 1)
    return false;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return type && llvm::all_of(op->getOperandTypes(), [&](Type operand) {
           auto tensor = dyn_cast<RankedTensorType>(operand);
           return tensor && tensor.getShape() == type.getShape();
         });
}

std::optional<TiedValues> memopt::getTiedValues(Operation *op) {
  TiedValues tied;
  if (auto layout = dyn_cast<LayoutOpInterface>(op)) {
    tied = layout.getTiedValues();
  } else if (isElementwise(op)) {
    for (OpOperand &operand : op->getOpOperands())
      tied.operands.push_back(&operand);
    tied.results.push_back(op->getResult(0));
  }
  return tied.operands.empty() ? std::nullopt : std::optional(std::move(tied));
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
      assign(value, getChannelsLast(typeOf(value).getRank()));
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
  return found == orders.end() ? getRowMajor(typeOf(value).getRank()) : found->second;
}

/// Whether the op that makes `value` can make it in another order.
static bool isMovable(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  if (isa<BroadcastOp, ReduceOp, TransposeOp>(op) || isReshape(op))
    return true;
  std::optional<TiedValues> tied = getTiedValues(op);
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
  if (op->getBlock() != &block)
    return;
  if (std::optional<TiedValues> tied = getTiedValues(op)) {
    SmallVector<Value> values = tied->getAll();
    if (!llvm::is_contained(values, known) ||
        (tied->hasLayoutAttribute && order != ArrayRef(getChannelsLast(order.size()))))
      return;
    for (Value value : values)
      assign(value, DimOrder(order));
    return;
  }
  auto reshape = [&](Value expanded, Value collapsed, ArrayRef<ReassociationIndices> groups) {
    if (known == collapsed)
      assign(expanded, expandOrder(order, groups));
    else if (auto found = collapseOrder(order, groups, typeOf(expanded).getShape()))
      assign(collapsed, *found);
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](BroadcastOp broadcast) {
        if (known == broadcast.getResult())
          assign(broadcast.getInput(), restrictOrder(order, broadcast.getDimensions()));
        else if (order.size() == static_cast<size_t>(broadcast.getType().getRank()))
          assign(broadcast.getResult(), DimOrder(order));
      })
      .Case([&](ReduceOp reduce) {
        if (known != reduce.getInput())
          return;
        SmallVector<int64_t> kept = getRowMajor(order.size());
        llvm::erase_if(
            kept, [&](int64_t dim) { return llvm::is_contained(reduce.getDimensions(), dim); });
        assign(reduce.getResult(), restrictOrder(order, kept));
      })
      .Case([&](TransposeOp transpose) {
        // Free: the same bytes under other numbers.
        ArrayRef<int64_t> permutation = transpose.getPermutation();
        if (known == transpose.getInput())
          assign(transpose.getResult(), permute<int64_t>(getPlaces(permutation), order));
        else
          assign(transpose.getInput(), permute<int64_t>(permutation, order));
      })
      .Case([&](tensor::ExpandShapeOp expand) {
        reshape(expand.getResult(), expand.getSrc(), expand.getReassociationIndices());
      })
      .Case([&](tensor::CollapseShapeOp collapse) {
        reshape(collapse.getSrc(), collapse.getResult(), collapse.getReassociationIndices());
      });
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
