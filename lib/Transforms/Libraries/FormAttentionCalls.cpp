//===- FormAttentionCalls.cpp - attention to library calls ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Libraries/FormLibraryCalls.h"
#include "memopt/Transforms/Libraries/LibraryCallBuilder.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Strides of what attention reads and writes, as [batch, head, token, feature].
struct AttentionStrides {
  SmallVector<int64_t> q, k, v, o, dO, dq, dk, dv, mask, dMask;
};
} // namespace

/// Vectors of features must be contiguous; all other strides are free.
static SmallVector<int64_t> addHeads(LibraryCallBuilder &builder, Value value) {
  StridedView view = getStridedView(value);
  if (view.strides.back() != 1 && view.shape.back() != 1)
    view = getPackedView(value);
  builder.addOperand(view);
  return view.strides;
}

/// Strides over the scores of a mask, or of its gradient: a size of 1 is repeated.
static SmallVector<int64_t> repeatOnes(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides) {
  SmallVector<int64_t> repeated(4, 0);
  size_t missing = 4 - shape.size();
  for (auto [dim, size] : llvm::enumerate(shape))
    repeated[dim + missing] = size == 1 ? 0 : strides[dim];
  return repeated;
}

static SmallVector<int64_t> addMask(LibraryCallBuilder &builder, Value mask) {
  StridedView view = getStridedView(mask);
  builder.addOperand(view);
  return repeatOnes(view.shape, view.strides);
}

/// A transposition of heads and tokens may be folded; one that takes features apart may not.
static SmallVector<int64_t> addHeadsResult(LibraryCallBuilder &builder, Value result) {
  std::optional<SmallVector<int64_t>> order = getCommonOrder(result);
  return builder.addResult(result, order && order->back() == 3);
}

/// Queries, keys, values, mask, seed, step and first number: what both directions read first.
template <typename OpType>
static AttentionStrides addInputs(LibraryCallBuilder &builder, OpType op) {
  AttentionStrides strides;
  strides.q = addHeads(builder, op.getQuery());
  strides.k = addHeads(builder, op.getKey());
  strides.v = addHeads(builder, op.getValue());
  if (Value mask = op.getMask())
    strides.mask = addMask(builder, mask);
  if (op.getDropoutAttr().getValueAsDouble() > 0) {
    builder.addPacked(op.getSeed());
    builder.addPacked(op.getStep());
    if (op.getFirst())
      builder.addPacked(op.getFirst());
  }
  return strides;
}

template <typename OpType>
static AttentionAttr describe(OpType op, AttentionKind kind, const AttentionStrides &s) {
  ArrayRef<int64_t> query = tensorType(op.getQuery()).getShape();
  ArrayRef<int64_t> key = tensorType(op.getKey()).getShape();
  Type type = tensorType(op.getQuery()).getElementType();
  Type mask = op.getMask() ? tensorType(op.getMask()).getElementType() : Type();
  bool drops = op.getDropoutAttr().getValueAsDouble() > 0;
  auto emitError = [&] { return op.emitOpError(); };
  return AttentionAttr::getChecked(
      function_ref<InFlightDiagnostic()>(emitError), op.getContext(), kind, query[0], query[1],
      key[1], query[2], key[2], query[3], tensorType(op.getValue()).getShape()[3],
      op.getScaleAttr(), op.getCausal(), ArrayRef(s.q), ArrayRef(s.k), ArrayRef(s.v), ArrayRef(s.o),
      ArrayRef(s.dO), ArrayRef(s.dq), ArrayRef(s.dk), ArrayRef(s.dv), mask, ArrayRef(s.mask),
      ArrayRef(s.dMask), drops ? op.getDropoutAttr() : FloatAttr(),
      drops ? op.getIdAttr().getInt() : int64_t(0), drops && op.getFirst(), type,
      getComputeType(type));
}

static LogicalResult replace(Operation *op, LibraryCallBuilder &builder, AttentionAttr call) {
  if (!call)
    return failure();
  FailureOr<LibraryCallOp> made = builder.create(call);
  if (failed(made))
    return failure();
  for (auto [old, result] : llvm::zip_equal(op->getResults(), made->getResults()))
    builder.replaceResult(old, result);
  op->erase();
  return success();
}

LogicalResult mlir::memopt::formAttentionCall(AttentionOp op) {
  LibraryCallBuilder builder(op);
  AttentionStrides strides = addInputs(builder, op);
  strides.o = addHeadsResult(builder, op.getResult());
  builder.addResult(op.getLogsumexp(), /*mayPermute=*/false);
  return replace(op, builder, describe(op, AttentionKind::Forward, strides));
}

LogicalResult mlir::memopt::formAttentionCall(AttentionBackwardOp op) {
  LibraryCallBuilder builder(op);
  AttentionStrides strides = addInputs(builder, op);
  strides.o = addHeads(builder, op.getOutput());
  builder.addPacked(op.getLogsumexp());
  strides.dO = addHeads(builder, op.getGradient());
  strides.dq = addHeadsResult(builder, op.getQueryGradient());
  strides.dk = addHeadsResult(builder, op.getKeyGradient());
  strides.dv = addHeadsResult(builder, op.getValueGradient());
  if (Value mask = op.getMaskGradient())
    strides.dMask =
        repeatOnes(tensorType(mask).getShape(), builder.addResult(mask, /*mayPermute=*/false));
  return replace(op, builder, describe(op, AttentionKind::Backward, strides));
}
