//===- LayoutPlan.h - in which order dimensions lie in memory --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decision of choose-layout, apart from its rewriting. An order lists a tensor's dimensions as
// they lie in memory, outermost first. Convolutions ask for channels-last; from there orders travel
// along ops, breadth first, so that a value gets the order of the nearest convolution. The plan is
// advice: the rewriting converts wherever an op cannot follow it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_LAYOUT_LAYOUTPLAN_H
#define MEMOPT_LIB_TRANSFORMS_LAYOUT_LAYOUTPLAN_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/Block.h"
#include "llvm/ADT/DenseMap.h"

namespace mlir::memopt {

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

using DimOrder = SmallVector<int64_t>;

DimOrder getRowMajor(int64_t rank);
/// Batch, spatial dimensions, channels.
DimOrder getChannelsLast(int64_t rank);
bool isRowMajor(ArrayRef<int64_t> order);
/// Whether a tensor of `shape` has its elements in the same order either way: only dimensions of
/// size 1 move.
bool areSameBytes(ArrayRef<int64_t> a, ArrayRef<int64_t> b, ArrayRef<int64_t> shape);

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// What the op ties, by its LayoutOpInterface or as an elementwise op; nothing when it ties no
/// values.
std::optional<TiedValues> getTiedValues(Operation *op);
/// The order of the op's dimensions, some of size 1 left out, when tied value `number` lies in
/// `order`.
DimOrder expandOrder(const TiedValues &tied, size_t number, ArrayRef<int64_t> order);
/// The same of all the op's dimensions; nothing when the value lacks one.
std::optional<DimOrder> getOpOrder(const TiedValues &tied, size_t number, ArrayRef<int64_t> order);
/// The order of tied value `number` when the op's dimensions lie in `order`; nothing when elements
/// that one dimension stands for do not continue each other in memory.
std::optional<DimOrder> getValueOrder(const TiedValues &tied, size_t number,
                                      ArrayRef<int64_t> order);

/// Orders of the results of a block's ops. Deterministic: follows from the order of ops alone.
class LayoutPlan {
public:
  explicit LayoutPlan(Block &block);

  /// Row-major when nothing else was decided.
  DimOrder getOrder(Value value) const;
  bool hasConvolutions() const { return !orders.empty(); }
  /// One line for each value that is not row-major.
  void print(raw_ostream &os) const;

private:
  void assign(Value value, DimOrder order);
  void propagate(Operation *op, Value known, ArrayRef<int64_t> order);

  Block &block;
  llvm::DenseMap<Value, DimOrder> orders;
  SmallVector<Value> queue;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_LAYOUT_LAYOUTPLAN_H
