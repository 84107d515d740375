//===- WriteOutAttention.cpp - attention as products and a softmax -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For devices, where heads are too wide for kernels. With n query heads for each head of keys,
//
//   scores        = scale q k^T                      [B, G, n T, S], then [B, G n, T, S]
//   probabilities = softmax(visible ? scores : lowest)
//   result        = dropout(visible ? probabilities : 0) v
//
// Hidden scores are the lowest finite number, so that a row of which nothing is visible stays
// finite; its probabilities are zero. Where only keys behind a query are hidden every row sees its
// first key, and no probability needs to be looked at again: the others' are zero already.
//
// 16-bit numbers are widened first: scores and probabilities rounded to them would cost more than
// the operands' own rounding did.
//
// The scores are a tensor here, of a size that the sequences' lengths are multiplied for. What
// recomputation makes of that is the planner's.
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Kernels/AttentionTiles.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_WRITEOUTATTENTIONPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

namespace {
class AttentionWriter {
public:
  explicit AttentionWriter(AttentionOp op)
      : op(op), b(op.getLoc(), op),
        element(getComputeType(tensorType(op.getQuery()).getElementType())) {
    query = widen(op.getQuery());
    key = widen(op.getKey());
    value = widen(op.getValue());
    ArrayRef<int64_t> q = tensorType(query).getShape(), k = tensorType(key).getShape();
    batch = q[0];
    heads = q[1];
    queries = q[2];
    groups = k[1];
    keys = k[2];
  }

  /// Replaces the op. Gives the scores' type.
  RankedTensorType write() {
    RankedTensorType type = tensor({batch, heads, queries, keys});
    Value scores = ungroup(MatmulOp::create(b, tensor({batch, groups, groupRows(), keys}),
                                            group(query), key, /*transpose_a=*/false,
                                            /*transpose_b=*/true));
    scores = arith::MulFOp::create(
        b, scores, createSplat(b, b.getLoc(), type, op.getScaleAttr().getValueAsDouble()));
    scores = addMask(scores);
    Value visible = findVisible(scores);
    if (visible)
      scores = arith::SelectOp::create(b, visible, scores, lowest(type));
    Value probabilities =
        SoftmaxOp::create(b, type, scores, b.getI64IntegerAttr(type.getRank() - 1));
    if (op.getMask())
      probabilities = arith::SelectOp::create(b, visible, probabilities, splat(type, 0));
    replace(ungroup(MatmulOp::create(
        b, tensor({batch, groups, groupRows(), tensorType(value).getDimSize(3)}),
        group(drop(probabilities)), value, /*transpose_a=*/false, /*transpose_b=*/false)));
    return type;
  }

private:
  RankedTensorType tensor(ArrayRef<int64_t> shape) { return RankedTensorType::get(shape, element); }
  int64_t groupRows() const { return heads / groups * queries; }

  Value widen(Value narrow) { return convertFloats(b, b.getLoc(), narrow, element); }
  Value splat(RankedTensorType type, double number) {
    return createSplat(b, b.getLoc(), type, number);
  }
  Value lowest(RankedTensorType type) {
    const llvm::fltSemantics &semantics = cast<FloatType>(element).getFloatSemantics();
    APFloat number = APFloat::getLargest(semantics, /*Negative=*/true);
    return arith::ConstantOp::create(b, DenseElementsAttr::get(type, number));
  }
  Value repeat(Value mask, RankedTensorType type) {
    RankedTensorType from = tensorType(mask);
    if (from.getShape() == type.getShape())
      return mask;
    SmallVector<int64_t> dimensions =
        llvm::to_vector(llvm::seq<int64_t>(type.getRank() - from.getRank(), type.getRank()));
    return BroadcastOp::create(b, type.clone(from.getElementType()), mask, dimensions);
  }

  /// [B, G n, rows, columns] as [B, G, n rows, columns].
  Value group(Value whole) {
    if (heads == groups)
      return whole;
    ArrayRef<int64_t> shape = tensorType(whole).getShape();
    Value split = tensor::ExpandShapeOp::create(
        b, tensor({batch, groups, heads / groups, shape[2], shape[3]}), whole,
        ArrayRef<ReassociationIndices>{{0}, {1, 2}, {3}, {4}});
    return tensor::CollapseShapeOp::create(b, split,
                                           ArrayRef<ReassociationIndices>{{0}, {1}, {2, 3}, {4}});
  }
  /// The other way.
  Value ungroup(Value grouped) {
    if (heads == groups)
      return grouped;
    int64_t columns = tensorType(grouped).getDimSize(3);
    Value split = tensor::ExpandShapeOp::create(
        b, tensor({batch, groups, heads / groups, queries, columns}), grouped,
        ArrayRef<ReassociationIndices>{{0}, {1}, {2, 3}, {4}});
    return tensor::CollapseShapeOp::create(b, split,
                                           ArrayRef<ReassociationIndices>{{0}, {1, 2}, {3}, {4}});
  }

  /// Adds a mask of numbers.
  Value addMask(Value scores) {
    Value mask = op.getMask();
    if (!mask || tensorType(mask).getElementType().isInteger(1))
      return scores;
    return arith::AddFOp::create(b, scores, repeat(widen(mask), tensorType(scores)));
  }

  /// What takes part, or null where everything does: what a mask of booleans says, scores that a
  /// mask of numbers leaves above minus infinity, and keys up to the query's number.
  Value findVisible(Value scores) {
    RankedTensorType type = tensorType(scores), bits = type.clone(b.getI1Type());
    Value visible;
    if (Value mask = op.getMask()) {
      if (tensorType(mask).getElementType().isInteger(1))
        visible = repeat(mask, bits);
      else
        visible = arith::CmpFOp::create(b, arith::CmpFPredicate::UGT, scores,
                                        splat(type, -std::numeric_limits<double>::infinity()));
    }
    if (!op.getCausal())
      return visible;
    RankedTensorType numbers = type.clone(b.getI64Type());
    Value row = IotaOp::create(b, numbers, b.getI64IntegerAttr(2));
    Value column = IotaOp::create(b, numbers, b.getI64IntegerAttr(3));
    Value past = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, column, row);
    return visible ? Value(arith::AndIOp::create(b, visible, past)) : past;
  }

  Value drop(Value probabilities) {
    double dropped = op.getDropoutAttr().getValueAsDouble();
    if (dropped == 0)
      return probabilities;
    RankedTensorType type = tensorType(probabilities);
    Value kept = DropoutMaskOp::create(b, type.clone(b.getI1Type()), op.getSeed(), op.getStep(),
                                       op.getFirst(), op.getDropoutAttr(), op.getIdAttr(),
                                       DenseI64ArrayAttr());
    Value scaled = arith::MulFOp::create(b, probabilities, splat(type, 1 / (1 - dropped)));
    return arith::SelectOp::create(b, kept, scaled, splat(type, 0));
  }

  void replace(Value result) {
    Type type = tensorType(op.getResult()).getElementType();
    op.getResult().replaceAllUsesWith(convertFloats(b, b.getLoc(), result, type));
    op.erase();
  }

  AttentionOp op;
  ImplicitLocOpBuilder b;
  Type element;
  Value query, key, value;
  int64_t batch, heads, queries, groups, keys;
};

/// A device's kernels hold whole vectors of a tile's queries and keys.
bool isComputedByKernels(AttentionOp op) {
  auto features = [](Value vectors) {
    return cast<RankedTensorType>(vectors.getType()).getDimSize(3);
  };
  Type element = cast<RankedTensorType>(op.getQuery().getType()).getElementType();
  return fitsAttentionTiles(
      {features(op.getKey()), features(op.getValue()), getComputeType(element)},
      getBlockSharedBytes(getTarget(op)));
}

struct WriteOutAttentionPass
    : mlir::memopt::impl::WriteOutAttentionPassBase<WriteOutAttentionPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (getTarget(function).computesAttention())
      return;
    SmallVector<AttentionOp> attentions;
    function.walk([&](AttentionOp op) { attentions.push_back(op); });
    for (AttentionOp op : attentions) {
      if (isComputedByKernels(op))
        continue;
      // Who reads the logarithms wants the library's own backward pass.
      if (!op.getLogsumexp().use_empty())
        continue;
      Location location = op.getLoc();
      RankedTensorType scores = AttentionWriter(op).write();
      remark::passed(location, remark::RemarkOpts::name("WriteOutAttention")
                                   .category("memopt-write-out-attention")
                                   .function(function.getName()))
          << remark::metric("ScoresBytes", getTensorBytes(scores));
    }
  }
};
} // namespace
