//===- Adam.cpp - Adam and AdamW --------------------------------*- C++ -*-===//
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
/// The two differ in where weight decay enters, and in its default.
class Adam : public Optimizer {
public:
  explicit Adam(bool isDecoupled) : isDecoupled(isDecoupled) {}

  StringRef getName() const override { return isDecoupled ? "adamw" : "adam"; }
  StringRef getSource() const override {
    return isDecoupled
               ? "torch.optim.AdamW; Loshchilov and Hutter, Decoupled Weight Decay "
                 "Regularization, algorithm 2, 2019"
               : "torch.optim.Adam; Kingma and Ba, Adam, algorithm 1, 2015; amsgrad: Reddi et "
                 "al., On the Convergence of Adam and Beyond, 2018";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-3),
            options::betas(0.9, 0.999),
            options::eps(1e-8),
            options::weightDecay(isDecoupled ? 0.01 : 0.0),
            {"amsgrad",
             "[on|off]",
             "never let the second moment's denominator shrink",
             OptimizerOption::Flag,
             {0.0}}};
  }
  bool isNonNegative(StringRef slot) const override { return slot != "exp_avg"; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    SmallVector<StateSlot> slots{fullSlot("exp_avg", parameter), fullSlot("exp_avg_sq", parameter)};
    if (settings.isOn("amsgrad"))
      slots.push_back(fullSlot("max_exp_avg_sq", parameter));
    return slots;
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient(), rate = u.rate(), step = u.step();
    Quantity beta1 = u.hyperparameter("betas", 0), beta2 = u.hyperparameter("betas", 1);
    if (u.uses("weight-decay")) {
      Quantity decay = u.hyperparameter("weight-decay");
      if (isDecoupled)
        parameter = parameter - rate * decay * parameter;
      else
        gradient = gradient + decay * parameter;
    }
    Quantity first = beta1 * u.state("exp_avg") + (1.0 - beta1) * gradient;
    Quantity second = beta2 * u.state("exp_avg_sq") + (1.0 - beta2) * gradient * gradient;
    Quantity spread = second;
    if (u.settings.isOn("amsgrad")) {
      spread = max(u.state("max_exp_avg_sq"), second);
      u.setState("max_exp_avg_sq", spread);
    }
    Quantity denominator =
        sqrt(spread) / sqrt(1.0 - pow(beta2, step)) + u.settings.getNumber("eps");
    u.setParameter(parameter - rate / (1.0 - pow(beta1, step)) * (first / denominator));
    u.setState("exp_avg", first);
    u.setState("exp_avg_sq", second);
  }

private:
  bool isDecoupled;
};
} // namespace

const Optimizer &mlir::memopt::getAdam() {
  static const Adam optimizer(/*isDecoupled=*/false);
  return optimizer;
}

const Optimizer &mlir::memopt::getAdamW() {
  static const Adam optimizer(/*isDecoupled=*/true);
  return optimizer;
}
