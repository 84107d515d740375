//===- Losses.cpp - losses -*- C++ -*-===//
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

#include "OpContext.h"

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

static Value constant(Builder &b, Value like, double value) {
  return splat(b, like.getType(), value);
}
static Value subtract(Builder &b, Value x, Value y) { return arith::SubFOp::create(b, x, y); }
static Value multiply(Builder &b, Value x, Value y) { return arith::MulFOp::create(b, x, y); }
static Value multiply(Builder &b, Value x, double y) { return multiply(b, x, constant(b, x, y)); }

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
  return mlir::memopt::CrossEntropyOp::create(
      op.b, scalar, scalar, op.tensorType(rows.scores.dtype, rows.scores.sizes[0]), logits,
      op.get(rows.targets), weight ? op.get(*weight) : Value(),
      op.b.getI64IntegerAttr(op.integer("ignore_index")), op.b.getF64FloatAttr(smoothing));
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

/// table[i, targets[i]], 0 where the target is to be ignored.
static Value pickTargets(OpContext &op, const Rows &rows, Value table) {
  auto type = cast<RankedTensorType>(table.getType());
  Value targets = op.get(rows.targets);
  auto indices = type.clone(mlir::getElementTypeOrSelf(targets));
  Value spread = broadcastAlong(op.b, targets, 0, type.getShape());
  Value own = mlir::memopt::IotaOp::create(op.b, indices, 1);
  Value hit = arith::CmpIOp::create(op.b, arith::CmpIPredicate::eq, spread, own);
  int64_t ignored = op.integer("ignore_index");
  if (ignored >= 0 && ignored < type.getDimSize(1)) {
    Scalar number;
    number.integer = ignored;
    Value counted =
        arith::CmpIOp::create(op.b, arith::CmpIPredicate::ne, spread, splat(op.b, indices, number));
    hit = arith::AndIOp::create(op.b, hit, counted);
  }
  Value picked = arith::SelectOp::create(op.b, hit, table, constant(op.b, table, 0));
  return reduceValue(op.b, picked, mlir::memopt::ReduceKind::Add, 1);
}

/// Negative log likelihoods, one for each row.
static Expected<Value> lossesByRow(OpContext &op, const Rows &rows, Value logProbabilities) {
  Value losses = arith::NegFOp::create(op.b, pickTargets(op, rows, logProbabilities));
  if (std::optional<Tensor> weight = op.optionalTensor("weight")) {
    Value table = broadcastAlong(op.b, op.get(*weight), 1, rows.scores.sizes);
    losses = multiply(op.b, losses, pickTargets(op, rows, table));
  }
  return reshapeValue(op.b, losses, rows.targetSizes);
}

/// Targets that are distributions over the classes.
static Error lowerSoftCrossEntropy(OpContext &op, double smoothing) {
  Tensor scores = op.tensor("self"), targets = op.tensor("target");
  if (scores.rank() < 1 || targets.sizes != scores.sizes || targets.dtype != scores.dtype ||
      scores.getNumElements() == 0 || op.has("weight"))
    return op.error("expected unweighted targets like the scores " + toString(scores.sizes) +
                    ", found " + toString(targets.sizes));
  int64_t axis = scores.rank() == 1 ? 0 : 1;
  Value logs = mlir::memopt::LogSoftmaxOp::create(op.b, op.get(scores), axis);
  Value wanted = op.get(targets);
  if (smoothing > 0)
    wanted = arith::AddFOp::create(op.b, multiply(op.b, wanted, 1 - smoothing),
                                   constant(op.b, wanted, smoothing / scores.sizes[axis]));
  Value losses = arith::NegFOp::create(
      op.b, reduceValue(op.b, multiply(op.b, logs, wanted), mlir::memopt::ReduceKind::Add, axis));
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
    if (smoothing > 0)
      return op.error("label smoothing without a reduction is not supported");
    Value logs = mlir::memopt::LogSoftmaxOp::create(op.b, op.get(rows.scores), 1);
    ASSIGN_OR_RETURN(result, lossesByRow(op, rows, logs));
  } else {
    auto entropy = createCrossEntropy(op, rows, op.get(rows.scores), smoothing);
    ASSIGN_OR_RETURN(result, reduceTotal(op, entropy));
  }
  return setResult(op, op.wrap(rows.scores.dtype, result));
}

/// The argument of a log softmax over the classes, when that is what made the scores. Softmax of
/// log probabilities gives the probabilities back, so the fused loss may take either.
static Value skipLogSoftmax(Value logProbabilities) {
  auto softmax = logProbabilities.getDefiningOp<mlir::memopt::LogSoftmaxOp>();
  return softmax && softmax.getAxis() == 1 ? softmax.getInput() : Value();
}

static Error lowerNll(OpContext &op) {
  ASSIGN_OR_RETURN(Rows rows, getRows(op));
  RETURN_IF_ERROR(checkWeight(op, rows));
  DType type = rows.scores.dtype;
  Value scores = op.get(rows.scores), logits = skipLogSoftmax(scores);
  bool wantsTotalWeight = op.getNumResults() == 2 && op.isUsed(1);
  Value result, total;
  if (logits && op.integer("reduction") != 0) {
    auto entropy = createCrossEntropy(op, rows, logits, 0);
    ASSIGN_OR_RETURN(result, reduceTotal(op, entropy));
    total = entropy.getCount();
  } else {
    ASSIGN_OR_RETURN(result, lossesByRow(op, rows, scores));
    if (op.integer("reduction") != 0 || wantsTotalWeight) {
      std::optional<Tensor> weight = op.optionalTensor("weight");
      Value table = weight ? broadcastAlong(op.b, op.get(*weight), 1, rows.scores.sizes)
                           : constant(op.b, scores, 1);
      total = reduceValue(op.b, pickTargets(op, rows, table), mlir::memopt::ReduceKind::Add, 0);
    }
    if (op.integer("reduction") != 0) {
      ASSIGN_OR_RETURN(result, applyReduction(op, result, 2));
      if (op.integer("reduction") == 1)
        result = arith::DivFOp::create(op.b, result, total);
    }
  }
  op.setResult(0, op.wrap(type, result));
  if (wantsTotalWeight)
    op.setResult(1, op.wrap(type, total));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Regression
//===----------------------------------------------------------------------===//

static Error lowerElementwiseLoss(OpContext &op, Build build) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return op.error("expected a floating-point result, found " + getName(type));
  SmallVector<Operand> operands{op.tensor("self"), op.tensor("target")};
  ASSIGN_OR_RETURN(Tensor losses, elementwise(op, operands, type, type, build));
  ASSIGN_OR_RETURN(Value result, applyReduction(op, op.get(losses), op.integer("reduction")));
  return setResult(op, op.wrap(type, result));
}

static Error lowerMse(OpContext &op) {
  return lowerElementwiseLoss(op, [](Builder &b, ValueRange v) {
    Value difference = subtract(b, v[0], v[1]);
    return multiply(b, difference, difference);
  });
}

static Error lowerL1(OpContext &op) {
  return lowerElementwiseLoss(op, [](Builder &b, ValueRange v) -> Value {
    return math::AbsFOp::create(b, subtract(b, v[0], v[1]));
  });
}

/// A parabola up to `knee`, a line beyond; `scale` times it.
static Error lowerKnee(OpContext &op, double knee, double scale) {
  return lowerElementwiseLoss(op, [&](Builder &b, ValueRange v) -> Value {
    Value distance = math::AbsFOp::create(b, subtract(b, v[0], v[1]));
    if (knee == 0)
      return multiply(b, distance, scale);
    Value near =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, distance, constant(b, distance, knee));
    Value parabola = multiply(b, multiply(b, distance, distance), 0.5 * scale / knee);
    Value line = multiply(b, subtract(b, distance, constant(b, distance, 0.5 * knee)), scale);
    return arith::SelectOp::create(b, near, parabola, line);
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

//===----------------------------------------------------------------------===//
// Binary cross entropy
//===----------------------------------------------------------------------===//

/// (1 - t) x + (1 + (p - 1) t) softplus(-x), which never overflows.
static Error lowerBinaryCrossEntropyWithLogits(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return op.error("expected a floating-point result, found " + getName(type));
  SmallVector<Operand> operands{op.tensor("self"), op.tensor("target")};
  std::optional<Tensor> weight = op.optionalTensor("weight"),
                        positive = op.optionalTensor("pos_weight");
  if (positive)
    operands.push_back(*positive);
  if (weight)
    operands.push_back(*weight);
  ASSIGN_OR_RETURN(
      Tensor losses, elementwise(op, operands, type, type, [&](Builder &b, ValueRange v) {
        Value one = constant(b, v[0], 1);
        Value soft =
            mlir::memopt::SoftplusOp::create(b, arith::NegFOp::create(b, v[0]).getResult());
        if (positive) {
          Value extra = multiply(b, subtract(b, v[2], one), v[1]);
          soft = multiply(b, soft, arith::AddFOp::create(b, extra, one));
        }
        Value loss = arith::AddFOp::create(b, multiply(b, subtract(b, one, v[1]), v[0]), soft);
        return weight ? multiply(b, loss, v.back()) : loss;
      }));
  ASSIGN_OR_RETURN(Value result, applyReduction(op, op.get(losses), op.integer("reduction")));
  return setResult(op, op.wrap(type, result));
}

/// Logarithms below -100 count as -100, as in PyTorch.
static Error lowerBinaryCrossEntropy(OpContext &op) {
  if (op.has("weight"))
    return op.error("weights are not supported");
  return lowerElementwiseLoss(op, [](Builder &b, ValueRange v) -> Value {
    auto boundedLog = [&](Value x) -> Value {
      Value log = math::LogOp::create(b, x), bound = constant(b, x, -100);
      Value below = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, log, bound);
      return arith::SelectOp::create(b, below, bound, log);
    };
    Value one = constant(b, v[0], 1);
    Value hit = multiply(b, v[1], boundedLog(v[0]));
    Value miss = multiply(b, subtract(b, one, v[1]), boundedLog(subtract(b, one, v[0])));
    return arith::NegFOp::create(b, arith::AddFOp::create(b, hit, miss));
  });
}

//===----------------------------------------------------------------------===//
// Distances
//===----------------------------------------------------------------------===//

/// t (log t - x), 0 where t is; `log_target` says that the target is log t.
static Error lowerKlDivergence(OpContext &op) {
  bool isLog = op.flag("log_target");
  return lowerElementwiseLoss(op, [&](Builder &b, ValueRange v) -> Value {
    if (isLog)
      return multiply(b, math::ExpOp::create(b, v[1]), subtract(b, v[1], v[0]));
    Value zero = constant(b, v[1], 0);
    Value isZero = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, v[1], zero);
    Value entropy =
        arith::SelectOp::create(b, isZero, zero, multiply(b, v[1], math::LogOp::create(b, v[1])));
    return subtract(b, entropy, multiply(b, v[1], v[0]));
  });
}

/// x . y / (max(|x|, eps) max(|y|, eps))
static Error lowerCosineSimilarity(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  double eps = op.number("eps");
  Tensor x = op.tensor("x1"), y = op.tensor("x2");
  ASSIGN_OR_RETURN(Shape sizes, broadcastShapes(op, x.sizes, y.sizes));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", sizes.size()));
  ASSIGN_OR_RETURN(x, expand(op, x, sizes));
  ASSIGN_OR_RETURN(y, expand(op, y, sizes));
  if (!isFloat(type) || sizes.empty() || x.getNumElements() == 0)
    return op.error("expected floating-point tensors with dimensions");
  auto dot = [&](Value a, Value b) {
    return reduceValue(op.b, multiply(op.b, a, b), mlir::memopt::ReduceKind::Add, dim);
  };
  auto norm = [&](Value a) -> Value {
    Value length = math::SqrtOp::create(op.b, dot(a, a)), bound = constant(op.b, length, eps);
    Value isShort = arith::CmpFOp::create(op.b, arith::CmpFPredicate::OLT, length, bound);
    return arith::SelectOp::create(op.b, isShort, bound, length);
  };
  Value a = op.get(castTo(op, x, type)), b = op.get(castTo(op, y, type));
  Value scale = multiply(op.b, norm(a), norm(b));
  return setResult(op, op.wrap(type, arith::DivFOp::create(op.b, dot(a, b), scale)));
}

/// max(0, margin - t (x - y))
static Error lowerMarginRanking(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  double margin = op.number("margin");
  if (!isFloat(type))
    return op.error("expected a floating-point result, found " + getName(type));
  ASSIGN_OR_RETURN(Tensor losses,
                   elementwise(op, {op.tensor("input1"), op.tensor("input2"), op.tensor("target")},
                               type, type, [&](Builder &b, ValueRange v) -> Value {
                                 Value lead = multiply(b, v[2], subtract(b, v[0], v[1]));
                                 Value loss = subtract(b, constant(b, lead, margin), lead);
                                 Value zero = constant(b, loss, 0);
                                 Value below = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT,
                                                                     loss, zero);
                                 return arith::SelectOp::create(b, below, zero, loss);
                               }));
  ASSIGN_OR_RETURN(Value result, applyReduction(op, op.get(losses), op.integer("reduction")));
  return setResult(op, op.wrap(type, result));
}

void memopt::pt2::registerLosses(OpTable &table) {
  constexpr StringLiteral nll = "Tensor self, Tensor target, Tensor? weight=None, int reduction=1, "
                                "int ignore_index=-100";
  constexpr StringLiteral pair = "Tensor self, Tensor target, int reduction=1";
  table.add(
      "aten.cross_entropy_loss.default",
      "Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int ignore_index=-100, "
      "float label_smoothing=0.0",
      lowerCrossEntropy);
  table.add("aten.nll_loss_nd.default", nll, lowerNll);
  table.add("aten.nll_loss.default", nll, lowerNll);
  table.add("aten.nll_loss2d.default", nll, lowerNll);
  table.add("aten.nll_loss_forward.default", nll, lowerNll);
  table.add("aten.nll_loss2d_forward.default", nll, lowerNll);
  table.add("aten.mse_loss.default", pair, lowerMse);
  table.add("aten.l1_loss.default", pair, lowerL1);
  table.add("aten.smooth_l1_loss.default",
            "Tensor self, Tensor target, int reduction=1, float beta=1.0", lowerSmoothL1);
  table.add("aten.kl_div.default",
            "Tensor self, Tensor target, int reduction=1, bool log_target=False",
            lowerKlDivergence);
  table.add("aten.cosine_similarity.default", "Tensor x1, Tensor x2, int dim=1, float eps=1e-08",
            lowerCosineSimilarity);
  table.add("aten.margin_ranking_loss.default",
            "Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1",
            lowerMarginRanking);
  table.add("aten.huber_loss.default",
            "Tensor self, Tensor target, int reduction=1, float delta=1.0", lowerHuber);
  table.add(
      "aten.binary_cross_entropy_with_logits.default",
      "Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1",
      lowerBinaryCrossEntropyWithLogits);
  table.add("aten.binary_cross_entropy.default",
            "Tensor self, Tensor target, Tensor? weight=None, int reduction=1",
            lowerBinaryCrossEntropy);
}
