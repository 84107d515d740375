//===- Losses.cpp - losses of numbers and of distances -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A mean over losses is imported as a sum and a count: who accumulates over batches or ranks
// divides by the count over all of them.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Reductions/Reductions.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::memopt::ReduceKind;
using Elements = ArrayRef<Element>;

/// `formula` for each element, then the reduction that the operator asks for.
static Error mapLosses(OpContext &op, ArrayRef<Operand> operands, FormulaFn formula) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  ASSIGN_OR_RETURN(Tensor losses, elementwise(op, operands, type, type, inBuild(formula)));
  ASSIGN_OR_RETURN(Value result, applyReduction(op, op.get(losses), op.integer("reduction")));
  return setResult(op, op.wrap(type, result));
}

/// Losses of `self` and `target`.
static Error mapPairs(OpContext &op, llvm::function_ref<Element(Element, Element)> formula) {
  return mapLosses(op, {op.tensor("self"), op.tensor("target")},
                   [&](Elements v) { return formula(v[0], v[1]); });
}

/// max(x, 0); no gradient passes at 0.
static Element positivePart(Element x) {
  return withSlopes(largerOf(x, x.like(0)), {{x, select(greater(x, 0), x.like(1), x.like(0))}});
}

//===----------------------------------------------------------------------===//
// Regression
//===----------------------------------------------------------------------===//

static Error lowerMse(OpContext &op) {
  return mapPairs(op, [](Element x, Element y) { return (x - y) * (x - y); });
}

static Error lowerL1(OpContext &op) {
  return mapPairs(op, [](Element x, Element y) { return abs(x - y); });
}

/// A parabola up to `knee`, a line beyond; `scale` times it. Its slope is the difference over the
/// knee, held between -1 and 1.
static Error lowerKnee(OpContext &op, double knee, double scale) {
  return mapPairs(op, [&](Element x, Element y) {
    Element difference = x - y, distance = abs(difference);
    if (knee == 0)
      return distance * scale;
    Element parabola = distance * distance * (0.5 * scale / knee);
    Element line = (distance - 0.5 * knee) * scale;
    Element slope = select(greaterOrEqual(difference, knee), scale, difference * (scale / knee));
    slope = select(lessOrEqual(difference, -knee), -scale, slope);
    return withSlopes(select(less(distance, knee), parabola, line), {{difference, slope}});
  });
}

static Error lowerSmoothL1(OpContext &op) {
  if (!(op.number("beta") >= 0))
    return op.error("argument 'beta': expected a number from 0, found " +
                    toString(op.number("beta")));
  return lowerKnee(op, op.number("beta"), 1);
}

static Error lowerHuber(OpContext &op) {
  if (!(op.number("delta") > 0))
    return op.error("argument 'delta': expected a positive number, found " +
                    toString(op.number("delta")));
  return lowerKnee(op, op.number("delta"), op.number("delta"));
}

/// exp(x) - t x (or x - t log x), up to a constant, which Stirling's formula gives when `full`.
static Error lowerPoissonNll(OpContext &op) {
  bool isLog = op.flag("log_input"), isFull = op.flag("full");
  double eps = op.number("eps");
  return mapLosses(op, {op.tensor("input"), op.tensor("target")}, [&](Elements v) {
    Element x = v[0], t = v[1];
    Element loss = isLog ? exp(x) - t * x : x - t * log(x + eps);
    if (!isFull)
      return loss;
    Element stirling = t * log(t) - t + log(t * 6.283185307179586) * 0.5;
    return loss + select(greater(t, 1), stirling, 0.0);
  });
}

//===----------------------------------------------------------------------===//
// Two classes
//===----------------------------------------------------------------------===//

/// (1 - t) x + (1 + (p - 1) t) softplus(-x), which never overflows.
static Error lowerBinaryCrossEntropyWithLogits(OpContext &op) {
  SmallVector<Operand> operands{op.tensor("self"), op.tensor("target")};
  std::optional<Tensor> weight = op.optionalTensor("weight"),
                        positive = op.optionalTensor("pos_weight");
  if (positive)
    operands.push_back(*positive);
  if (weight)
    operands.push_back(*weight);
  return mapLosses(op, operands, [&](Elements v) {
    Element x = v[0], t = v[1], bend = softplus(-x);
    if (positive)
      bend = bend * ((v[2] - 1) * t + 1);
    Element loss = (1 - t) * x + bend;
    return weight ? loss * v.back() : loss;
  });
}

/// Logarithms below -100 count as -100, and the slope's denominator as 1e-12 (rounded to 32 bits,
/// for doubles too) at least, as in PyTorch: at 0 and 1 both are finite.
static Element binaryCrossEntropy(Element x, Element t) {
  auto bounded = [](Element logarithm) { return largerOf(logarithm, logarithm.like(-100)); };
  Element hit = log(x), miss = log1p(-x);
  Element value = (t - 1) * bounded(miss) - t * bounded(hit);
  Element width = (1 - x) * x;
  return withSlopes(value, {{x, (x - t) / largerOf(width, width.like(1e-12f))}, {t, miss - hit}});
}

static Error lowerBinaryCrossEntropy(OpContext &op) {
  SmallVector<Operand> operands{op.tensor("self"), op.tensor("target")};
  if (std::optional<Tensor> weight = op.optionalTensor("weight"))
    operands.push_back(*weight);
  return mapLosses(op, operands, [](Elements v) {
    Element loss = binaryCrossEntropy(v[0], v[1]);
    return v.size() > 2 ? loss * v[2] : loss;
  });
}

/// log(1 + exp(-t x))
static Error lowerSoftMargin(OpContext &op) {
  return mapPairs(op, [](Element x, Element t) { return softplus(-(t * x)); });
}

/// x for targets of 1, max(0, margin - x) for those of -1, both for all others.
static Error lowerHingeEmbedding(OpContext &op) {
  double margin = op.number("margin");
  return mapPairs(op, [&](Element x, Element t) {
    return select(differs(t, 1), positivePart(margin - x), 0.0) + select(differs(t, -1), x, 0.0);
  });
}

//===----------------------------------------------------------------------===//
// Distances
//===----------------------------------------------------------------------===//

/// t (log t - x), 0 where t is; `log_target` says that the target is log t.
static Error lowerKlDivergence(OpContext &op) {
  bool isLog = op.flag("log_target");
  return mapPairs(
      op, [&](Element x, Element t) { return isLog ? exp(t) * (t - x) : timesLog(t, t) - t * x; });
}

/// max(0, margin - t (x - y))
static Error lowerMarginRanking(OpContext &op) {
  RETURN_IF_ERROR(op.checkNoBytes({"input1", "input2", "target"}));
  double margin = op.number("margin");
  return mapLosses(op, {op.tensor("input1"), op.tensor("input2"), op.tensor("target")},
                   [&](Elements v) { return positivePart(margin - v[2] * (v[0] - v[1])); });
}

/// Three tensors broadcast to one shape, in the result's type.
static Expected<SmallVector<Element>> getTogether(OpContext &op, ArrayRef<StringRef> names) {
  DType type = op.resultMeta(0).dtype;
  Shape sizes;
  for (StringRef name : names) {
    ASSIGN_OR_RETURN(sizes, broadcastShapes(op, sizes, op.tensor(name).sizes));
  }
  SmallVector<Element> result;
  for (StringRef name : names) {
    ASSIGN_OR_RETURN(Tensor expanded, expand(op, castTo(op, op.tensor(name), type), sizes));
    if (expanded.getNumElements() == 0 || !isFloat(type))
      return op.error("expected floating-point tensors with elements");
    result.push_back({op.b, op.get(expanded)});
  }
  return result;
}

static Error setReduced(OpContext &op, Element losses) {
  ASSIGN_OR_RETURN(Value result, applyReduction(op, losses, op.integer("reduction")));
  return setResult(op, op.wrap(op.resultMeta(0).dtype, result));
}

/// max(0, margin + |a - p| - |a - n|), lengths along the last dimension; with `swap` the negative
/// may be compared with the positive instead, whichever is nearer.
static Error lowerTripletMargin(OpContext &op) {
  RETURN_IF_ERROR(op.checkNoBytes({"anchor", "positive", "negative"}));
  ASSIGN_OR_RETURN(auto v, getTogether(op, {"anchor", "positive", "negative"}));
  int64_t rank = cast<mlir::RankedTensorType>(v[0].getType()).getRank();
  if (rank == 0)
    return op.error("expected tensors with dimensions");
  auto distance = [&](Element x, Element y) {
    Reduction row{x - y + op.number("eps"), {rank - 1}, /*keep=*/false};
    return Element(op.b, normOf(op, row, op.number("p")));
  };
  Element negative = distance(v[0], v[2]);
  if (op.flag("swap"))
    negative = smallerOf(negative, distance(v[1], v[2]));
  return setReduced(op, positivePart(distance(v[0], v[1]) - negative + op.number("margin")));
}

/// 1 - cos for targets of 1, max(0, cos - margin) for those of -1.
static Error lowerCosineEmbedding(OpContext &op) {
  ASSIGN_OR_RETURN(auto v, getTogether(op, {"input1", "input2"}));
  int64_t rank = cast<mlir::RankedTensorType>(v[0].getType()).getRank();
  if (rank == 0)
    return op.error("expected tensors with dimensions");
  auto dot = [&](Element x, Element y) {
    return Element(op.b, reduceValue(op.b, x * y, ReduceKind::Add, rank - 1));
  };
  constexpr double eps = 1e-12; // PyTorch's
  Element squares = (dot(v[0], v[0]) + eps) * (dot(v[1], v[1]) + eps);
  Element cosine = dot(v[0], v[1]) / sqrt(squares);
  DType type = op.resultMeta(0).dtype;
  double margin = op.number("margin");
  return mapLosses(op, {op.wrap(type, cosine), op.tensor("target")}, [&](Elements x) {
    return select(equals(x[1], 1), 1 - x[0], 0.0) +
           select(equals(x[1], -1), positivePart(x[0] - margin), 0.0);
  });
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerLosses(OpTable &table) {
  constexpr StringLiteral pair = "Tensor self, Tensor target, int reduction=1";
  table.add("aten.mse_loss.default", pair, lowerMse);
  table.add("aten.l1_loss.default", pair, lowerL1);
  table.add("aten.smooth_l1_loss.default",
            "Tensor self, Tensor target, int reduction=1, float beta=1.0", lowerSmoothL1);
  table.add("aten.huber_loss.default",
            "Tensor self, Tensor target, int reduction=1, float delta=1.0", lowerHuber);
  table.add("aten.poisson_nll_loss.default",
            "Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction",
            lowerPoissonNll);
  table.add(
      "aten.binary_cross_entropy_with_logits.default",
      "Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1",
      lowerBinaryCrossEntropyWithLogits);
  table.add("aten.binary_cross_entropy.default",
            "Tensor self, Tensor target, Tensor? weight=None, int reduction=1",
            lowerBinaryCrossEntropy);
  table.add("aten.soft_margin_loss.default", pair, lowerSoftMargin);
  table.add("aten.hinge_embedding_loss.default",
            "Tensor self, Tensor target, float margin=1.0, int reduction=1", lowerHingeEmbedding);
  table.add("aten.kl_div.default",
            "Tensor self, Tensor target, int reduction=1, bool log_target=False",
            lowerKlDivergence);
  table.add("aten.margin_ranking_loss.default",
            "Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1",
            lowerMarginRanking);
  table.add("aten.triplet_margin_loss.default",
            "Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, "
            "float eps=1e-06, bool swap=False, int reduction=1",
            lowerTripletMargin);
  table.add("aten.cosine_embedding_loss.default",
            "Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1",
            lowerCosineEmbedding);
}
