//===- Attention.cpp - scaled dot product attention -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A causal mask that reaches an attention as a known tensor becomes its `causal` flag, one of all
// ones vanishes: either way no mask exists at run time. Other masks keep size 1 where they repeat.
//
// Key and value heads that were repeated for grouped queries are taken unrepeated:
//
//   collapse_shape(broadcast(expand_shape(k)))   [B, G, S, D] -> [B, G, n, S, D] -> [B, G * n, S,
//   D]
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

/// All but the last two dimensions, of which there are two at least, as batch and heads.
static Expected<Tensor> withFourDimensions(OpContext &op, const Tensor &tensor) {
  Shape sizes(ArrayRef(tensor.sizes).take_back(3));
  if (tensor.rank() == 2)
    sizes.insert(sizes.begin(), 1);
  int64_t batch = 1;
  for (int64_t size : ArrayRef(tensor.sizes).drop_back(std::min<int64_t>(3, tensor.rank())))
    batch *= size;
  if (tensor.rank() == 3) // [batch, tokens, features]: one head
    sizes = {sizes[0], 1, sizes[1], sizes[2]};
  else
    sizes.insert(sizes.begin(), batch);
  return reshape(op, tensor, sizes);
}

/// Dimensions in front of rows and features as PyTorch broadcasts them. Keys and values whose heads
/// come in groups keep them; a single head is one group.
static Error broadcastBatches(OpContext &op, Tensor &query, Tensor &key, Tensor &value) {
  Tensor *tensors[] = {&query, &key, &value};
  auto hasHeads = [](const Tensor *tensor) { return tensor->rank() >= 4; };
  auto isOneHead = [&](const Tensor &tensor) { return tensor.sizes.end()[-3] == 1; };
  bool isGrouped =
      all_of(tensors, hasHeads) && (op.flag("enable_gqa") || (isOneHead(key) && isOneHead(value)));
  unsigned kept = isGrouped ? 3 : 2;
  Shape common;
  for (Tensor *tensor : tensors) {
    if (tensor->rank() < 2)
      return op.error("expected tensors of rank 2 at least, found " + toString(tensor->sizes));
    ASSIGN_OR_RETURN(common, broadcastShapes(op, common, ArrayRef(tensor->sizes).drop_back(kept)));
  }
  for (Tensor *tensor : tensors) {
    Shape sizes(common);
    append_range(sizes, ArrayRef(tensor->sizes).take_back(kept));
    if (sizes != tensor->sizes) {
      ASSIGN_OR_RETURN(*tensor, expand(op, *tensor, sizes));
    }
  }
  return Error::success();
}

/// The heads before they were repeated, or the value itself.
static Value skipRepeatedHeads(Value value) {
  auto collapse = value.getDefiningOp<mlir::tensor::CollapseShapeOp>();
  if (!collapse)
    return value;
  auto broadcast = collapse.getSrc().getDefiningOp<mlir::memopt::BroadcastOp>();
  if (!broadcast)
    return value;
  auto expand = broadcast.getInput().getDefiningOp<mlir::tensor::ExpandShapeOp>();
  if (!expand)
    return value;
  auto to = cast<RankedTensorType>(broadcast.getResult().getType()).getShape();
  auto from = cast<RankedTensorType>(expand.getResult().getType()).getShape();
  auto heads = cast<RankedTensorType>(expand.getSrc().getType()).getShape();
  auto collapsed = cast<RankedTensorType>(value.getType()).getShape();
  if (to.size() != 5 || from.size() != 5 || heads.size() != 4 || from[2] != 1)
    return value;
  Shape unrepeated{from[0], from[1], from[3], from[4]}, wanted{to[0], to[1] * to[2], to[3], to[4]};
  bool onlyHeadsRepeat =
      from[0] == to[0] && from[1] == to[1] && from[3] == to[3] && from[4] == to[4];
  if (!onlyHeadsRepeat || heads != ArrayRef(unrepeated) || collapsed != ArrayRef(wanted))
    return value;
  return expand.getSrc();
}

/// Element [.., i, j] is true exactly when j <= i.
static bool isCausal(const ConstantTensor &mask) {
  ArrayRef<int64_t> extents = mask.getExtents();
  if (extents[0] != 1 || extents[1] != 1 || extents[2] != mask.getSizes()[2] ||
      extents[3] != mask.getSizes()[3])
    return false;
  for (int64_t i = 0, element = 0; i != extents[2]; ++i)
    for (int64_t j = 0; j != extents[3]; ++j)
      if (mask.getStored(element++) != (j <= i))
        return false;
  return true;
}

namespace {
struct Mask {
  Value value; ///< null when nothing is masked but by `causal`
  bool causal = false;
};
} // namespace

static Expected<Mask> getMask(OpContext &op, const Tensor &query, ArrayRef<int64_t> scores) {
  Mask result;
  result.causal = op.flag("is_causal");
  std::optional<Tensor> mask = op.optionalTensor("attn_mask");
  if (!mask)
    return result;
  if (result.causal)
    return op.error("has both attn_mask and is_causal");
  if (mask->dtype != DType::Bool && mask->dtype != query.dtype)
    return op.error("expected a mask of booleans or " + getName(query.dtype) + ", found " +
                    getName(mask->dtype));
  // Right-aligned to the query's own rank, then to four dimensions.
  Shape sizes(std::max<int64_t>(0, query.rank() - mask->rank()), 1);
  append_range(sizes, mask->sizes);
  ASSIGN_OR_RETURN(Tensor aligned, reshape(op, *mask, sizes));
  ASSIGN_OR_RETURN(aligned, withFourDimensions(op, aligned));
  ASSIGN_OR_RETURN(aligned, expand(op, aligned, scores));
  if (aligned.constant && aligned.constant->getSplat() == 1)
    return result;
  if (aligned.constant && isCausal(*aligned.constant))
    result.causal = true;
  else
    result.value = op.getCompact(aligned);
  return result;
}

static Error lowerAttention(OpContext &op) {
  Tensor original = op.tensor("query"), key = op.tensor("key"), value = op.tensor("value");
  if (!isFloat(original.dtype) || original.getNumElements() == 0)
    return op.error("expected floating-point tensors with elements");
  if (Error error = broadcastBatches(op, original, key, value))
    return error;
  ASSIGN_OR_RETURN(Tensor query, withFourDimensions(op, original));
  ASSIGN_OR_RETURN(key, withFourDimensions(op, key));
  ASSIGN_OR_RETURN(value, withFourDimensions(op, value));
  Value q = op.get(query), k = op.get(key), v = op.get(value);
  Value groupedKey = skipRepeatedHeads(k), groupedValue = skipRepeatedHeads(v);
  auto headsOf = [](Value x) { return cast<RankedTensorType>(x.getType()).getDimSize(1); };
  if (headsOf(groupedKey) == headsOf(groupedValue)) {
    k = groupedKey;
    v = groupedValue;
  }
  ASSIGN_OR_RETURN(
      Mask mask,
      getMask(op, original, {query.sizes[0], query.sizes[1], query.sizes[2], key.sizes[2]}));
  double scale = op.has("scale") ? op.number("scale") : 1 / std::sqrt(double(query.sizes[3]));
  double dropped = op.number("dropout_p");
  if (!(dropped >= 0 && dropped < 1))
    return op.error("argument 'dropout_p': expected a number from 0 to below 1, found " +
                    toString(dropped));
  RandomState random{};
  if (dropped == 0 || !dropoutIsOn(op))
    dropped = 0;
  else
    random = nextRandomState(op);
  Shape sizes(query.sizes);
  sizes[3] = value.sizes[3];
  auto attention = mlir::memopt::AttentionOp::create(
      op.b, op.tensorType(query.dtype, sizes),
      op.tensorType(query.dtype, ArrayRef(sizes).drop_back()), q, k, v, mask.value, random.seed,
      random.step, /*first=*/Value(), op.b.getF64FloatAttr(scale),
      mask.causal ? op.b.getUnitAttr() : mlir::UnitAttr(), op.b.getF64FloatAttr(dropped),
      op.b.getI64IntegerAttr(random.id));
  Shape shape(original.sizes);
  shape.back() = value.sizes[3];
  ASSIGN_OR_RETURN(Tensor shaped, reshape(op, op.wrap(query.dtype, attention.getResult()), shape));
  op.setResult(0, op.copy(shaped));
  if (op.getNumResults() == 1 || !op.isUsed(1))
    return Error::success();
  // The statistics of rows are for PyTorch's own backward pass, and have no gradient.
  const TensorMeta &meta = op.resultMeta(1);
  ASSIGN_OR_RETURN(Tensor statistics,
                   reshape(op, op.wrap(query.dtype, attention.getLogsumexp()), meta.sizes));
  op.setResult(1, op.importer.stopGradient(castTo(op, statistics, meta.dtype)));
  return Error::success();
}

void memopt::pt2::registerAttention(OpTable &table) {
  table.add("aten.scaled_dot_product_attention.default",
            "Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
            "bool is_causal=False, float? scale=None, bool enable_gqa=False",
            lowerAttention);
  table.add("aten._scaled_dot_product_flash_attention_for_cpu.default",
            "Tensor query, Tensor key, Tensor value, float dropout_p=0.0, bool is_causal=False, "
            "Tensor? attn_mask=None, float? scale=None, bool enable_gqa=False",
            lowerAttention);
}
