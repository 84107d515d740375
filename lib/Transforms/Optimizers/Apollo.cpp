//===- Apollo.cpp - APOLLO and APOLLO-Mini ----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Adam's moments are kept of a gradient that is projected to few dimensions at random, and only say
// how long the update of each row or column is: the update itself is the gradient, scaled. APOLLO
// has a factor for each index of the longer side, APOLLO-Mini one for the matrix. Growth of the
// update's norm is limited to 1 percent a step.
//
// The projection is drawn by counter, anew after so many steps, and follows from the matrix'
// shorter side alone, so nothing of it is state. Matrices whose shorter side is no longer than the
// rank, and what is no matrix, are updated as by AdamW, with the same settings.
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Formula.h"
#include "memopt/Transforms/Optimizers/Update.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::memopt;

/// Apart from those of a model's draws, and of roundings.
static constexpr int64_t kProjectionId = int64_t(1) << 29;
static constexpr double kLargestGrowth = 1.01;

static Read readAt(ImplicitLocOpBuilder &b, Value value, unsigned rank, ArrayRef<int64_t> dims) {
  return {value, selectDims(b.getContext(), rank, dims)};
}

/// Normal numbers of the shape, the same for so many steps.
static Value drawProjection(Update &u, int64_t rows, int64_t columns) {
  ImplicitLocOpBuilder &b = u.getBuilder();
  auto gap = static_cast<int64_t>(u.settings.getNumber("update-proj-gap"));
  auto scalar = RankedTensorType::get({}, b.getI64Type());
  Value round = createPointwise(
      b, {}, {readAt(b, u.getStepNumber(), 0, {})}, ArrayRef<Type>{b.getI64Type()},
      [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        auto constant = [&](int64_t value) {
          return createIntConstant(inner, inner.getI64Type(), value);
        };
        Value before =
            arith::SubIOp::create(inner, convertTo(inner, x[0], inner.getI64Type()), constant(1));
        return SmallVector<Value>{arith::DivSIOp::create(inner, before, constant(gap))};
      })[0];
  Value seed = arith::ConstantOp::create(b, DenseElementsAttr::get(scalar, int64_t(0)));
  Type single = b.getF32Type(), type = u.getNumberType();
  Value drawn = RandomOp::create(b, RankedTensorType::get({rows, columns}, single), seed, round,
                                 Distribution::Normal, kProjectionId);
  if (type == single)
    return drawn;
  return createPointwise(b, {rows, columns}, {readAt(b, drawn, 2, {0, 1})}, ArrayRef<Type>{type},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           return SmallVector<Value>{convertTo(inner, x[0], type)};
                         })[0];
}

namespace {
/// The gradient in few dimensions, one row for each index of the longer side, and its moments.
struct Projected {
  Value gradient, first, second;
  int64_t rows, columns;
};
} // namespace

static Projected project(Update &u, int64_t longer) {
  ImplicitLocOpBuilder &b = u.getBuilder();
  Type type = u.getNumberType();
  int64_t rows = u.getShape()[longer], shorter = u.getShape()[1 - longer],
          columns = static_cast<int64_t>(u.settings.getNumber("rank"));
  auto shape = RankedTensorType::get({rows, columns}, type);
  Value product =
      MatmulOp::create(b, shape, u.toTensor(u.gradient()), drawProjection(u, shorter, columns),
                       longer == 1 ? b.getUnitAttr() : UnitAttr(), UnitAttr());
  SmallVector<Read> reads{readAt(b, product, 2, {0, 1}),
                          readAt(b, u.getStateTensor("exp_avg"), 2, {0, 1}),
                          readAt(b, u.getStateTensor("exp_avg_sq"), 2, {0, 1})};
  for (unsigned place : {0, 1})
    reads.push_back(readAt(b, u.toScalar(u.hyperparameter("betas", place)), 2, {}));
  SmallVector<Value> made = createPointwise(
      b, {rows, columns}, reads, ArrayRef<Type>{type, type, type},
      [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Formula f{inner, type};
        Value g = f.scale(1 / std::sqrt(static_cast<double>(columns)), x[0]);
        auto average = [&](Value old, Value now, Value beta) {
          return f.add(f.mul(beta, f.wide(old)), f.mul(f.sub(f.number(1), beta), now));
        };
        return SmallVector<Value>{g, average(x[1], g, x[3]), average(x[2], f.square(g), x[4])};
      });
  return {made[0], made[1], made[2], rows, columns};
}

/// How long the update is beside the gradient: for each row, or for all.
static Quantity getFactor(Update &u, const Projected &low, int64_t longer, bool isOfAll) {
  ImplicitLocOpBuilder &b = u.getBuilder();
  Type type = u.getNumberType();
  SmallVector<Read> reads;
  for (Value value : {low.gradient, low.first, low.second})
    reads.push_back(readAt(b, value, 2, {0, 1}));
  SmallVector<int64_t> reduced{1};
  if (isOfAll)
    reduced = {0, 1};
  SmallVector<Value> squares = createReduction(
      b, {low.rows, low.columns}, reduced, reads,
      {{ReduceKind::Add, type}, {ReduceKind::Add, type}},
      [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Formula f{inner, type};
        Value denominator =
            f.add(math::SqrtOp::create(inner, x[2]), f.number(u.settings.getNumber("eps")));
        return SmallVector<Value>{f.square(f.div(x[1], denominator)), f.square(x[0])};
      });
  SmallVector<int64_t> dims;
  if (!isOfAll)
    dims.push_back(longer);
  return sqrt(u.fromTensor(squares[0], dims)) / (sqrt(u.fromTensor(squares[1], dims)) + 1e-8);
}

namespace {
class Apollo : public Optimizer {
public:
  StringRef getName() const override { return isMini() ? "apollo-mini" : "apollo"; }
  StringRef getSource() const override {
    return "Zhu et al., APOLLO: SGD-like Memory, AdamW-level Performance, 2025";
  }
  virtual bool isMini() const { return false; }

  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-3),
            options::betas(0.9, 0.999),
            options::eps(1e-6),
            options::weightDecay(0.0),
            {"rank",
             "N",
             "dimensions that gradients of matrices are projected to",
             OptimizerOption::Count,
             {isMini() ? 1.0 : 256.0},
             1,
             1 << 20},
            {"update-proj-gap",
             "N",
             "steps after which the projection is drawn anew",
             OptimizerOption::Count,
             {200},
             1,
             1 << 30},
            {"apollo-scale",
             "X",
             "updates of matrices are multiplied by its square root",
             OptimizerOption::Number,
             {isMini() ? 128.0 : 1.0}}};
  }
  SmallVector<unsigned> getStateBits() const override { return {32}; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    ArrayRef<int64_t> shape = parameter.type.getShape();
    if (!isProjected(shape, settings))
      return {fullSlot("exp_avg", parameter), fullSlot("exp_avg_sq", parameter)};
    SmallVector<int64_t> low{std::max(shape[0], shape[1]),
                             static_cast<int64_t>(settings.getNumber("rank"))};
    return {{"exp_avg", {}, 0, false, low},
            {"exp_avg_sq", {}, 0, false, low},
            scalarSlot("scaled_norm", 0)};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient(), rate = u.rate(), step = u.step();
    Quantity beta1 = u.hyperparameter("betas", 0), beta2 = u.hyperparameter("betas", 1);
    Quantity update =
        isProjected(u.getShape(), u.settings) ? scale(u, gradient) : followAdam(u, gradient);
    Quantity length = rate * sqrt(1.0 - pow(beta2, step)) / (1.0 - pow(beta1, step));
    parameter = parameter - length * update;
    if (u.uses("weight-decay"))
      parameter = parameter - rate * u.hyperparameter("weight-decay") * parameter;
    u.setParameter(parameter);
  }

private:
  static bool isProjected(ArrayRef<int64_t> shape, const OptimizerSettings &settings) {
    return shape.size() == 2 &&
           static_cast<double>(std::min(shape[0], shape[1])) > settings.getNumber("rank");
  }

  /// Adam's direction.
  static Quantity followAdam(Update &u, Quantity gradient) {
    Quantity beta1 = u.hyperparameter("betas", 0), beta2 = u.hyperparameter("betas", 1);
    Quantity first = beta1 * u.state("exp_avg") + (1.0 - beta1) * gradient;
    Quantity second = beta2 * u.state("exp_avg_sq") + (1.0 - beta2) * gradient * gradient;
    u.setState("exp_avg", first);
    u.setState("exp_avg_sq", second);
    return first / (sqrt(second) + u.settings.getNumber("eps"));
  }

  Quantity scale(Update &u, Quantity gradient) const {
    int64_t longer = u.getShape()[0] >= u.getShape()[1] ? 0 : 1;
    Projected low = project(u, longer);
    u.setStateTensor("exp_avg", low.first);
    u.setStateTensor("exp_avg_sq", low.second);
    Quantity scaled = gradient * getFactor(u, low, longer, isMini());
    Quantity norm = sqrt(u.sum(scaled * scaled)), before = u.state("scaled_norm", {});
    Quantity growth = max(norm / (before + 1e-8), kLargestGrowth) / kLargestGrowth;
    growth = selectLess(u.step(), 1.5, 1.0, growth);
    u.setState("scaled_norm", norm / growth);
    return std::sqrt(u.settings.getNumber("apollo-scale")) / growth * scaled;
  }
};

class ApolloMini final : public Apollo {
public:
  bool isMini() const override { return true; }
};
} // namespace

const Optimizer &mlir::memopt::getApollo() {
  static const Apollo optimizer;
  return optimizer;
}

const Optimizer &mlir::memopt::getApolloMini() {
  static const ApolloMini optimizer;
  return optimizer;
}
