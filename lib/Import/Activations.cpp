//===- Activations.cpp - activations, softmax -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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
static Value multiply(Builder &b, Value x, Value y) { return arith::MulFOp::create(b, x, y); }
static Value multiply(Builder &b, Value x, double y) { return multiply(b, x, constant(b, x, y)); }
static Value add(Builder &b, Value x, Value y) { return arith::AddFOp::create(b, x, y); }
static Value add(Builder &b, Value x, double y) { return add(b, x, constant(b, x, y)); }
static Value greater(Builder &b, Value x, double y) {
  return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, x, constant(b, x, y));
}
static Value select(Builder &b, Value condition, Value x, Value y) {
  return arith::SelectOp::create(b, condition, x, y);
}

/// `low` or `high` where x is outside the open interval, so that no gradient passes on its ends.
static Value saturate(Builder &b, Value x, double low, double high) {
  Value below = arith::CmpFOp::create(b, arith::CmpFPredicate::OLE, x, constant(b, x, low));
  Value above = arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, x, constant(b, x, high));
  return select(b, below, constant(b, x, low), select(b, above, constant(b, x, high), x));
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

template <typename OpTy> static Error lowerFloat(OpContext &op) {
  return mapFloat(op, [](Builder &b, ValueRange v) -> Value { return OpTy::create(b, v[0]); });
}

static Error lowerRelu6(OpContext &op) {
  return mapFloat(op, [](Builder &b, ValueRange v) { return saturate(b, v[0], 0, 6); });
}

static Value tanhGelu(Builder &b, Value x) {
  constexpr double scale = 0.7978845608028654,
                   cubic = 0.044715; // sqrt(2 / pi); Hendrycks and Gimpel
  Value inner = add(b, x, multiply(b, multiply(b, multiply(b, x, x), x), cubic));
  Value tanh = math::TanhOp::create(b, multiply(b, inner, scale));
  return multiply(b, multiply(b, x, 0.5), add(b, tanh, 1));
}

static Error lowerGelu(OpContext &op) {
  StringRef approximate = op.text("approximate");
  if (approximate == "tanh")
    return mapFloat(op, [](Builder &b, ValueRange v) { return tanhGelu(b, v[0]); });
  if (approximate != "none")
    return op.error("argument 'approximate': expected none or tanh, found " + approximate);
  return mapFloat(op, [](Builder &b, ValueRange v) {
    constexpr double inverseRootOfTwo = 0.7071067811865476;
    Value erf = math::ErfOp::create(b, multiply(b, v[0], inverseRootOfTwo));
    return multiply(b, multiply(b, v[0], 0.5), add(b, erf, 1));
  });
}

static Error lowerSilu(OpContext &op) {
  return mapFloat(op, [](Builder &b, ValueRange v) {
    return multiply(b, v[0], mlir::memopt::SigmoidOp::create(b, v[0]));
  });
}

static Error lowerMish(OpContext &op) {
  return mapFloat(op, [](Builder &b, ValueRange v) {
    Value softplus = mlir::memopt::SoftplusOp::create(b, v[0]);
    return multiply(b, v[0], math::TanhOp::create(b, softplus));
  });
}

static Error lowerHardtanh(OpContext &op) {
  double low = op.number("min_val"), high = op.number("max_val");
  return mapFloat(op, [&](Builder &b, ValueRange v) { return saturate(b, v[0], low, high); });
}

static Value hardsigmoid(Builder &b, Value x) {
  return multiply(b, saturate(b, add(b, x, 3), 0, 6), 1.0 / 6);
}
static Error lowerHardsigmoid(OpContext &op) {
  return mapFloat(op, [](Builder &b, ValueRange v) { return hardsigmoid(b, v[0]); });
}
static Error lowerHardswish(OpContext &op) {
  return mapFloat(op,
                  [](Builder &b, ValueRange v) { return multiply(b, v[0], hardsigmoid(b, v[0])); });
}

static Error lowerLeakyRelu(OpContext &op) {
  double slope = op.number("negative_slope");
  return mapFloat(op, [&](Builder &b, ValueRange v) {
    return select(b, greater(b, v[0], 0), v[0], multiply(b, v[0], slope));
  });
}

static Error exponentialUnit(OpContext &op, double alpha, double scale, double inputScale) {
  return mapFloat(op, [&](Builder &b, ValueRange v) {
    Value negative = math::ExpM1Op::create(b, multiply(b, v[0], inputScale));
    return select(b, greater(b, v[0], 0), multiply(b, v[0], scale),
                  multiply(b, negative, alpha * scale));
  });
}

static Error lowerElu(OpContext &op) {
  return exponentialUnit(op, op.number("alpha"), op.number("scale"), op.number("input_scale"));
}

/// Constants of Klambauer et al., Self-Normalizing Neural Networks, section 3.
static Error lowerSelu(OpContext &op) {
  return exponentialUnit(op, 1.6732632423543772, 1.0507009873554805, 1);
}

static Error lowerCelu(OpContext &op) {
  double alpha = op.number("alpha");
  if (alpha == 0)
    return op.error("argument 'alpha' must not be zero");
  return exponentialUnit(op, alpha, 1, 1 / alpha);
}

/// One slope, or one for each channel (dimension 1).
static Error lowerPrelu(OpContext &op) {
  Tensor self = op.tensor("self"), weight = op.tensor("weight");
  Shape sizes(self.rank(), 1);
  if (weight.getNumElements() != 1) {
    if (self.rank() < 2 || weight.rank() != 1 || weight.sizes[0] != self.sizes[1])
      return op.error("expected one slope or one for each channel of " + toString(self.sizes) +
                      ", found " + toString(weight.sizes));
    sizes[1] = weight.sizes[0];
  }
  ASSIGN_OR_RETURN(weight, reshape(op, weight, sizes));
  return setResult(
      op, elementwise(op, {self, weight}, self.dtype, self.dtype, [](Builder &b, ValueRange v) {
        return select(b, greater(b, v[0], 0), v[0], multiply(b, v[0], v[1]));
      }));
}

/// PyTorch switches to the identity above `threshold`, where the two differ by less than rounding.
static Error lowerSoftplus(OpContext &op) {
  double beta = op.number("beta");
  if (!(beta > 0))
    return op.error("argument 'beta': expected a positive number, found " + toString(beta));
  return mapFloat(op, [&](Builder &b, ValueRange v) -> Value {
    if (beta == 1)
      return mlir::memopt::SoftplusOp::create(b, v[0]);
    return multiply(b, mlir::memopt::SoftplusOp::create(b, multiply(b, v[0], beta)), 1 / beta);
  });
}

static Error lowerLogSigmoid(OpContext &op) {
  return mapFloat(op, [](Builder &b, ValueRange v) -> Value {
    Value negated = arith::NegFOp::create(b, v[0]);
    return arith::NegFOp::create(b, mlir::memopt::SoftplusOp::create(b, negated));
  });
}

static Error lowerGlu(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.rank() == 0 || self.sizes[dim] % 2)
    return op.error("expected an even size in dimension " + Twine(dim) + " of " +
                    toString(self.sizes));
  int64_t half = self.sizes[dim] / 2;
  ASSIGN_OR_RETURN(Tensor first, slice(op, self, dim, 0, 1, half));
  ASSIGN_OR_RETURN(Tensor second, slice(op, self, dim, half, 1, half));
  return setResult(
      op, elementwise(op, {first, second}, self.dtype, self.dtype, [](Builder &b, ValueRange v) {
        return multiply(b, v[0], mlir::memopt::SigmoidOp::create(b, v[1]));
      }));
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

template <typename OpTy> static Error lowerSoftmax(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  Tensor self = castTo(op, op.tensor("self"), type);
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (!isFloat(type) || self.rank() == 0)
    return op.error("expected a floating-point tensor with dimensions");
  op.setResult(0, OpTy::create(op.b, op.get(self), dim).getResult());
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerActivations(OpTable &table) {
  table.add("aten.relu.default", "Tensor self", lowerFloat<mlir::memopt::ReluOp>);
  table.add("aten.relu6.default", "Tensor self", lowerRelu6);
  table.add("aten.sigmoid.default", "Tensor self", lowerFloat<mlir::memopt::SigmoidOp>);
  table.add("aten.tanh.default", "Tensor self", lowerFloat<math::TanhOp>);
  table.add("aten.gelu.default", "Tensor self, str approximate='none'", lowerGelu);
  table.add("aten.silu.default", "Tensor self", lowerSilu);
  table.add("aten.mish.default", "Tensor self", lowerMish);
  table.add("aten.hardtanh.default", "Tensor self, Scalar min_val=-1, Scalar max_val=1",
            lowerHardtanh);
  table.add("aten.hardsigmoid.default", "Tensor self", lowerHardsigmoid);
  table.add("aten.hardswish.default", "Tensor self", lowerHardswish);
  table.add("aten.leaky_relu.default", "Tensor self, Scalar negative_slope=0.01", lowerLeakyRelu);
  table.add("aten.elu.default", "Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1",
            lowerElu);
  table.add("aten.selu.default", "Tensor self", lowerSelu);
  table.add("aten.celu.default", "Tensor self, Scalar alpha=1", lowerCelu);
  table.add("aten.prelu.default", "Tensor self, Tensor weight", lowerPrelu);
  table.add("aten._prelu_kernel.default", "Tensor self, Tensor weight", lowerPrelu);
  table.add("aten.softplus.default", "Tensor self, Scalar beta=1, Scalar threshold=20",
            lowerSoftplus);
  table.add("aten.log_sigmoid.default", "Tensor self", lowerLogSigmoid);
  table.add("aten.glu.default", "Tensor self, int dim=-1", lowerGlu);
  table.add("aten.softmax.int", "Tensor self, int dim, dtype? dtype=None",
            lowerSoftmax<mlir::memopt::SoftmaxOp>);
  table.add("aten._softmax.default", "Tensor self, int dim, bool half_to_float",
            lowerSoftmax<mlir::memopt::SoftmaxOp>);
  table.add("aten.log_softmax.int", "Tensor self, int dim, dtype? dtype=None",
            lowerSoftmax<mlir::memopt::LogSoftmaxOp>);
  table.add("aten._log_softmax.default", "Tensor self, int dim, bool half_to_float",
            lowerSoftmax<mlir::memopt::LogSoftmaxOp>);
}
