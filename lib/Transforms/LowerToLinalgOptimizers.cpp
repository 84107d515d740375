//===- LowerToLinalgOptimizers.cpp - optimizer steps --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The scalars of a step (learning rate, bias corrections) are generics of rank 0 in f64: CSE makes
// them one for all parameters, and they are far from the loops over parameters.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"
#include "ScalarFormula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::memopt;

/// A tensor of rank 0 from others of rank 0, computed in f64.
static Value createScalar(ImplicitLocOpBuilder &b, ArrayRef<Value> inputs, Type element,
                          llvm::function_ref<Value(Formula &, ValueRange)> compute) {
  SmallVector<Read> reads;
  for (Value input : inputs)
    reads.push_back(readAll(b, input));
  return createPointwise(b, {}, reads, ArrayRef<Type>{element},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           Formula formula{inner, inner.getF64Type()};
                           return SmallVector<Value>{
                               convertTo(inner, compute(formula, x), element)};
                         })
      .front();
}

static Lowered lowerSgd(SgdStepOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorTypeOf(op.getParameter());
  Type element = type.getElementType(), compute = getComputeType(element);
  double momentum = op.getMomentumAttr().getValueAsDouble();
  double dampening = op.getDampeningAttr().getValueAsDouble();
  double decay = op.getWeightDecayAttr().getValueAsDouble();
  Value rate = createScalar(b, {op.getLearningRate()}, compute,
                            [](Formula &f, ValueRange x) { return f.wide(x[0]); });
  AffineMap scalarMap = AffineMap::get(type.getRank(), 0, b.getContext());
  SmallVector<Read> reads{
      readAll(b, op.getParameter()), readAll(b, op.getGradient()), {rate, scalarMap}};
  SmallVector<Type> types{element};
  Value buffer = op.getBuffer();
  if (buffer) {
    reads.push_back(readAll(b, buffer));
    reads.push_back({op.getStep(), scalarMap});
    types.push_back(tensorTypeOf(buffer).getElementType());
  }
  return createPointwise(
      b, type.getShape(), reads, types, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Formula f{inner, compute};
        Value parameter = f.wide(x[0]), gradient = f.wide(x[1]);
        if (decay != 0)
          gradient = f.add(gradient, f.scale(decay, parameter));
        SmallVector<Value> results(1);
        if (buffer) {
          Value first = arith::CmpIOp::create(
              inner, arith::CmpIPredicate::eq, x[4],
              createIntConstant(inner, tensorTypeOf(op.getStep()).getElementType(), 1));
          Value later = f.add(f.scale(momentum, f.wide(x[3])),
                              dampening == 0 ? gradient : f.scale(1.0 - dampening, gradient));
          Value moving = arith::SelectOp::create(inner, first, gradient, later);
          gradient = op.getNesterov() ? f.add(gradient, f.scale(momentum, moving)) : moving;
          results.push_back(convertTo(inner, moving, types[1]));
        }
        results[0] = convertTo(inner, f.sub(parameter, f.mul(x[2], gradient)), element);
        return results;
      });
}

namespace {
/// The scalars of an Adam step, each a tensor of rank 0 in the compute type.
struct AdamScalars {
  Value stepSize;         ///< lr / (1 - beta1^t)
  Value secondCorrection; ///< sqrt(1 - beta2^t)
  Value rate;             ///< lr
};
} // namespace

static AdamScalars createAdamScalars(AdamStepOp op, ImplicitLocOpBuilder &b, Type compute) {
  auto correction = [](Formula &f, Value step, double beta) {
    Value power = math::PowFOp::create(f.b, f.number(beta), f.wide(step));
    return f.sub(f.number(1.0), power);
  };
  AdamScalars scalars;
  scalars.stepSize =
      createScalar(b, {op.getLearningRate(), op.getStep()}, compute, [&](Formula &f, ValueRange x) {
        return f.div(f.wide(x[0]), correction(f, x[1], op.getBeta1Attr().getValueAsDouble()));
      });
  scalars.secondCorrection =
      createScalar(b, {op.getStep()}, compute, [&](Formula &f, ValueRange x) -> Value {
        return math::SqrtOp::create(f.b, correction(f, x[0], op.getBeta2Attr().getValueAsDouble()));
      });
  scalars.rate = createScalar(b, {op.getLearningRate()}, compute,
                              [](Formula &f, ValueRange x) { return f.wide(x[0]); });
  return scalars;
}

static Lowered lowerAdam(AdamStepOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorTypeOf(op.getParameter());
  Type element = type.getElementType(), compute = getComputeType(element);
  AdamScalars scalars = createAdamScalars(op, b, compute);
  AffineMap scalarMap = AffineMap::get(type.getRank(), 0, b.getContext());
  SmallVector<Read> reads{readAll(b, op.getParameter()),   readAll(b, op.getGradient()),
                          readAll(b, op.getFirstMoment()), readAll(b, op.getSecondMoment()),
                          {scalars.stepSize, scalarMap},   {scalars.secondCorrection, scalarMap},
                          {scalars.rate, scalarMap}};
  double beta1 = op.getBeta1Attr().getValueAsDouble(), beta2 = op.getBeta2Attr().getValueAsDouble();
  double decay = op.getWeightDecayAttr().getValueAsDouble();
  SmallVector<Type> types{element, tensorTypeOf(op.getFirstMoment()).getElementType(),
                          tensorTypeOf(op.getSecondMoment()).getElementType()};
  return createPointwise(
      b, type.getShape(), reads, types, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Formula f{inner, compute};
        Value parameter = f.wide(x[0]), gradient = f.wide(x[1]);
        if (decay != 0 && op.getDecoupled())
          parameter = f.sub(parameter, f.mul(f.scale(decay, x[6]), parameter));
        else if (decay != 0)
          gradient = f.add(gradient, f.scale(decay, parameter));
        Value first = f.add(f.scale(beta1, f.wide(x[2])), f.scale(1.0 - beta1, gradient));
        Value second =
            f.add(f.scale(beta2, f.wide(x[3])), f.mul(f.scale(1.0 - beta2, gradient), gradient));
        Value spread = f.add(f.div(math::SqrtOp::create(inner, second), x[5]),
                             f.number(op.getEpsAttr().getValueAsDouble()));
        Value moved = f.sub(parameter, f.mul(x[4], f.div(first, spread)));
        return SmallVector<Value>{convertTo(inner, moved, types[0]),
                                  convertTo(inner, first, types[1]),
                                  convertTo(inner, second, types[2])};
      });
}

void memopt::populateOptimizerLowerings(LinalgLowerings &lowerings) {
  lowerings.add<SgdStepOp>(lowerSgd);
  lowerings.add<AdamStepOp>(lowerAdam);
}
