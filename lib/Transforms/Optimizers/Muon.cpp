//===- Muon.cpp - Muon ------------------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The momentum of a matrix is made nearly orthogonal by Newton-Schulz iterations of degree five,
// here in the type of the gradient (torch.optim.Muon rounds it to bf16). Matrices that are no
// embeddings only; AdamW updates the rest.
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Formula.h"
#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

/// a x + c y, elementwise.
static Value addScaled(ImplicitLocOpBuilder &b, double a, Value x, double c, Value y) {
  auto type = cast<RankedTensorType>(x.getType());
  AffineMap identity = b.getMultiDimIdentityMap(2);
  return createPointwise(b, type.getShape(), {{x, identity}, {y, identity}},
                         ArrayRef<Type>{type.getElementType()},
                         [&](ImplicitLocOpBuilder &inner, ValueRange s) {
                           Formula f{inner, type.getElementType()};
                           return SmallVector<Value>{f.add(f.scale(a, s[0]), f.scale(c, s[1]))};
                         })
      .front();
}

static Value multiply(ImplicitLocOpBuilder &b, Value x, Value y, bool transposeX = false,
                      bool transposeY = false) {
  auto left = cast<RankedTensorType>(x.getType()), right = cast<RankedTensorType>(y.getType());
  auto type = RankedTensorType::get(
      {left.getDimSize(transposeX ? 1 : 0), right.getDimSize(transposeY ? 0 : 1)},
      left.getElementType());
  auto flag = [&](bool isSet) { return isSet ? b.getUnitAttr() : UnitAttr(); };
  return MatmulOp::create(b, type, x, y, flag(transposeX), flag(transposeY));
}

/// x <- a x + (b g + c g g) x with the smaller Gram matrix g, from x over its norm.
static Quantity orthogonalize(Update &u, Quantity direction) {
  constexpr double kA = 3.4445, kB = -4.775, kC = 2.0315;
  Quantity norm = max(sqrt(u.sum(direction * direction)), u.settings.getNumber("eps"));
  Value x = u.toTensor(direction / norm);
  ImplicitLocOpBuilder &b = u.getBuilder();
  bool isTall = u.getShape()[0] > u.getShape()[1];
  for (int step = 0, steps = u.settings.getNumber("ns-steps"); step < steps; ++step) {
    Value gram = multiply(b, x, x, /*transposeX=*/isTall, /*transposeY=*/!isTall);
    Value factor = addScaled(b, kB, gram, kC, multiply(b, gram, gram));
    Value product = isTall ? multiply(b, x, factor) : multiply(b, factor, x);
    x = addScaled(b, kA, x, 1.0, product);
  }
  return u.fromTensor(x);
}

static double getRateFactor(StringRef word, ArrayRef<int64_t> shape) {
  auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  if (word == "match-rms-adamw")
    return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(word == "original" ? std::max(1.0, rows / columns) : rows / columns);
}

namespace {
class Muon : public Optimizer {
public:
  StringRef getName() const override { return "muon"; }
  StringRef getSource() const override {
    return "torch.optim.Muon; Jordan et al., Muon: An optimizer for hidden layers in neural "
           "networks, 2024; "
           "match-rms-adamw: Liu et al., Muon is Scalable for LLM Training, 2025";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-3),
            options::weightDecay(0.1),
            options::momentum(0.95),
            {"nesterov", "[on|off]", "Nesterov momentum", OptimizerOption::Flag, {1.0}},
            {"ns-steps",
             "N",
             "iterations that make the update orthogonal",
             OptimizerOption::Count,
             {5},
             0,
             99},
            options::eps(1e-7),
            {"adjust-lr-fn",
             "original|match-rms-adamw|spectral-unclamped",
             "how a matrix' shape changes its rate",
             OptimizerOption::Choice,
             {},
             0,
             0,
             false,
             {"original", "match-rms-adamw", "spectral-unclamped"}}};
  }
  SmallVector<unsigned> getStateBits() const override { return {32, 16}; }
  const Optimizer *getSubstitute(const ParameterInfo &parameter) const override {
    bool isOurs = parameter.type.getRank() == 2 && parameter.kind != ParameterKind::Embedding;
    return isOurs ? nullptr : &getAdamW();
  }
  SmallVector<const Optimizer *> getSubstitutes() const override { return {&getAdamW()}; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot("momentum_buffer", parameter)};
  }
  void build(Update &u) const override {
    Quantity momentum = u.hyperparameter("momentum");
    Quantity parameter = u.parameter(), gradient = u.gradient(), rate = u.rate();
    Quantity buffer = lerp(u.state("momentum_buffer"), gradient, 1.0 - momentum);
    Quantity direction = u.settings.isOn("nesterov") ? lerp(gradient, buffer, momentum) : buffer;
    Quantity orthogonal = orthogonalize(u, direction);
    if (u.uses("weight-decay"))
      parameter = parameter - rate * u.hyperparameter("weight-decay") * parameter;
    double factor = getRateFactor(u.settings.getWord("adjust-lr-fn"), u.getShape());
    u.setParameter(parameter - rate * factor * orthogonal);
    u.setState("momentum_buffer", buffer);
  }
};
} // namespace

const Optimizer &mlir::memopt::getMuon() {
  static const Muon optimizer;
  return optimizer;
}
