//===- Nadam.cpp - NAdam ----------------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
class Nadam : public Optimizer {
public:
  StringRef getName() const override { return "nadam"; }
  StringRef getSource() const override {
    return "torch.optim.NAdam; Dozat, Incorporating Nesterov Momentum into Adam, 2016";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(2e-3),
            options::betas(0.9, 0.999),
            options::eps(1e-8),
            options::weightDecay(0.0),
            {"momentum-decay",
             "X",
             "how fast the momentum rises to its limit",
             OptimizerOption::Number,
             {4e-3}},
            options::decoupledWeightDecay()};
  }
  bool isNonNegative(StringRef slot) const override { return slot == "exp_avg_sq"; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot("exp_avg", parameter), fullSlot("exp_avg_sq", parameter),
            scalarSlot("mu_product", 1.0)};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient(), rate = u.rate(), step = u.step();
    Quantity beta1 = u.hyperparameter("betas", 0), beta2 = u.hyperparameter("betas", 1);
    double momentumDecay = u.settings.getNumber("momentum-decay");
    if (u.uses("weight-decay")) {
      Quantity decay = u.hyperparameter("weight-decay");
      if (u.settings.isOn("decoupled-weight-decay"))
        parameter = parameter - rate * decay * parameter;
      else
        gradient = gradient + decay * parameter;
    }
    auto momentumAt = [&](Quantity t) {
      return beta1 * (1.0 - 0.5 * pow(0.96, t * momentumDecay));
    };
    Quantity momentum = momentumAt(step), next = momentumAt(step + 1.0);
    Quantity product = u.state("mu_product", {}) * momentum;
    Quantity first = beta1 * u.state("exp_avg") + (1.0 - beta1) * gradient;
    Quantity second = beta2 * u.state("exp_avg_sq") + (1.0 - beta2) * gradient * gradient;
    Quantity denominator = sqrt(second / (1.0 - pow(beta2, step))) + u.settings.getNumber("eps");
    Quantity ofGradient = rate * (1.0 - momentum) / (1.0 - product);
    Quantity ofAverage = rate * next / (1.0 - product * next);
    u.setParameter(parameter - ofGradient * (gradient / denominator) -
                   ofAverage * (first / denominator));
    u.setState("exp_avg", first);
    u.setState("exp_avg_sq", second);
    u.setState("mu_product", product);
  }
};
} // namespace

const Optimizer &mlir::memopt::getNadam() {
  static const Nadam optimizer;
  return optimizer;
}
