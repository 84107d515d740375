//===- Radam.cpp - RAdam ----------------------------------------*- C++ -*-===//
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
class Radam : public Optimizer {
public:
  StringRef getName() const override { return "radam"; }
  StringRef getSource() const override {
    return "torch.optim.RAdam; Liu et al., On the Variance of the Adaptive Learning Rate and "
           "Beyond, 2020";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-3), options::betas(0.9, 0.999), options::eps(1e-8),
            options::weightDecay(0.0), options::decoupledWeightDecay()};
  }
  bool isNonNegative(StringRef slot) const override { return slot == "exp_avg_sq"; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot("exp_avg", parameter), fullSlot("exp_avg_sq", parameter)};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient(), rate = u.rate(), step = u.step();
    Quantity beta1 = u.hyperparameter("betas", 0), beta2 = u.hyperparameter("betas", 1);
    if (u.uses("weight-decay")) {
      Quantity decay = u.hyperparameter("weight-decay");
      if (u.settings.isOn("decoupled-weight-decay"))
        parameter = parameter - rate * decay * parameter;
      else
        gradient = gradient + decay * parameter;
    }
    Quantity first = beta1 * u.state("exp_avg") + (1.0 - beta1) * gradient;
    Quantity second = beta2 * u.state("exp_avg_sq") + (1.0 - beta2) * gradient * gradient;
    // The length of the approximated simple moving average decides whether its variance is known.
    Quantity longest = 2.0 / (1.0 - beta2) - 1.0;
    Quantity correction = 1.0 - pow(beta2, step);
    Quantity length = longest - 2.0 * step * pow(beta2, step) / correction;
    Quantity rectification = sqrt((length - 4.0) * (length - 2.0) * longest /
                                  ((longest - 4.0) * (longest - 2.0) * length));
    Quantity adaptive =
        rectification * sqrt(correction) / (sqrt(second) + u.settings.getNumber("eps"));
    Quantity scaled = rate / (1.0 - pow(beta1, step)) * first;
    u.setParameter(parameter - scaled * selectLess(5.0, length, adaptive, 1.0));
    u.setState("exp_avg", first);
    u.setState("exp_avg_sq", second);
  }
};
} // namespace

const Optimizer &mlir::memopt::getRadam() {
  static const Radam optimizer;
  return optimizer;
}
