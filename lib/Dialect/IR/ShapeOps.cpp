//===- ShapeOps.cpp - broadcasts, transposes, reductions, gathers -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Verification.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// BroadcastOp
//===----------------------------------------------------------------------===//

LogicalResult BroadcastOp::verify() {
  RankedTensorType from = tensorType(getInput()), to = tensorType(getResult());
  if (failed(verifyElementTypes(*this, {getInput(), getResult()})))
    return failure();
  if (static_cast<int64_t>(getDimensions().size()) != from.getRank())
    return emitOpError() << "lists " << getDimensions().size()
                         << " dimensions, expected one for each of the " << from.getRank()
                         << " of the input";
  int64_t previous = -1;
  for (auto [index, dimension] : llvm::enumerate(getDimensions())) {
    if (dimension <= previous || dimension >= to.getRank())
      return emitOpError() << "dimensions must increase and lie below " << to.getRank()
                           << ", found " << dimension;
    previous = dimension;
    int64_t size = from.getDimSize(index);
    if (size != 1 && size != to.getDimSize(dimension))
      return emitOpError() << "input dimension " << index << " has size " << size
                           << ", expected 1 or " << to.getDimSize(dimension);
  }
  return success();
}

/// A broadcast constant stays a broadcast: lowering reads through it, and a larger constant would
/// gain nothing.
OpFoldResult BroadcastOp::fold(FoldAdaptor) {
  return getInput().getType() == getResult().getType() ? OpFoldResult(getInput()) : OpFoldResult();
}

//===----------------------------------------------------------------------===//
// TransposeOp
//===----------------------------------------------------------------------===//

LogicalResult TransposeOp::verify() {
  RankedTensorType from = tensorType(getInput());
  if (failed(verifyElementTypes(*this, {getInput(), getResult()})))
    return failure();
  llvm::SmallBitVector seen(from.getRank());
  SmallVector<int64_t> expected;
  for (int64_t dimension : getPermutation()) {
    if (dimension < 0 || dimension >= from.getRank() || seen.test(dimension))
      return emitOpError() << "is no permutation of " << from.getRank()
                           << " dimensions: repeats or exceeds with " << dimension;
    seen.set(dimension);
    expected.push_back(from.getDimSize(dimension));
  }
  if (!seen.all())
    return emitOpError() << "permutes " << seen.count() << " dimensions, expected "
                         << from.getRank();
  return verifyShape(*this, "result", expected, getResult());
}

/// One that changes nothing is its input, two are one.
OpFoldResult TransposeOp::fold(FoldAdaptor) {
  auto isIdentity = [](ArrayRef<int64_t> permutation) {
    return llvm::equal(permutation, llvm::seq<int64_t>(0, permutation.size()));
  };
  if (isIdentity(getPermutation()))
    return getInput();
  auto first = getInput().getDefiningOp<TransposeOp>();
  if (!first)
    return {};
  SmallVector<int64_t> both = llvm::map_to_vector(
      getPermutation(), [&](int64_t dimension) { return first.getPermutation()[dimension]; });
  if (isIdentity(both))
    return first.getInput();
  setPermutation(both);
  getInputMutable().assign(first.getInput());
  return getResult();
}

//===----------------------------------------------------------------------===//
// ReduceOp, CountOp, PadOp, IotaOp
//===----------------------------------------------------------------------===//

/// Which dimensions of the input `op` names.
static FailureOr<llvm::SmallBitVector> getNamed(Operation *op, ArrayRef<int64_t> dimensions,
                                                int64_t rank, StringRef verb) {
  llvm::SmallBitVector named(rank);
  for (int64_t dimension : dimensions) {
    if (dimension < 0 || dimension >= rank || named.test(dimension))
      return op->emitOpError() << verb << " dimension " << dimension
                               << ", expected distinct ones below " << rank;
    named.set(dimension);
  }
  return named;
}

LogicalResult ReduceOp::verify() {
  RankedTensorType from = tensorType(getInput());
  if (failed(verifyElementTypes(*this, {getInput(), getResult()})))
    return failure();
  FailureOr<llvm::SmallBitVector> reduced =
      getNamed(*this, getDimensions(), from.getRank(), "reduces");
  if (failed(reduced))
    return failure();
  SmallVector<int64_t> expected;
  for (int64_t dimension = 0; dimension < from.getRank(); ++dimension)
    if (!reduced->test(dimension))
      expected.push_back(from.getDimSize(dimension));
  return verifyShape(*this, "result", expected, getResult());
}

LogicalResult CountOp::verify() {
  int64_t rank = tensorType(getInput()).getRank();
  if (failed(getNamed(*this, getDimensions(), rank, "counts")))
    return failure();
  return verifyShape(*this, "result", {}, getResult());
}

LogicalResult PadOp::verify() {
  RankedTensorType from = tensorType(getInput());
  size_t rank = from.getRank();
  if (failed(verifyElementTypes(*this, {getInput(), getResult()})))
    return failure();
  if (getLow().size() != rank || getHigh().size() != rank)
    return emitOpError() << "expects one low and one high padding for each of the " << rank
                         << " dimensions";
  SmallVector<int64_t> expected;
  for (auto [size, low, high] : llvm::zip(from.getShape(), getLow(), getHigh())) {
    if (low < 0 || high < 0)
      return emitOpError() << "padding must not be negative, found " << std::min(low, high);
    expected.push_back(size + low + high);
  }
  return verifyShape(*this, "result", expected, getResult());
}

LogicalResult ReverseOp::verify() {
  int64_t rank = tensorType(getInput()).getRank();
  llvm::SmallBitVector seen(rank);
  for (int64_t dimension : getDimensions()) {
    if (dimension < 0 || dimension >= rank || seen.test(dimension))
      return emitOpError() << "reverses dimension " << dimension
                           << ", expected distinct ones below " << rank;
    seen.set(dimension);
  }
  return success();
}

int64_t CountOp::getCount() {
  int64_t count = 1;
  for (int64_t dimension : getDimensions())
    count *= tensorType(getInput()).getDimSize(dimension);
  return count;
}

int64_t CountOp::getFlops() { return 0; }

LogicalResult IotaOp::verify() {
  int64_t rank = tensorType(getResult()).getRank(), dimension = getDimension();
  if (dimension < 0 || dimension >= rank)
    return emitOpError() << "counts along dimension " << dimension << ", expected one below "
                         << rank;
  return success();
}

//===----------------------------------------------------------------------===//
// EmbeddingOp
//===----------------------------------------------------------------------===//

LogicalResult EmbeddingOp::verify() {
  RankedTensorType table = tensorType(getTable());
  if (table.getRank() != 2)
    return emitOpError() << "expects a table of rank 2, found " << table;
  if (failed(verifyElementTypes(*this, {getTable(), getResult()})))
    return failure();
  SmallVector<int64_t> expected(tensorType(getIndices()).getShape());
  expected.push_back(table.getDimSize(1));
  return verifyShape(*this, "result", expected, getResult());
}

LogicalResult EmbeddingBackwardOp::verify() {
  RankedTensorType table = tensorType(getResult());
  if (table.getRank() != 2)
    return emitOpError() << "expects a table of rank 2, found " << table;
  if (failed(verifyElementTypes(*this, {getGradient(), getResult()})))
    return failure();
  SmallVector<int64_t> expected(tensorType(getIndices()).getShape());
  expected.push_back(table.getDimSize(1));
  return verifyShape(*this, "gradient", expected, getGradient());
}

static IndexUse rowsOf(OpOperand &indices, RankedTensorType table, bool skips) {
  return {&indices, table.getDimSize(0), std::nullopt, "rows of an embedding", skips};
}

SmallVector<IndexUse> EmbeddingOp::getIndexUses() {
  return {rowsOf(getIndicesMutable(), tensorType(getTable()), /*skips=*/false)};
}
SmallVector<IndexUse> EmbeddingBackwardOp::getIndexUses() {
  return {rowsOf(getIndicesMutable(), tensorType(getResult()), /*skips=*/true)};
}

//===----------------------------------------------------------------------===//
// CheckOp
//===----------------------------------------------------------------------===//

int64_t CheckOp::getFlops() {
  auto type = dyn_cast<RankedTensorType>(getResult().getType());
  return type ? 3 * type.getNumElements() : 3;
}

/// Integers have no gradient.
LogicalResult CheckOp::differentiate(OpBuilder &, ArrayRef<Value>, ArrayRef<bool>,
                                     MutableArrayRef<Value>) {
  return success();
}

//===----------------------------------------------------------------------===//
// Costs: these ops move bytes; arithmetic is one operation an element
//===----------------------------------------------------------------------===//

int64_t BroadcastOp::getFlops() { return 0; }
int64_t TransposeOp::getFlops() { return 0; }
int64_t PadOp::getFlops() { return 0; }
int64_t IotaOp::getFlops() { return 0; }
int64_t ReverseOp::getFlops() { return 0; }
int64_t EmbeddingOp::getFlops() { return 0; }
int64_t EmbeddingBackwardOp::getFlops() { return tensorType(getGradient()).getNumElements(); }
int64_t ReduceOp::getFlops() { return tensorType(getInput()).getNumElements(); }
