//===- LowerToLinalgActivations.cpp - activations, softmax, sums --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::memopt;

/// A pointwise function of one tensor, computed in the compute type.
template <typename Scalar>
static Lowered lowerUnary(Operation *op, ImplicitLocOpBuilder &b, Scalar scalar) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  return createPointwise(b, type.getShape(), {readAll(b, op->getOperand(0))},
                         {type.getElementType()}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           Type compute = getComputeType(type.getElementType());
                           Value y = scalar(inner, convertTo(inner, x[0], compute), compute);
                           return SmallVector<Value>{convertTo(inner, y, type.getElementType())};
                         });
}

static Lowered lowerRelu(ReluOp op, ImplicitLocOpBuilder &b) {
  return lowerUnary(op, b, [](ImplicitLocOpBuilder &inner, Value x, Type type) -> Value {
    // Not ordered-and-less-or-equal keeps a NaN.
    Value zero = createConstant(inner, type, 0.0);
    Value isSmall = arith::CmpFOp::create(inner, arith::CmpFPredicate::OLE, x, zero);
    return arith::SelectOp::create(inner, isSmall, zero, x);
  });
}

static Lowered lowerSigmoid(SigmoidOp op, ImplicitLocOpBuilder &b) {
  return lowerUnary(op, b, [](ImplicitLocOpBuilder &inner, Value x, Type type) -> Value {
    Value one = createConstant(inner, type, 1.0);
    Value power = math::ExpOp::create(inner, arith::NegFOp::create(inner, x));
    return arith::DivFOp::create(inner, one, arith::AddFOp::create(inner, one, power));
  });
}

static Lowered lowerSoftplus(SoftplusOp op, ImplicitLocOpBuilder &b) {
  return lowerUnary(op, b, [](ImplicitLocOpBuilder &inner, Value x, Type type) -> Value {
    // log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)): the exponential never overflows.
    Value size = math::AbsFOp::create(inner, x);
    Value power = math::ExpOp::create(inner, arith::NegFOp::create(inner, size));
    Value bend = math::Log1pOp::create(inner, power);
    Value linear = arith::MaximumFOp::create(inner, x, createConstant(inner, type, 0.0));
    return arith::AddFOp::create(inner, linear, bend);
  });
}

static Lowered lowerAccumulate(AccumulateOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getResult());
  return createPointwise(b, type.getShape(), {readAll(b, op.getSum()), readAll(b, op.getValue())},
                         {type.getElementType()}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           return SmallVector<Value>{arith::AddFOp::create(inner, x[0], x[1])};
                         });
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

/// Largest element and sum of exp(x - largest) along `axis`, in the compute type.
static std::pair<Value, Value> createSoftmaxStatistics(ImplicitLocOpBuilder &b, Value input,
                                                       int64_t axis, AffineMap rowMap) {
  RankedTensorType type = tensorType(input);
  Type compute = getComputeType(type.getElementType());
  Value largest = createPlainReduction(b, type.getShape(), {axis}, {readAll(b, input)},
                                       {{ReduceKind::Max, compute}},
                                       [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                                         return SmallVector<Value>{convertTo(inner, x[0], compute)};
                                       })
                      .front();
  Value sum =
      createPlainReduction(b, type.getShape(), {axis}, {readAll(b, input), {largest, rowMap}},
                           {{ReduceKind::Add, compute}},
                           [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                             Value shifted = arith::SubFOp::create(
                                 inner, convertTo(inner, x[0], compute), x[1]);
                             return SmallVector<Value>{math::ExpOp::create(inner, shifted)};
                           })
          .front();
  return {largest, sum};
}

template <typename OpType, bool isLog>
static Lowered lowerSoftmax(OpType op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getInput());
  Type compute = getComputeType(type.getElementType());
  int64_t axis = op.getAxisAttr().getInt();
  SmallVector<int64_t> kept;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (dim != axis)
      kept.push_back(dim);
  AffineMap rowMap = selectDims(b.getContext(), type.getRank(), kept);
  auto [largest, sum] = createSoftmaxStatistics(b, op.getInput(), axis, rowMap);
  return createPointwise(
      b, type.getShape(), {readAll(b, op.getInput()), {largest, rowMap}, {sum, rowMap}},
      {type.getElementType()}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Value shifted = arith::SubFOp::create(inner, convertTo(inner, x[0], compute), x[1]);
        Value y =
            isLog ? Value(arith::SubFOp::create(inner, shifted, math::LogOp::create(inner, x[2])))
                  : Value(arith::DivFOp::create(inner, math::ExpOp::create(inner, shifted), x[2]));
        return SmallVector<Value>{convertTo(inner, y, type.getElementType())};
      });
}

void mlir::memopt::populateActivationLowerings(LinalgLowerings &lowerings) {
  lowerings.add<ReluOp>(lowerRelu);
  lowerings.add<SigmoidOp>(lowerSigmoid);
  lowerings.add<SoftplusOp>(lowerSoftplus);
  lowerings.add<AccumulateOp>(lowerAccumulate);
  lowerings.add<SoftmaxOp>(lowerSoftmax<SoftmaxOp, false>);
  lowerings.add<LogSoftmaxOp>(lowerSoftmax<LogSoftmaxOp, true>);
}
