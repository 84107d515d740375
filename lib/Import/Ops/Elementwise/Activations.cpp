//===- Activations.cpp - activations, softmax -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
using Elements = ArrayRef<Element>;
namespace arith = mlir::arith;
namespace math = mlir::math;

/// An activation of `self`.
static Error activate(OpContext &op, llvm::function_ref<Element(Element)> formula) {
  return mapReals(op, {op.tensor("self")}, [&](Elements v) { return formula(v[0]); });
}

/// 1 where the condition holds, else 0.
static Element indicator(Element condition, Element x) {
  return select(condition, x.like(1), x.like(0));
}

//===----------------------------------------------------------------------===//
// Smooth activations
//===----------------------------------------------------------------------===//

static Element tanhGelu(Element x) {
  constexpr double scale = 0.7978845608028654,
                   cubic = 0.044715; // sqrt(2 / pi); Hendrycks and Gimpel
  Element inner = x + x * x * x * cubic;
  return x * 0.5 * (tanh(inner * scale) + 1);
}

static Element gelu(Element x) {
  constexpr double inverseRootOfTwo = 0.7071067811865476;
  return x * 0.5 * (erf(x * inverseRootOfTwo) + 1);
}

static Error lowerGelu(OpContext &op) {
  StringRef approximate = op.text("approximate");
  if (approximate == "tanh")
    return activate(op, tanhGelu);
  if (approximate != "none")
    return op.error("argument 'approximate': expected none or tanh, found " + approximate);
  return activate(op, gelu);
}

static Error lowerSilu(OpContext &op) {
  return activate(op, [](Element x) { return x * sigmoid(x); });
}

static Error lowerMish(OpContext &op) {
  return activate(op, [](Element x) { return x * tanh(softplus(x)); });
}

/// log(1 + exp(beta x)) / beta; the identity from `threshold` on, where the exponential would
/// overflow.
static Error lowerSoftplus(OpContext &op) {
  double beta = op.number("beta"), threshold = op.number("threshold");
  if (!(beta > 0))
    return op.error("argument 'beta': expected a positive number, found " + toString(beta));
  return activate(op, [&](Element x) {
    Element scaled = beta == 1 ? x : x * beta;
    Element bend = beta == 1 ? softplus(x) : softplus(scaled) / beta;
    return select(greater(scaled, threshold), x, bend);
  });
}

static Error lowerLogSigmoid(OpContext &op) {
  return activate(op, [](Element x) { return -softplus(-x); });
}

/// The negative branch of ELU and its relatives: the slope is taken from the exponential, for that
/// of exp(x) - 1 loses all digits where it is near -1, and only where it counts, for it overflows
/// elsewhere.
static Error exponentialUnit(OpContext &op, double alpha, double scale, double inputScale) {
  return activate(op, [&](Element x) {
    Element negative = expm1(x * inputScale) * (alpha * scale);
    Element value = select(less(x, 0), negative, x * scale);
    Element slope = exp(x * inputScale) * (alpha * scale * inputScale);
    return withSlopes(value, {{x, select(lessOrEqual(x, 0), slope, scale)}});
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

//===----------------------------------------------------------------------===//
// Piecewise linear activations
//===----------------------------------------------------------------------===//

/// Integers, too.
static Error lowerRelu(OpContext &op) {
  if (isFloat(op.resultMeta(0).dtype))
    return lowerFloat<mlir::memopt::ReluOp>(op);
  return mapElements(
      op, {op.tensor("self")}, [](Elements v) { return largerOf(v[0], v[0].like(0)); },
      [](ArrayRef<int64_t> v) { return std::max<int64_t>(v[0], 0); });
}

static Element within(Element x, double low, double high) {
  return smallerOf(largerOf(x, x.like(low)), x.like(high));
}

/// Held between two bounds; no gradient passes on them, at NaN, or outside.
static Element hold(Element x, double low, double high) {
  Element value = within(x, low, high);
  if (!x.isReal())
    return value;
  return withSlopes(value, {{x, indicator(greater(x, low) & less(x, high), x)}});
}

/// The same, but at NaN the gradient passes.
static Error lowerHeld(OpContext &op, double low, double high) {
  return mapElements(op, {op.tensor("self")}, [&](Elements v) {
    Element x = v[0], value = within(x, low, high);
    if (!x.isReal())
      return value;
    return withSlopes(value, {{x, indicator(!(lessOrEqual(x, low) | greaterOrEqual(x, high)), x)}});
  });
}

static Error lowerRelu6(OpContext &op) { return lowerHeld(op, 0, 6); }
static Error lowerHardtanh(OpContext &op) {
  return lowerHeld(op, op.number("min_val"), op.number("max_val"));
}

static Error lowerHardsigmoid(OpContext &op) {
  return activate(op, [](Element x) { return hold(x + 3, 0, 6) / 6; });
}

static Error lowerHardswish(OpContext &op) {
  return activate(op, [](Element x) {
    Element value = x * within(x + 3, 0, 6) / 6;
    Element slope = select(greaterOrEqual(x, 3), 1.0, x / 3 + 0.5);
    slope = select(lessOrEqual(x, -3), 0.0, slope);
    return withSlopes(value, {{x, slope}});
  });
}

/// Zero within a distance of zero.
static Error lowerHardshrink(OpContext &op) {
  double lambda = op.number("lambd");
  return activate(op, [&](Element x) {
    return select(greaterOrEqual(x, -lambda) & lessOrEqual(x, lambda), 0.0, x);
  });
}

/// Closer to zero by a distance, at most to zero.
static Error lowerSoftshrink(OpContext &op) {
  double lambda = op.number("lambd");
  return activate(op, [&](Element x) {
    Element isNear = greaterOrEqual(x, -lambda) & lessOrEqual(x, lambda);
    Element shrunk = select(greater(x, 0), x - lambda, x + lambda);
    return withSlopes(select(isNear, x * 0, shrunk), {{x, indicator(!isNear, x)}});
  });
}

static Error lowerLeakyRelu(OpContext &op) {
  double slope = op.number("negative_slope");
  return activate(op, [&](Element x) { return select(greater(x, 0), x, x * slope); });
}

/// One slope, or one for each channel (dimension 1).
static Error setPrelu(OpContext &op, const Tensor &self, const Tensor &weight) {
  return mapReals(op, {self, weight},
                  [](Elements v) { return select(greater(v[0], 0), v[0], v[0] * v[1]); });
}

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
  return setPrelu(op, self, weight);
}

/// The slopes have been given dimensions that match.
static Error lowerPreluKernel(OpContext &op) {
  return setPrelu(op, op.tensor("self"), op.tensor("weight"));
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
  return mapReals(op, {first, second}, [](Elements v) { return v[0] * sigmoid(v[1]); });
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

template <typename OpTy> static Expected<Value> softmaxOf(OpContext &op, Tensor self) {
  DType type = op.resultMeta(0).dtype;
  self = castTo(op, self, type);
  if (!isFloat(type) || self.getNumElements() == 0)
    return op.error("expected a floating-point result with elements");
  if (self.rank() == 0) { // pretends one dimension
    ASSIGN_OR_RETURN(self, reshape(op, self, {1}));
    Value row = OpTy::create(op.b, op.get(self), 0);
    return reshapeValue(op.b, row, {});
  }
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  return OpTy::create(op.b, op.get(self), dim).getResult();
}

template <typename OpTy> static Error lowerSoftmax(OpContext &op) {
  ASSIGN_OR_RETURN(Value result, softmaxOf<OpTy>(op, op.tensor("self")));
  op.setResult(0, result);
  return Error::success();
}

/// Zeros for rows of -inf alone, which attention has when everything is masked.
static Error lowerSafeSoftmax(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  Tensor self = castTo(op, op.tensor("self"), type);
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  Element x(op.b, op.get(self));
  Element hasNumber(op.b, anyOf(op.b, differs(x, -std::numeric_limits<double>::infinity()),
                                self.rank() ? ArrayRef(dim) : ArrayRef<int64_t>(), /*keep=*/true));
  Element keeps(op.b, broadcastValue(op.b, hasNumber, self.sizes));
  // Rows of zeros in their place keep NaNs out of the gradient, too.
  Tensor shown = op.wrap(type, select(keeps, x, 0.0));
  ASSIGN_OR_RETURN(Value softmax, softmaxOf<mlir::memopt::SoftmaxOp>(op, shown));
  op.setResult(0, select(keeps, Element(op.b, softmax), 0.0));
  return Error::success();
}

/// What gradients of a softmax's results say of its operand, by the results y: (g - sum(g y)) y; of
/// a log-softmax's, g - exp(y) sum(g).
template <bool isLog> static Error lowerSoftmaxBackward(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  Tensor gradient = castTo(op, op.tensor("grad_output"), type);
  Tensor output = castTo(op, op.tensor("output"), type);
  if (gradient.sizes != output.sizes || output.getNumElements() == 0 || !isFloat(type))
    return op.error("expected a gradient of the output's shape, found " + toString(gradient.sizes) +
                    " and " + toString(output.sizes));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", output.rank()));
  auto combine = [&](ArrayRef<Operand> operands, FormulaFn formula) {
    return elementwise(op, operands, type, type, inBuild(formula));
  };
  Tensor weighted = gradient;
  if (!isLog) {
    ASSIGN_OR_RETURN(weighted,
                     combine({gradient, output}, [](ArrayRef<Element> v) { return v[0] * v[1]; }));
  }
  Tensor sum = weighted;
  if (output.rank() > 0)
    sum = op.wrap(type, reduceValue(op.b, op.get(weighted), mlir::memopt::ReduceKind::Add, dim,
                                    /*keep=*/true));
  return setResult(op, combine({gradient, output, sum}, [](ArrayRef<Element> v) {
                     return isLog ? v[0] - exp(v[1]) * v[2] : (v[0] - v[2]) * v[1];
                   }));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerActivations(OpTable &table) {
  table.add("aten.relu.default", "Tensor self", lowerRelu);
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
  table.add("aten.hardshrink.default", "Tensor self, Scalar lambd=0.5", lowerHardshrink);
  table.add("aten.softshrink.default", "Tensor self, Scalar lambd=0.5", lowerSoftshrink);
  table.add("aten.leaky_relu.default", "Tensor self, Scalar negative_slope=0.01", lowerLeakyRelu);
  table.add("aten.elu.default", "Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1",
            lowerElu);
  table.add("aten.selu.default", "Tensor self", lowerSelu);
  table.add("aten.celu.default", "Tensor self, Scalar alpha=1", lowerCelu);
  table.add("aten.prelu.default", "Tensor self, Tensor weight", lowerPrelu);
  table.add("aten._prelu_kernel.default", "Tensor self, Tensor weight", lowerPreluKernel);
  table.add("aten.softplus.default", "Tensor self, Scalar beta=1, Scalar threshold=20",
            lowerSoftplus);
  table.add("aten.log_sigmoid.default", "Tensor self", lowerLogSigmoid);
  table.add("aten.glu.default", "Tensor self, int dim=-1", lowerGlu);
  table.add("aten.softmax.int", "Tensor self, int dim, dtype? dtype=None",
            lowerSoftmax<mlir::memopt::SoftmaxOp>);
  table.add("aten._softmax.default", "Tensor self, int dim, bool half_to_float",
            lowerSoftmax<mlir::memopt::SoftmaxOp>);
  table.add("aten._safe_softmax.default", "Tensor self, int dim, dtype? dtype=None",
            lowerSafeSoftmax);
  table.add("aten.log_softmax.int", "Tensor self, int dim, dtype? dtype=None",
            lowerSoftmax<mlir::memopt::LogSoftmaxOp>);
  table.add("aten._log_softmax.default", "Tensor self, int dim, bool half_to_float",
            lowerSoftmax<mlir::memopt::LogSoftmaxOp>);
  constexpr StringLiteral backward =
      "Tensor grad_output, Tensor output, int dim, ignored input_dtype";
  table.add("aten._softmax_backward_data.default", backward, lowerSoftmaxBackward<false>);
  table.add("aten._log_softmax_backward_data.default", backward, lowerSoftmaxBackward<true>);
}
