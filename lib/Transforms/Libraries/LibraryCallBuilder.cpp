//===- LibraryCallBuilder.cpp - one op on its way to a library call -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Libraries/LibraryCallBuilder.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

void LibraryCallBuilder::addOperand(const StridedView &view) {
  operands.push_back(view.buffer);
  offsets.push_back(view.offset);
}

void LibraryCallBuilder::addPacked(Value value) {
  StridedView view = getStridedView(value);
  addOperand(view.isPacked() ? view : getPackedView(value));
}

/// Gradients that shrink from layer to layer become denormal numbers, with which many processors take a
/// hundred times as long. What is computed again is to have the bits that it had.
static bool flushesDenormals(Operation *op) {
  if (auto call = dyn_cast<LibraryCallOp>(op))
    return call.getFlushDenormals();
  return getPhase(op) == Phase::Backward && !op->hasAttr(MemoptDialect::kCloneAttr) &&
         !getTarget(op).isDevice();
}

FailureOr<LibraryCallOp> mlir::memopt::createLibraryCall(OpBuilder &builder, Operation *op,
                                                         TypeRange results, ValueRange operands,
                                                         LibraryCallAttrInterface call,
                                                         ArrayRef<int64_t> offsets) {
  auto implementations = getTarget(op).getImplementations(call, [&] { return op->emitOpError(); });
  if (failed(implementations))
    return failure();
  auto made = LibraryCallOp::create(builder, op->getLoc(), results, operands, call, offsets,
                                    implementations->front());
  made.setPhase(getPhase(op));
  made.setFlushDenormals(flushesDenormals(op));
  return made;
}

FailureOr<LibraryCallOp> LibraryCallBuilder::create(LibraryCallAttrInterface call) {
  OpBuilder b(op);
  FailureOr<LibraryCallOp> made = createLibraryCall(b, op, resultTypes, operands, call, offsets);
  if (succeeded(made))
    moveActivationNumber(op, *made);
  return made;
}

void mlir::memopt::moveActivationNumber(Operation *from, Operation *to) {
  if (auto cut = dyn_cast<tensor::ExtractSliceOp>(to)) // of padded lines
    to = cut.getSource().getDefiningOp();
  if (Attribute number = from->getDiscardableAttr(MemoptDialect::kActivationsAttr))
    to->setDiscardableAttr(MemoptDialect::kActivationsAttr, number);
}

//===----------------------------------------------------------------------===//
// Results in another order
//===----------------------------------------------------------------------===//

/// The permutation by which `use` reads its operand, or nothing when it reads otherwise: result
/// dimension i of what it wants is dimension permutation[i] of the operand.
static std::optional<SmallVector<int64_t>> getWantedOrder(OpOperand &use) {
  if (auto transpose = dyn_cast<TransposeOp>(use.getOwner()))
    return SmallVector<int64_t>(transpose.getPermutation());
  auto generic = dyn_cast<linalg::GenericOp>(use.getOwner());
  if (!generic)
    return std::nullopt;
  AffineMap map = generic.getMatchingIndexingMap(&use);
  if (!map.isPermutation())
    return std::nullopt;
  SmallVector<int64_t> order(map.getNumResults());
  for (auto [dim, expr] : llvm::enumerate(map.getResults()))
    order[cast<AffineDimExpr>(expr).getPosition()] = dim;
  return order;
}

/// Whether the user reads its operand through strides, in whatever order it lies.
static bool isStrided(Operation *user) { return user->hasTrait<OpTrait::ReadsStrides>(); }

std::optional<SmallVector<int64_t>> mlir::memopt::getCommonOrder(Value result) {
  std::optional<SmallVector<int64_t>> common;
  for (OpOperand &use : result.getUses()) {
    if (isStrided(use.getOwner()))
      continue;
    std::optional<SmallVector<int64_t>> order = getWantedOrder(use);
    if (!order || (common && *common != *order))
      return std::nullopt;
    common = order;
  }
  if (!common || llvm::is_sorted(*common))
    return std::nullopt;
  return common;
}

/// Replaces `old` by `permuted`, which has old's dimensions in `order`; uses want that order or
/// none.
static void replacePermuted(Value old, Value permuted, ArrayRef<int64_t> order) {
  for (OpOperand &use : llvm::make_early_inc_range(old.getUses())) {
    if (isStrided(use.getOwner())) {
      SmallVector<int64_t> inverse(order.size());
      for (auto [to, from] : llvm::enumerate(order))
        inverse[from] = to;
      OpBuilder b(use.getOwner());
      use.set(TransposeOp::create(b, old.getLoc(), old.getType(), permuted,
                                  b.getDenseI64ArrayAttr(inverse)));
      continue;
    }
    if (auto transpose = dyn_cast<TransposeOp>(use.getOwner())) {
      transpose.getResult().replaceAllUsesWith(permuted);
      transpose.erase();
      continue;
    }
    auto generic = cast<linalg::GenericOp>(use.getOwner());
    SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
    unsigned rank = maps[use.getOperandNumber()].getNumDims();
    maps[use.getOperandNumber()] = AffineMap::getMultiDimIdentityMap(rank, old.getContext());
    generic.setIndexingMapsAttr(Builder(old.getContext()).getAffineMapArrayAttr(maps));
    use.set(permuted);
  }
}

SmallVector<int64_t> mlir::memopt::padLines(ArrayRef<int64_t> shape, int64_t unit) {
  SmallVector<int64_t> padded(shape);
  if (!padded.empty())
    padded.back() = static_cast<int64_t>(llvm::alignTo(padded.back(), unit));
  return padded;
}

Value mlir::memopt::cutLines(OpBuilder &builder, Value value, ArrayRef<int64_t> shape) {
  SmallVector<OpFoldResult> begin(shape.size(), builder.getIndexAttr(0)),
      step(shape.size(), builder.getIndexAttr(1)), size;
  for (int64_t extent : shape)
    size.push_back(builder.getIndexAttr(extent));
  return tensor::ExtractSliceOp::create(builder, value.getLoc(), value, begin, size, step);
}

SmallVector<int64_t> LibraryCallBuilder::addResult(Value result, bool mayPermute, int64_t unit,
                                                   std::optional<int64_t> rows) {
  RankedTensorType type = tensorType(result);
  std::optional<SmallVector<int64_t>> order;
  if (mayPermute)
    order = getCommonOrder(result);
  orders.push_back(order.value_or(SmallVector<int64_t>()));
  SmallVector<int64_t> shape(type.getShape());
  if (order)
    shape = llvm::map_to_vector(*order, [&](int64_t dim) { return type.getDimSize(dim); });
  shapes.push_back(shape);
  SmallVector<int64_t> padded = padLines(shape, unit), strides = computeStrides(padded);
  if (rows && !order)
    padded[padded.size() - 2] = *rows;
  resultTypes.push_back(RankedTensorType::get(padded, type.getElementType()));
  if (!order)
    return strides;
  SmallVector<int64_t> own(order->size());
  for (auto [dim, stride] : llvm::zip_equal(*order, strides))
    own[dim] = stride;
  return own;
}

Value LibraryCallBuilder::getResult(LibraryCallOp made) const {
  Value whole = made->getResult(0);
  if (tensorType(whole).getShape() == ArrayRef(shapes.front()))
    return whole;
  OpBuilder b(made->getContext());
  b.setInsertionPointAfter(made);
  Value lines = cutLines(b, whole, shapes.front());
  setPhase(lines.getDefiningOp(), getPhase(op));
  return lines;
}

void LibraryCallBuilder::replaceResult(OpResult old, Value made) const {
  ArrayRef<int64_t> order = orders[old.getResultNumber()];
  if (order.empty())
    old.replaceAllUsesWith(made);
  else
    replacePermuted(old, made, order);
}
