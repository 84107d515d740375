//===- IndexingOps.cpp - gathers, scatters, orders and scans -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Verification.h"
#include "memopt/Dialect/Memopt.h"

#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Gather and scatter
//===----------------------------------------------------------------------===//

/// What a gather and a scatter have in common: `points` is the shape that is walked, `tensor` what
/// is indexed.
static LogicalResult verifyIndexing(Operation *op, RankedTensorType tensor,
                                    ArrayRef<int64_t> points, ValueRange indices,
                                    ArrayRef<int64_t> indexed, ArrayRef<int64_t> positions) {
  if (indexed.size() != indices.size())
    return op->emitOpError() << "indexes " << indexed.size()
                             << " dimensions, expected one for each of " << indices.size()
                             << " index tensors";
  if (static_cast<int64_t>(indexed.size() + positions.size()) != tensor.getRank())
    return op->emitOpError() << "places " << indexed.size() + positions.size()
                             << " dimensions, expected all " << tensor.getRank() << " of "
                             << tensor;
  int64_t previous = -1;
  for (int64_t dim : indexed) {
    if (dim <= previous || dim >= tensor.getRank())
      return op->emitOpError() << "indexed dimensions must increase and lie below "
                               << tensor.getRank() << ", found " << dim;
    previous = dim;
  }
  llvm::SmallBitVector taken(points.size());
  const int64_t *position = positions.begin();
  for (int64_t dim = 0; dim < tensor.getRank(); ++dim) {
    if (llvm::is_contained(indexed, dim))
      continue;
    int64_t place = *position++;
    if (place < 0 || place >= static_cast<int64_t>(points.size()) || taken.test(place))
      return op->emitOpError() << "places dimension " << dim << " at " << place
                               << ", expected distinct places below " << points.size();
    taken.set(place);
    if (points[place] > tensor.getDimSize(dim))
      return op->emitOpError() << "reaches " << points[place] << " elements of dimension " << dim
                               << ", which has " << tensor.getDimSize(dim);
  }
  for (Value index : indices) {
    ArrayRef<int64_t> shape = tensorType(index).getShape();
    bool fits = shape.size() == points.size() &&
                llvm::all_of(llvm::zip_equal(shape, points), [](auto sizes) {
                  return std::get<0>(sizes) == 1 || std::get<0>(sizes) == std::get<1>(sizes);
                });
    if (!fits) {
      InFlightDiagnostic diagnostic = op->emitOpError() << "index tensor has shape [";
      llvm::interleaveComma(shape, diagnostic);
      diagnostic << "], expected sizes of 1 or those of [";
      llvm::interleaveComma(points, diagnostic);
      return diagnostic << "]";
    }
  }
  return success();
}

LogicalResult GatherOp::verify() {
  if (failed(verifyElementTypes(*this, {getSource(), getResult()})))
    return failure();
  return verifyIndexing(*this, tensorType(getSource()), tensorType(getResult()).getShape(),
                        getIndices(), getIndexed(), getPositions());
}

LogicalResult ScatterOp::verify() {
  if (failed(verifyElementTypes(*this, {getInput(), getUpdates(), getResult()})) ||
      failed(verifyShape(*this, "result", tensorType(getInput()).getShape(), getResult())))
    return failure();
  if (getKind() != ScatterKind::Set && tensorType(getInput()).getElementType().isInteger(1))
    return emitOpError("combines booleans, expected kind 'set'");
  return verifyIndexing(*this, tensorType(getInput()), tensorType(getUpdates()).getShape(),
                        getIndices(), getIndexed(), getPositions());
}

/// The input is copied first, element by element; nothing else reads it.
SmallVector<InPlaceOperand> ScatterOp::getInPlaceOperands(unsigned) { return {{0, false}}; }

/// The index tensors of a gather or scatter, which stand at the end of its operands.
static SmallVector<IndexUse> usesOf(Operation *op, RankedTensorType tensor,
                                    ArrayRef<int64_t> indexed, StringRef what, bool skips) {
  SmallVector<IndexUse> uses;
  unsigned first = op->getNumOperands() - indexed.size();
  for (auto [i, dim] : llvm::enumerate(indexed))
    uses.push_back(
        {&op->getOpOperand(first + i), tensor.getDimSize(dim), std::nullopt, what, skips});
  return uses;
}
SmallVector<IndexUse> GatherOp::getIndexUses() {
  return usesOf(*this, tensorType(getSource()), getIndexed(), "elements of a gather",
                /*skips=*/false);
}
SmallVector<IndexUse> ScatterOp::getIndexUses() {
  return usesOf(*this, tensorType(getInput()), getIndexed(), "elements of a scatter",
                /*skips=*/true);
}

//===----------------------------------------------------------------------===//
// Orders and scans
//===----------------------------------------------------------------------===//

static LogicalResult verifyAxis(Operation *op, int64_t axis) {
  int64_t rank = tensorType(op->getOperand(0)).getRank();
  if (axis < 0 || axis >= rank)
    return op->emitOpError() << "goes along axis " << axis << ", expected one below " << rank;
  return success();
}

LogicalResult ArgsortOp::verify() {
  if (failed(verifyAxis(*this, getAxis())))
    return failure();
  ArrayRef<int64_t> result = tensorType(getResult()).getShape();
  SmallVector<int64_t> expected(tensorType(getInput()).getShape());
  int64_t &wanted = expected[getAxis()];
  if (result.size() == expected.size() && result[getAxis()] <= wanted)
    wanted = result[getAxis()];
  return verifyShape(*this, "result", expected, getResult());
}

LogicalResult LinearScanOp::verify() { return verifyAxis(*this, getAxis()); }
LogicalResult LogSumExpScanOp::verify() { return verifyAxis(*this, getAxis()); }

LogicalResult ArgextremeScanOp::verify() {
  if (failed(verifyAxis(*this, getAxis())))
    return failure();
  if (getKind() != ReduceKind::Max && getKind() != ReduceKind::Min)
    return emitOpError("expects kind 'max' or 'min'");
  return verifyShape(*this, "result", tensorType(getInput()).getShape(), getResult());
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

static int64_t countElements(Value value) { return tensorType(value).getNumElements(); }

int64_t GatherOp::getFlops() { return 0; }
int64_t ScatterOp::getFlops() {
  return getKind() == ScatterKind::Set ? 0 : countElements(getUpdates());
}
int64_t ArgsortOp::getFlops() {
  return countElements(getInput()) *
         llvm::Log2_64_Ceil(tensorType(getResult()).getDimSize(getAxis()) + 1);
}
int64_t LinearScanOp::getFlops() { return 2 * countElements(getResult()); }
int64_t LogSumExpScanOp::getFlops() { return 4 * countElements(getResult()); }
int64_t ArgextremeScanOp::getFlops() { return countElements(getResult()); }
