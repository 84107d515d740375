//===- Random.cpp - random draws -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Draws are counted, not remembered: each random operator of the model gets a number of its own,
// and its bits follow from seed, step, that number and the element (memopt.random).
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"
#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Draws
//===----------------------------------------------------------------------===//

/// Numbers of a distribution; halves are drawn as f32.
static Tensor draw(OpContext &op, mlir::memopt::Distribution distribution, DType type,
                   ArrayRef<int64_t> sizes) {
  DType drawn = type == DType::F64 ? DType::F64 : DType::F32;
  RandomState random = nextRandomState(op);
  Value numbers = mlir::memopt::RandomOp::create(op.b, op.tensorType(drawn, sizes), random.seed,
                                                 random.step, distribution, random.id);
  return castTo(op, op.wrap(drawn, numbers), type);
}

/// The type and sizes that the file claims for the result, which no argument may decide.
static Error checkDrawn(OpContext &op) {
  const TensorMeta &meta = op.resultMeta(0);
  if (!isFloat(meta.dtype) || meta.getNumElements() == 0)
    return op.error("expected a floating-point result with elements, found " + getName(meta.dtype) +
                    toString(meta.sizes));
  return Error::success();
}

template <mlir::memopt::Distribution distribution> static Error lowerDraw(OpContext &op) {
  RETURN_IF_ERROR(checkDrawn(op));
  const TensorMeta &meta = op.resultMeta(0);
  return setResult(op, draw(op, distribution, meta.dtype, meta.sizes));
}

/// offset + scale x
static Expected<Tensor> shiftAndScale(OpContext &op, const Tensor &x, const Operand &scale,
                                      const Operand &offset) {
  return elementwise(op, {x, scale, offset}, x.dtype, x.dtype, [](Builder &b, ValueRange v) {
    return Value(arith::AddFOp::create(b, multiply(b, v[0], v[1]), v[2]));
  });
}

static Scalar number(double value) { return Scalar{true, false, value, 0}; }

static Error lowerUniform(OpContext &op) {
  RETURN_IF_ERROR(checkDrawn(op));
  const TensorMeta &meta = op.resultMeta(0);
  double from = op.number("from"), to = op.number("to");
  Tensor drawn = draw(op, mlir::memopt::Distribution::Uniform, meta.dtype, meta.sizes);
  return setResult(op, shiftAndScale(op, drawn, number(to - from), number(from)));
}

/// Mean and deviation are numbers or tensors. No gradient reaches them, as in PyTorch: what is to
/// be trained is written mean + std * randn_like(mean).
static Error lowerNormal(OpContext &op) {
  RETURN_IF_ERROR(checkDrawn(op));
  const TensorMeta &meta = op.resultMeta(0);
  Tensor drawn = draw(op, mlir::memopt::Distribution::Normal, meta.dtype, meta.sizes);
  ASSIGN_OR_RETURN(drawn, shiftAndScale(op, drawn, op.operand("std"), op.operand("mean")));
  return setResult(op, op.wrap(meta.dtype, withoutGradient({op.b, op.get(drawn)})));
}

static Error lowerExponential(OpContext &op) {
  RETURN_IF_ERROR(checkDrawn(op));
  double rate = op.number("lambd");
  if (!(rate > 0))
    return op.error("argument 'lambd': expected a positive number, found " + toString(rate));
  const TensorMeta &meta = op.resultMeta(0);
  Tensor drawn = draw(op, mlir::memopt::Distribution::Exponential, meta.dtype, meta.sizes);
  return setResult(op, shiftAndScale(op, drawn, number(1 / rate), number(0)));
}

static Error lowerLogNormal(OpContext &op) {
  RETURN_IF_ERROR(checkDrawn(op));
  const TensorMeta &meta = op.resultMeta(0);
  Tensor drawn = draw(op, mlir::memopt::Distribution::Normal, meta.dtype, meta.sizes);
  ASSIGN_OR_RETURN(drawn,
                   shiftAndScale(op, drawn, number(op.number("std")), number(op.number("mean"))));
  return setResult(op, op.wrap(meta.dtype, mlir::math::ExpOp::create(op.b, op.get(drawn))));
}

/// By the inverse of the distribution function: median + sigma tan(pi (u - 1/2)).
static Error lowerCauchy(OpContext &op) {
  RETURN_IF_ERROR(checkDrawn(op));
  const TensorMeta &meta = op.resultMeta(0);
  Tensor drawn = draw(op, mlir::memopt::Distribution::Uniform, meta.dtype, meta.sizes);
  constexpr double halfTurn = 3.141592653589793;
  ASSIGN_OR_RETURN(Tensor angle, shiftAndScale(op, drawn, number(halfTurn), number(-halfTurn / 2)));
  Tensor tangent = op.wrap(meta.dtype, mlir::math::TanOp::create(op.b, op.get(angle)));
  return setResult(
      op, shiftAndScale(op, tangent, number(op.number("sigma")), number(op.number("median"))));
}

/// The number of trials up to the first success: ceil(ln u / ln(1 - p)).
static Error lowerGeometric(OpContext &op) {
  RETURN_IF_ERROR(checkDrawn(op));
  double p = op.number("p");
  if (!(p > 0 && p < 1))
    return op.error("argument 'p': expected a number between 0 and 1, found " + toString(p));
  const TensorMeta &meta = op.resultMeta(0);
  Tensor drawn = draw(op, mlir::memopt::Distribution::Exponential, meta.dtype, meta.sizes);
  ASSIGN_OR_RETURN(Tensor trials, shiftAndScale(op, drawn, number(-1 / std::log1p(-p)), number(0)));
  return setResult(op, op.wrap(meta.dtype, mlir::math::CeilOp::create(op.b, op.get(trials))));
}

/// Ones with the probability that another tensor gives for each element.
static Error lowerBernoulliTensor(OpContext &op) {
  Tensor p = op.tensor(op.hasParameter("p") ? "p" : "self");
  const TensorMeta &meta = op.resultMeta(0);
  if (!isFloat(p.dtype) || meta.getNumElements() == 0)
    return op.error("expected floating-point probabilities, found " + getName(p.dtype));
  ASSIGN_OR_RETURN(p, expand(op, op.importer.stopGradient(p), meta.sizes));
  Tensor drawn = draw(op, mlir::memopt::Distribution::Uniform, p.dtype, meta.sizes);
  ASSIGN_OR_RETURN(
      Tensor hit,
      elementwise(op, {drawn, p}, p.dtype, DType::Bool, [](Builder &b, ValueRange v) -> Value {
        return arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, v[0], v[1]);
      }));
  return setResult(op, castTo(op, hit, meta.dtype));
}

/// low + floor(u (high - low)) with 53 random bits.
static Error lowerRandomIntegers(OpContext &op) {
  const TensorMeta &meta = op.resultMeta(0);
  int64_t low = op.hasParameter("low") ? op.integer("low") : 0, high = op.integer("high");
  constexpr int64_t most = int64_t(1) << 52;
  if (high <= low || low < -most || high > most || meta.getNumElements() == 0)
    return op.error("expected a range of integers, found " + Twine(low) + " to " + Twine(high));
  Tensor drawn = draw(op, mlir::memopt::Distribution::Uniform, DType::F64, meta.sizes);
  ASSIGN_OR_RETURN(drawn,
                   shiftAndScale(op, drawn, number(double(high - low)), number(double(low))));
  Tensor whole = op.wrap(DType::F64, mlir::math::FloorOp::create(op.b, op.get(drawn)));
  return setResult(op, castTo(op, whole, meta.dtype));
}

/// The order of random numbers.
static Error lowerRandomPermutation(OpContext &op) {
  const TensorMeta &meta = op.resultMeta(0);
  if (meta.sizes.size() != 1 || meta.getNumElements() == 0)
    return op.error("expected a permutation of one element at least");
  Tensor drawn = draw(op, mlir::memopt::Distribution::Uniform, DType::F64, meta.sizes);
  Value order = mlir::memopt::ArgsortOp::create(op.b, op.tensorType(DType::I64, meta.sizes),
                                                op.get(drawn), 0, false);
  return setResult(op, castTo(op, op.wrap(DType::I64, order), meta.dtype));
}

/// Without replacement: the largest of ln w + Gumbel noise (Efraimidis and Spirakis, 2006), that is
/// the smallest of exponential draws divided by weights. With it: each draw finds its place among
/// running sums.
static Error lowerMultinomial(OpContext &op) {
  Tensor weights = op.importer.stopGradient(op.tensor("self"));
  const TensorMeta &meta = op.resultMeta(0);
  int64_t axis = weights.rank() - 1, samples = op.integer("num_samples");
  if (axis < 0 || axis > 1 || !isFloat(weights.dtype) || weights.getNumElements() == 0 ||
      samples < 1)
    return op.error("expected floating-point weights of rank 1 or 2 and a number of samples");
  Builder &b = op.b;
  Value value = op.get(weights);
  if (!op.flag("replacement")) {
    if (samples > weights.sizes[axis])
      return op.error("cannot draw " + Twine(samples) + " of " + Twine(weights.sizes[axis]) +
                      " without replacement");
    Value noise =
        op.get(draw(op, mlir::memopt::Distribution::Exponential, weights.dtype, weights.sizes));
    Value keys = arith::DivFOp::create(b, noise, value);
    Value order = mlir::memopt::ArgsortOp::create(b, op.tensorType(DType::I64, meta.sizes), keys,
                                                  axis, false);
    return setResult(op, op.wrap(DType::I64, order));
  }
  Value sums = mlir::memopt::LinearScanOp::create(b, splat(b, value.getType(), 1.0), value, axis,
                                                  false, APFloat(0.0));
  Shape pairs(meta.sizes), column(meta.sizes), row(weights.sizes);
  pairs.push_back(weights.sizes[axis]);
  column.push_back(1);
  row.insert(row.begin() + axis, 1);
  ASSIGN_OR_RETURN(Tensor running, reshape(op, op.wrap(weights.dtype, sums), row));
  Tensor drawn = draw(op, mlir::memopt::Distribution::Uniform, weights.dtype, meta.sizes);
  ASSIGN_OR_RETURN(drawn, reshape(op, drawn, column));
  ASSIGN_OR_RETURN(Tensor total,
                   slice(op, running, running.rank() - 1, weights.sizes[axis] - 1, 1, 1));
  ASSIGN_OR_RETURN(Tensor below,
                   elementwise(op, {running, drawn, total}, weights.dtype, DType::Bool,
                               [](Builder &b, ValueRange v) -> Value {
                                 return arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, v[0],
                                                              multiply(b, v[1], v[2]));
                               }));
  Value ones = convert(b, broadcastValue(b, op.get(below), pairs), DType::Bool, DType::I64);
  Value place = reduceValue(b, ones, mlir::memopt::ReduceKind::Add, meta.sizes.size());
  Value last = splat(b, place.getType(), double(weights.sizes[axis] - 1));
  return setResult(op, op.wrap(DType::I64, arith::MinSIOp::create(b, place, last)));
}

/// x where it is positive, else x times a random slope; in evaluation the mean one.
static Error lowerRandomizedRelu(OpContext &op) {
  Tensor self = op.tensor("self");
  double lower = op.number("lower"), upper = op.number("upper");
  if (!isFloat(self.dtype) || self.getNumElements() == 0)
    return op.error("expected a floating-point tensor, found " + getName(self.dtype));
  Operand slope = number((lower + upper) / 2);
  if (op.flag("training") && dropoutIsOn(op)) {
    Tensor drawn = draw(op, mlir::memopt::Distribution::Uniform, self.dtype, self.sizes);
    ASSIGN_OR_RETURN(slope, shiftAndScale(op, drawn, number(upper - lower), number(lower)));
  }
  return setResult(
      op,
      elementwise(op, {self, slope}, self.dtype, self.dtype, [](Builder &b, ValueRange v) -> Value {
        Value zero = splat(b, v[0].getType(), 0.0);
        Value isPositive = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, v[0], zero);
        return arith::SelectOp::create(b, isPositive, v[0], multiply(b, v[0], v[1]));
      }));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerRandom(OpTable &table) {
  constexpr StringLiteral bySize = "int[] size, ignored generator, ignored names, ignored dtype, "
                                   "ignored layout, ignored device, ignored pin_memory";
  constexpr StringLiteral like = "Tensor self, ignored generator, ignored dtype, ignored layout, "
                                 "ignored device, ignored pin_memory, ignored memory_format";
  using mlir::memopt::Distribution;
  table.add("aten.rand.default", bySize, lowerDraw<Distribution::Uniform>);
  table.add("aten.rand.generator", bySize, lowerDraw<Distribution::Uniform>);
  table.add("aten.randn.default", bySize, lowerDraw<Distribution::Normal>);
  table.add("aten.randn.generator", bySize, lowerDraw<Distribution::Normal>);
  table.add("aten.rand_like.default", like, lowerDraw<Distribution::Uniform>);
  table.add("aten.randn_like.default", like, lowerDraw<Distribution::Normal>);
  table.add("aten.uniform.default", "Tensor self, float from=0, float to=1, ignored generator",
            lowerUniform);
  constexpr StringLiteral normal = "Tensor self, Scalar mean=0, Scalar std=1, ignored generator";
  table.add("aten.normal.default", normal, lowerNormal);
  table.add("aten.normal_functional.default", normal, lowerNormal);
  table.add("aten.normal.Tensor_float", "Tensor mean, Scalar std=1, ignored generator",
            lowerNormal);
  table.add("aten.normal.float_Tensor", "Scalar mean, Tensor std, ignored generator", lowerNormal);
  table.add("aten.normal.Tensor_Tensor", "Tensor mean, Tensor std, ignored generator", lowerNormal);
  table.add("aten.normal.float_float",
            "Scalar mean, Scalar std, int[] size, ignored generator, ignored dtype, ignored "
            "layout, ignored device, ignored pin_memory",
            lowerNormal);
  table.add("aten.log_normal.default", "Tensor self, float mean=1, float std=2, ignored generator",
            lowerLogNormal);
  table.add("aten.exponential.default", "Tensor self, float lambd=1, ignored generator",
            lowerExponential);
  table.add("aten.cauchy.default", "Tensor self, float median=0, float sigma=1, ignored generator",
            lowerCauchy);
  table.add("aten.geometric.default", "Tensor self, float p, ignored generator", lowerGeometric);
  table.add("aten.bernoulli.default", "Tensor self, ignored generator", lowerBernoulliTensor);
  table.add("aten.bernoulli.Tensor", "Tensor self, Tensor p, ignored generator",
            lowerBernoulliTensor);
  table.add("aten.randint.default",
            "int high, int[] size, ignored generator, ignored dtype, ignored layout, ignored "
            "device, ignored pin_memory",
            lowerRandomIntegers);
  table.add("aten.randint.low",
            "int low, int high, int[] size, ignored generator, ignored dtype, ignored layout, "
            "ignored device, ignored pin_memory",
            lowerRandomIntegers);
  table.add("aten.randint_like.default",
            "Tensor self, int high, ignored dtype, ignored layout, ignored device, ignored "
            "pin_memory, ignored memory_format",
            lowerRandomIntegers);
  table.add("aten.randint_like.low_dtype",
            "Tensor self, int low, int high, ignored dtype, ignored layout, ignored device, "
            "ignored pin_memory, ignored memory_format",
            lowerRandomIntegers);
  table.add("aten.randperm.default",
            "int n, ignored dtype, ignored layout, ignored device, ignored pin_memory",
            lowerRandomPermutation);
  table.add("aten.multinomial.default",
            "Tensor self, int num_samples, bool replacement=False, ignored generator",
            lowerMultinomial);
  table.add("aten.rrelu.default",
            "Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool "
            "training=False, ignored generator",
            lowerRandomizedRelu);
}
