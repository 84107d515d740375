//===- ClassLosses.cpp - losses over classes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A mean over targets is imported as a sum and a count, which memopt.cross_entropy gives apart: who
// accumulates over batches or ranks divides by the count over all of them.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Classification
//===----------------------------------------------------------------------===//

namespace {
/// Scores [N, C] and targets [N], whatever dimensions they had.
struct Rows {
  Tensor scores, targets;
  Shape targetSizes; ///< as they were
};
} // namespace

/// [N, C, d...] and [N, d...] become [N * d..., C] and [N * d...].
static Expected<Rows> getRows(OpContext &op) {
  Tensor scores = op.tensor("self"), targets = op.tensor("target");
  if (scores.rank() < 1 || scores.getNumElements() == 0 || !isFloat(scores.dtype))
    return op.error("expected floating-point scores with dimensions, found " +
                    getName(scores.dtype) + toString(scores.sizes));
  if (targets.dtype != DType::I64 && targets.dtype != DType::I32 && targets.dtype != DType::U8)
    return op.error("expected class indices as targets, found " + getName(targets.dtype));
  if (targets.dtype == DType::U8)
    targets = castTo(op, targets, DType::I32);
  Shape expected(scores.sizes);
  expected.erase(expected.begin() + (scores.rank() == 1 ? 0 : 1));
  if (targets.sizes != expected)
    return op.error("expected targets of shape " + toString(expected) + ", found " +
                    toString(targets.sizes));
  Rows result;
  result.targetSizes = targets.sizes;
  int64_t classes = scores.sizes[scores.rank() == 1 ? 0 : 1], rows = targets.getNumElements();
  if (scores.rank() > 2) {
    Shape permutation{0};
    append_range(permutation, seq<int64_t>(2, scores.rank()));
    permutation.push_back(1);
    scores = permute(op, scores, permutation);
  }
  ASSIGN_OR_RETURN(result.scores, reshape(op, scores, {rows, classes}));
  ASSIGN_OR_RETURN(result.targets, reshape(op, targets, rows));
  return result;
}

static Error checkWeight(OpContext &op, const Rows &rows) {
  std::optional<Tensor> weight = op.optionalTensor("weight");
  if (weight && (weight->dtype != rows.scores.dtype || weight->rank() != 1 ||
                 weight->sizes[0] != rows.scores.sizes[1]))
    return op.error("expected a weight for each of " + Twine(rows.scores.sizes[1]) +
                    " classes, found " + getName(weight->dtype) + toString(weight->sizes));
  return Error::success();
}

static mlir::memopt::CrossEntropyOp createCrossEntropy(OpContext &op, const Rows &rows,
                                                       Value logits, double smoothing) {
  std::optional<Tensor> weight = op.optionalTensor("weight");
  auto scalar = op.tensorType(rows.scores.dtype, {});
  auto row = op.tensorType(rows.scores.dtype, rows.scores.sizes[0]);
  return mlir::memopt::CrossEntropyOp::create(
      op.b, scalar, scalar, row, row, logits, op.get(rows.targets),
      weight ? op.get(*weight) : Value(), op.b.getI64IntegerAttr(op.integer("ignore_index")),
      op.b.getF64FloatAttr(smoothing));
}

/// Sum or mean of a cross entropy's total.
static Expected<Value> reduceTotal(OpContext &op, mlir::memopt::CrossEntropyOp entropy) {
  int64_t reduction = op.integer("reduction");
  if (reduction == 2)
    return entropy.getTotal();
  if (reduction != 1)
    return op.error("argument 'reduction': expected 0, 1 or 2, found " + Twine(reduction));
  return arith::DivFOp::create(op.b, entropy.getTotal(), entropy.getCount()).getResult();
}

/// The class whose rows are to be ignored, if it is one of `classes`.
static std::optional<int64_t> getIgnoredClass(OpContext &op, int64_t classes) {
  int64_t ignored = op.hasParameter("ignore_index") ? op.integer("ignore_index") : -1;
  return ignored >= 0 && ignored < classes ? std::optional(ignored) : std::nullopt;
}

/// Where the targets of [rows, classes] are: true at [i, targets[i]], nowhere in rows to ignore.
static Element getHits(OpContext &op, const Rows &rows, ArrayRef<int64_t> sizes) {
  Value targets = op.get(rows.targets);
  auto indices = RankedTensorType::get(sizes, mlir::getElementTypeOrSelf(targets));
  Element target(op.b, broadcastAlong(op.b, targets, 0, sizes));
  Element hit = equals(target, Element(op.b, mlir::memopt::IotaOp::create(op.b, indices, 1)));
  std::optional<int64_t> ignored = getIgnoredClass(op, sizes[1]);
  return ignored ? hit & differs(target, double(*ignored)) : hit;
}

/// table[i, targets[i]], 0 where the target is to be ignored.
static Element pickTargets(OpContext &op, const Rows &rows, Element table) {
  auto sizes = cast<RankedTensorType>(table.getType()).getShape();
  Element picked = select(getHits(op, rows, sizes), table, 0.0);
  return {op.b, reduceValue(op.b, picked, ReduceKind::Add, 1)};
}

/// The weight of each class, one for all without weights.
static Element getWeights(OpContext &op, ArrayRef<int64_t> sizes, Element like, int64_t axis) {
  std::optional<Tensor> weight = op.optionalTensor("weight");
  return weight ? Element(op.b, broadcastAlong(op.b, op.get(*weight), axis, sizes)) : like.like(1);
}

/// Negative log likelihoods, one for each row; with smoothing e,
/// (1 - e) w_t (-log p_t) + e / C sum over c of w_c (-log p_c).
static Value lossesByRow(OpContext &op, const Rows &rows, Value logProbabilities,
                         double smoothing = 0) {
  Element logs(op.b, logProbabilities);
  Element weighted = -logs;
  if (op.has("weight"))
    weighted = weighted * getWeights(op, rows.scores.sizes, logs, 1);
  Element losses = pickTargets(op, rows, weighted);
  if (smoothing > 0) {
    Element counts(op.b, anyOf(op.b, getHits(op, rows, rows.scores.sizes), 1));
    Element all(op.b, reduceValue(op.b, weighted, ReduceKind::Add, 1));
    Element share = all * (smoothing / double(rows.scores.sizes[1]));
    losses = losses * (1 - smoothing) + select(counts, share, 0.0);
  }
  return reshapeValue(op.b, losses, rows.targetSizes);
}

/// Targets that are distributions over the classes.
static Error lowerSoftCrossEntropy(OpContext &op, double smoothing) {
  Tensor scores = op.tensor("self"), targets = op.tensor("target");
  if (scores.rank() < 1 || targets.sizes != scores.sizes || !isFloat(scores.dtype) ||
      scores.getNumElements() == 0)
    return op.error("expected targets like the scores " + toString(scores.sizes) + ", found " +
                    toString(targets.sizes));
  int64_t axis = scores.rank() == 1 ? 0 : 1, classes = scores.sizes[axis];
  std::optional<Tensor> weight = op.optionalTensor("weight");
  if (weight && (weight->rank() != 1 || weight->sizes[0] != classes))
    return op.error("expected a weight for each of " + Twine(classes) + " classes, found " +
                    toString(weight->sizes));
  Element logs(op.b, mlir::memopt::LogSoftmaxOp::create(op.b, op.get(scores), axis));
  Element wanted(op.b, op.get(castTo(op, targets, scores.dtype)));
  if (smoothing > 0)
    wanted = wanted * (1 - smoothing) + smoothing / double(classes);
  Element terms = logs * wanted;
  if (weight)
    terms = terms * getWeights(op, scores.sizes, logs, axis);
  Element losses = -Element(op.b, reduceValue(op.b, terms, ReduceKind::Add, axis));
  ASSIGN_OR_RETURN(Value result, applyReduction(op, losses, op.integer("reduction")));
  return setResult(op, op.wrap(scores.dtype, result));
}

static Error lowerCrossEntropy(OpContext &op) {
  double smoothing = op.number("label_smoothing");
  if (!(smoothing >= 0 && smoothing <= 1))
    return op.error("argument 'label_smoothing': expected a number from 0 to 1, found " +
                    toString(smoothing));
  if (isFloat(op.tensor("target").dtype))
    return lowerSoftCrossEntropy(op, smoothing);
  ASSIGN_OR_RETURN(Rows rows, getRows(op));
  RETURN_IF_ERROR(checkWeight(op, rows));
  Value result;
  if (op.integer("reduction") == 0) {
    Value logs = mlir::memopt::LogSoftmaxOp::create(op.b, op.get(rows.scores), 1);
    result = lossesByRow(op, rows, logs, smoothing);
  } else {
    auto entropy = createCrossEntropy(op, rows, op.get(rows.scores), smoothing);
    ASSIGN_OR_RETURN(result, reduceTotal(op, entropy));
  }
  return setResult(op, op.wrap(rows.scores.dtype, result));
}

/// The argument of a log softmax over the classes, when that is what made the scores, or what their
/// rows were joined of. Softmax of log probabilities gives the probabilities back, so the fused loss
/// may take either.
static Value skipLogSoftmax(OpContext &op, Value scores) {
  auto joined = scores.getDefiningOp<mlir::tensor::CollapseShapeOp>();
  Value made = joined ? joined.getSrc() : scores;
  auto softmax = made.getDefiningOp<mlir::memopt::LogSoftmaxOp>();
  int64_t classes = cast<RankedTensorType>(made.getType()).getRank() - 1;
  if (!softmax || static_cast<int64_t>(softmax.getAxis()) != classes ||
      (joined && joined.getReassociationIndices().back().size() != 1))
    return {};
  return joined ? reshapeValue(op.b, softmax.getInput(),
                               cast<RankedTensorType>(scores.getType()).getShape())
                : softmax.getInput();
}

/// 1 for each row whose target counts, else 0: what pickTargets gives of ones, from labels alone.
static Element countTargets(OpContext &op, const Rows &rows, Element like) {
  Element target(op.b, op.get(rows.targets));
  int64_t classes = rows.scores.sizes[1];
  Element counts = greaterOrEqual(target, 0) & less(target, double(classes));
  if (std::optional<int64_t> ignored = getIgnoredClass(op, classes))
    counts = counts & differs(target, double(*ignored));
  auto type = RankedTensorType::get(rows.scores.sizes[0], mlir::getElementTypeOrSelf(like));
  return select(counts, Element(op.b, splat(op.b, type, 1.0)), 0.0);
}

static Error lowerNll(OpContext &op) {
  ASSIGN_OR_RETURN(Rows rows, getRows(op));
  RETURN_IF_ERROR(checkWeight(op, rows));
  DType type = rows.scores.dtype;
  Value scores = op.get(rows.scores), logits = skipLogSoftmax(op, scores);
  bool wantsTotalWeight = op.getNumResults() == 2 && op.isUsed(1);
  Value result, total;
  if (logits && op.integer("reduction") != 0) {
    auto entropy = createCrossEntropy(op, rows, logits, 0);
    ASSIGN_OR_RETURN(result, reduceTotal(op, entropy));
    total = entropy.getCount();
  } else {
    result = lossesByRow(op, rows, scores);
    // PyTorch counts a single row always, several only where it reduces them.
    if (op.integer("reduction") != 0 || rows.targetSizes.empty()) {
      Element like(op.b, scores);
      Element counted = op.has("weight")
                            ? pickTargets(op, rows, getWeights(op, rows.scores.sizes, like, 1))
                            : countTargets(op, rows, like);
      total = reduceValue(op.b, counted, ReduceKind::Add, 0);
    }
    if (op.integer("reduction") != 0) {
      ASSIGN_OR_RETURN(result, applyReduction(op, result, 2));
      if (op.integer("reduction") == 1)
        result = arith::DivFOp::create(op.b, result, total);
    }
  }
  op.setResult(0, op.wrap(type, result));
  if (wantsTotalWeight)
    op.setResult(1, op.wrap(type, total ? Value(withoutGradient({op.b, total}))
                                        : splat(op.b, op.tensorType(type, {}), 0.0)));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Margins between classes
//===----------------------------------------------------------------------===//

/// sum over j != t of w_t max(0, margin - x_t + x_j)^p / C for each row.
static Error lowerMultiMargin(OpContext &op) {
  double p = op.number("p"), margin = op.number("margin");
  if (p != 1 && p != 2)
    return op.error("argument 'p': expected 1 or 2, found " + toString(p));
  ASSIGN_OR_RETURN(Rows rows, getRows(op));
  RETURN_IF_ERROR(checkWeight(op, rows));
  ArrayRef<int64_t> sizes = rows.scores.sizes;
  Element x(op.b, op.get(rows.scores));
  auto spread = [&](Element perRow) {
    return Element(op.b, broadcastAlong(op.b, perRow, 0, sizes));
  };
  Element lack = margin - spread(pickTargets(op, rows, x)) + x;
  lack = select(greater(lack, 0) & !getHits(op, rows, sizes), lack, 0.0);
  Element terms = p == 1 ? lack : lack * lack;
  if (op.has("weight"))
    terms = terms * spread(pickTargets(op, rows, getWeights(op, sizes, x, 1)));
  Element losses = Element(op.b, reduceValue(op.b, terms, ReduceKind::Add, 1)) / double(sizes[1]);
  Value shaped = reshapeValue(op.b, losses, rows.targetSizes);
  ASSIGN_OR_RETURN(Value result, applyReduction(op, shaped, op.integer("reduction")));
  return setResult(op, op.wrap(rows.scores.dtype, result));
}

/// For each row the sum over its classes t, and over those i that are none of them, of
/// max(0, 1 - x_t + x_i) / C. The classes of a row are its targets before the first negative one.
static Error lowerMultilabelMargin(OpContext &op) {
  Tensor whole = op.tensor("self");
  ASSIGN_OR_RETURN(Tensor scores, withDimension(op, whole));
  ASSIGN_OR_RETURN(Tensor given, withDimension(op, op.tensor("target")));
  if (scores.rank() > 2 || scores.getNumElements() == 0 || !isFloat(scores.dtype) ||
      given.sizes != scores.sizes || given.dtype != DType::I64)
    return op.error(
        "expected floating-point scores of rank 2 at most and as many i64 targets, found " +
        getName(scores.dtype) + toString(scores.sizes) + " and " + getName(given.dtype) +
        toString(given.sizes));
  int64_t classes = scores.sizes.back(), rows = scores.getNumElements() / classes;
  Shape grid{rows, classes, classes}; // a target, and another or a class
  RETURN_IF_ERROR(countElements(op, grid).takeError());
  auto spread = [&](const Tensor &tensor, int64_t dim) -> Expected<Element> {
    Shape thin{rows, 1, 1};
    thin[dim] = classes;
    ASSIGN_OR_RETURN(Tensor shaped, reshape(op, tensor, thin));
    ASSIGN_OR_RETURN(shaped, expand(op, shaped, grid));
    return Element(op.b, op.get(shaped));
  };
  auto again = [&](Value value, int64_t dim) {
    Shape thin{rows, classes, classes};
    thin[dim] = 1;
    return Element(op.b, broadcastValue(op.b, reshapeValue(op.b, value, thin), grid));
  };
  ASSIGN_OR_RETURN(Element target, spread(given, 1));
  ASSIGN_OR_RETURN(Element other, spread(given, 2));
  ASSIGN_OR_RETURN(Element x, spread(scores, 2));
  auto numbers = cast<RankedTensorType>(target.getType());
  Element own(op.b, mlir::memopt::IotaOp::create(op.b, numbers, 1));
  Element number(op.b, mlir::memopt::IotaOp::create(op.b, numbers, 2));
  Element isOver = again(anyOf(op.b, less(other, 0) & lessOrEqual(number, own), 2), 2);
  Element hit = equals(target, number) & !isOver;
  Element isTarget = again(anyOf(op.b, hit, 1), 1);
  Element picked = again(reduceValue(op.b, select(hit, x, 0.0), ReduceKind::Add, 2), 2);
  Element lack = 1.0 - picked + x;
  lack = select(greater(lack, 0) & !isOver & !isTarget, lack, 0.0);
  Value sums = reduceValue(op.b, lack, ReduceKind::Add, 2);
  Element losses = Element(op.b, reduceValue(op.b, sums, ReduceKind::Add, 1)) / double(classes);
  Value shaped = reshapeValue(op.b, losses, ArrayRef(scores.sizes).drop_back());
  ASSIGN_OR_RETURN(Value result, applyReduction(op, shaped, op.integer("reduction")));
  return setResult(op, op.wrap(scores.dtype, result));
}

void memopt::pt2::registerClassLosses(OpTable &table) {
  constexpr StringLiteral nll = "Tensor self, Tensor target, Tensor? weight=None, int reduction=1, "
                                "int ignore_index=-100";
  table.add(
      "aten.cross_entropy_loss.default",
      "Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ignore_index=-100, "
      "float label_smoothing=0.0",
      lowerCrossEntropy);
  for (StringLiteral name :
       {StringLiteral("aten.nll_loss_nd.default"), StringLiteral("aten.nll_loss.default"),
        StringLiteral("aten.nll_loss2d.default"), StringLiteral("aten.nll_loss_forward.default"),
        StringLiteral("aten.nll_loss2d_forward.default")})
    table.add(name, nll, lowerNll);
  table.add("aten.multi_margin_loss.default",
            "Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, "
            "int reduction=1",
            lowerMultiMargin);
  table.add("aten.multilabel_margin_loss.default", "Tensor self, Tensor target, int reduction=1",
            lowerMultilabelMargin);
}
