//===- LowerToLinalgLosses.cpp - softmax cross entropy --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows of logits are independent: a row kernel computes each row's loss and weight, and two small
// reductions add them up. The target's logit is picked by comparing class numbers rather than by an
// indexed read, so that the logits themselves may be a value that is never stored.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// What forward and backward share: sizes, types, maps of the [rows, classes] domain.
struct CrossEntropy {
  Value logits, targets, classWeights;
  RankedTensorType type;
  Type compute, targetType;
  int64_t classes, ignoreIndex;
  double smoothing;
  AffineMap rowMap, classMap;

  template <typename OpType>
  CrossEntropy(OpType op, ImplicitLocOpBuilder &b)
      : logits(op.getLogits()), targets(op.getTargets()), classWeights(op.getClassWeights()),
        type(tensorType(logits)), compute(getComputeType(type.getElementType())),
        targetType(tensorType(targets).getElementType()), classes(type.getDimSize(1)),
        ignoreIndex(op.getIgnoreIndexAttr().getInt()),
        smoothing(op.getLabelSmoothingAttr().getValueAsDouble()),
        rowMap(selectDims(b.getContext(), 2, {0})), classMap(selectDims(b.getContext(), 2, {1})) {}

  /// Whether the current class (loop 1) is the row's target.
  static Value isTarget(ImplicitLocOpBuilder &b, Value target) {
    // 32 bits suffice for a class number, and compare twice as many lanes.
    Value index = arith::IndexCastOp::create(b, b.getI32Type(), linalg::IndexOp::create(b, 1));
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, index,
                                 convertTo(b, target, b.getI32Type()));
  }
  /// Whether the row takes part.
  Value takesPart(ImplicitLocOpBuilder &b, Value target) const {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, target,
                                 createIntConstant(b, targetType, ignoreIndex));
  }
};
} // namespace

/// The sum of all class weights, as a scalar tensor.
static Value createWeightSum(ImplicitLocOpBuilder &b, const CrossEntropy &loss) {
  return createReduction(b, {loss.classes}, {0}, {readAll(b, loss.classWeights)},
                         {{ReduceKind::Add, loss.compute}},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           return SmallVector<Value>{convertTo(inner, x[0], loss.compute)};
                         })
      .front();
}

/// Per row the sums along classes: exp(x - max), the target's x - max, the target's weight when
/// there are weights, and the (weighted) sum of x - max when there is smoothing. Differences to the
/// largest logit keep a small loss exact where the logits are large.
static SmallVector<Value> createRowSums(ImplicitLocOpBuilder &b, const CrossEntropy &loss,
                                        Value largest) {
  SmallVector<Read> reads{
      readAll(b, loss.logits), {loss.targets, loss.rowMap}, {largest, loss.rowMap}};
  SmallVector<Accumulator> sums(2, {ReduceKind::Add, loss.compute});
  if (loss.classWeights) {
    reads.push_back({loss.classWeights, loss.classMap});
    sums.push_back(sums.front());
  }
  if (loss.smoothing != 0)
    sums.push_back(sums.front());
  return createPlainReduction(
      b, loss.type.getShape(), {1}, reads, sums, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Value below = arith::SubFOp::create(inner, convertTo(inner, x[0], loss.compute), x[2]);
        Value zero = createConstant(inner, loss.compute, 0.0);
        Value isTarget = CrossEntropy::isTarget(inner, x[1]);
        SmallVector<Value> terms;
        terms.push_back(math::ExpOp::create(inner, below));
        terms.push_back(arith::SelectOp::create(inner, isTarget, below, zero));
        Value weight = loss.classWeights ? convertTo(inner, x[3], loss.compute) : Value();
        if (weight)
          terms.push_back(arith::SelectOp::create(inner, isTarget, weight, zero));
        if (loss.smoothing != 0)
          terms.push_back(weight ? Value(arith::MulFOp::create(inner, weight, below)) : below);
        return terms;
      });
}

/// (1 - e) w_t (s - d_t) + e / C (s sum w - sum w d), as PyTorch spreads the smoothing e, with
/// d = x - max and s = log sum exp d; with it the row's weight, and s.
static SmallVector<Value> createRowLosses(ImplicitLocOpBuilder &b, const CrossEntropy &loss,
                                          ArrayRef<Value> sums, Value weightSum) {
  AffineMap identity = b.getMultiDimIdentityMap(1),
            scalarMap = AffineMap::get(1, 0, b.getContext());
  SmallVector<Read> reads{{loss.targets, identity}};
  for (Value sum : sums)
    reads.push_back({sum, identity});
  if (weightSum)
    reads.push_back({weightSum, scalarMap});
  return createPointwise(
      b, {loss.type.getDimSize(0)}, reads, {loss.compute, loss.compute, loss.compute},
      [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Value zero = createConstant(inner, loss.compute, 0.0);
        Value takesPart = loss.takesPart(inner, x[0]);
        Value logSum = math::LogOp::create(inner, x[1]);
        Value nll = arith::SubFOp::create(inner, logSum, x[2]);
        Value weight = loss.classWeights ? x[3] : createConstant(inner, loss.compute, 1.0);
        if (loss.classWeights)
          nll = arith::MulFOp::create(inner, weight, nll);
        if (loss.smoothing != 0) {
          Value below = x[loss.classWeights ? 4 : 3];
          Value share = weightSum ? x.back() : createConstant(inner, loss.compute, loss.classes);
          Value smooth =
              arith::SubFOp::create(inner, arith::MulFOp::create(inner, logSum, share), below);
          Value hard = createConstant(inner, loss.compute, 1.0 - loss.smoothing);
          Value soft = createConstant(inner, loss.compute, loss.smoothing / loss.classes);
          nll = arith::AddFOp::create(inner, arith::MulFOp::create(inner, hard, nll),
                                      arith::MulFOp::create(inner, soft, smooth));
        }
        return SmallVector<Value>{arith::SelectOp::create(inner, takesPart, nll, zero),
                                  arith::SelectOp::create(inner, takesPart, weight, zero), logSum};
      });
}

/// `value`, a tensor in the compute type, as a tensor of `element`.
static Value castElements(ImplicitLocOpBuilder &b, Value value, Type element) {
  RankedTensorType type = tensorType(value);
  if (type.getElementType() == element)
    return value;
  return createPointwise(b, type.getShape(), {readAll(b, value)}, ArrayRef<Type>{element},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           return SmallVector<Value>{convertTo(inner, x[0], element)};
                         })
      .front();
}

/// By row the weight of its target; zero where that is ignored.
static Value createRowWeights(ImplicitLocOpBuilder &b, const CrossEntropy &loss) {
  return createPointwise(
             b, {loss.type.getDimSize(0)}, {readAll(b, loss.targets)}, ArrayRef<Type>{loss.compute},
             [&](ImplicitLocOpBuilder &inner, ValueRange x) {
               Value weight = createConstant(inner, loss.compute, 1.0);
               if (loss.classWeights) {
                 Value inside =
                     arith::SelectOp::create(inner, loss.takesPart(inner, x[0]), x[0],
                                             createIntConstant(inner, loss.targetType, 0));
                 Value index = convertTo(inner, inside, inner.getIndexType());
                 weight =
                     convertTo(inner, tensor::ExtractOp::create(inner, loss.classWeights, index),
                               loss.compute);
               }
               Value zero = createConstant(inner, loss.compute, 0.0);
               return SmallVector<Value>{
                   arith::SelectOp::create(inner, loss.takesPart(inner, x[0]), weight, zero)};
             })
      .front();
}

/// The count alone, of which no logit is a part: accumulation asks for it ahead of everything else.
static Lowered lowerCount(CrossEntropyOp op, const CrossEntropy &loss, ImplicitLocOpBuilder &b) {
  Value count =
      createReduction(
          b, {loss.type.getDimSize(0)}, {0}, {readAll(b, createRowWeights(b, loss))},
          {{ReduceKind::Add, loss.compute}},
          [](ImplicitLocOpBuilder &, ValueRange x) { return llvm::to_vector_of<Value>(x); })
          .front();
  count = castElements(b, count, tensorType(op.getCount()).getElementType());
  auto nothing = [&](Value result) -> Value {
    RankedTensorType type = tensorType(result);
    return tensor::EmptyOp::create(b, type.getShape(), type.getElementType());
  };
  return SmallVector<Value>{nothing(op.getTotal()), count, nothing(op.getLargest()),
                            nothing(op.getLogSum())};
}

static Lowered lowerCrossEntropy(CrossEntropyOp op, ImplicitLocOpBuilder &b) {
  CrossEntropy loss(op, b);
  if (op.getTotal().use_empty() && op.getLargest().use_empty() && op.getLogSum().use_empty())
    return lowerCount(op, loss, b);
  Value largest =
      createPlainReduction(b, loss.type.getShape(), {1}, {readAll(b, loss.logits)},
                           {{ReduceKind::Max, loss.compute}},
                           [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                             return SmallVector<Value>{convertTo(inner, x[0], loss.compute)};
                           })
          .front();
  SmallVector<Value> sums = createRowSums(b, loss, largest);
  Value weightSum = loss.classWeights && loss.smoothing != 0 ? createWeightSum(b, loss) : Value();
  SmallVector<Value> rows = createRowLosses(b, loss, sums, weightSum);
  SmallVector<Value> totals = createReduction(
      b, {loss.type.getDimSize(0)}, {0}, {readAll(b, rows[0]), readAll(b, rows[1])},
      {{ReduceKind::Add, loss.compute}, {ReduceKind::Add, loss.compute}},
      [](ImplicitLocOpBuilder &, ValueRange x) { return llvm::to_vector_of<Value>(x); });
  SmallVector<Value> results{totals[0], totals[1], largest, rows[2]};
  for (auto [value, result] : llvm::zip_equal(results, op->getResults()))
    value = castElements(b, value, tensorType(result).getElementType());
  return results;
}

/// gradient * ((1 - e) w_t (p - [c = t]) + e / C (p sum w - w_c)) on rows that take part.
static Lowered lowerCrossEntropyBackward(CrossEntropyBackwardOp op, ImplicitLocOpBuilder &b) {
  CrossEntropy loss(op, b);
  AffineMap scalarMap = AffineMap::get(2, 0, b.getContext());
  SmallVector<Read> reads{readAll(b, loss.logits),
                          {loss.targets, loss.rowMap},
                          {op.getLargest(), loss.rowMap},
                          {op.getLogSum(), loss.rowMap},
                          {op.getGradient(), scalarMap}};
  if (loss.classWeights) {
    Value weights = loss.classWeights, rowWeight = createRowWeights(b, loss);
    reads.push_back({rowWeight, loss.rowMap});
    reads.push_back({weights, loss.classMap});
    if (loss.smoothing != 0)
      reads.push_back({createWeightSum(b, loss), scalarMap});
  }
  Type element = loss.type.getElementType();
  return createPointwise(
      b, loss.type.getShape(), reads, {element}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        auto mul = [&](Value l, Value r) -> Value { return arith::MulFOp::create(inner, l, r); };
        auto sub = [&](Value l, Value r) -> Value { return arith::SubFOp::create(inner, l, r); };
        auto number = [&](double value) { return createConstant(inner, loss.compute, value); };
        Value logit = convertTo(inner, x[0], loss.compute);
        Value below = sub(logit, convertTo(inner, x[2], loss.compute));
        Value probability =
            math::ExpOp::create(inner, sub(below, convertTo(inner, x[3], loss.compute)));
        Value hit = arith::SelectOp::create(inner, CrossEntropy::isTarget(inner, x[1]), number(1.0),
                                            number(0.0));
        Value slope = sub(probability, hit);
        if (loss.classWeights)
          slope = mul(x[5], slope);
        if (loss.smoothing != 0) {
          Value share = loss.classWeights ? x[7] : number(loss.classes);
          Value own = loss.classWeights ? convertTo(inner, x[6], loss.compute) : number(1.0);
          Value soft = sub(mul(probability, share), own);
          slope = arith::AddFOp::create(inner, mul(number(1.0 - loss.smoothing), slope),
                                        mul(number(loss.smoothing / loss.classes), soft));
        }
        Value scaled = mul(convertTo(inner, x[4], loss.compute), slope);
        Value kept =
            arith::SelectOp::create(inner, loss.takesPart(inner, x[1]), scaled, number(0.0));
        return SmallVector<Value>{convertTo(inner, kept, element)};
      });
}

void mlir::memopt::populateLossLowerings(LinalgLowerings &lowerings) {
  lowerings.add<CrossEntropyOp>(lowerCrossEntropy);
  lowerings.add<CrossEntropyBackwardOp>(lowerCrossEntropyBackward);
}
