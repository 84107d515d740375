//===- Adamax.cpp - Adamax --------------------------------------*- C++ -*-===//
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
class Adamax : public Optimizer {
public:
  StringRef getName() const override { return "adamax"; }
  StringRef getSource() const override {
    return "torch.optim.Adamax; Kingma and Ba, Adam, algorithm 2, 2015";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(2e-3), options::betas(0.9, 0.999), options::eps(1e-8),
            options::weightDecay(0.0)};
  }
  bool isNonNegative(StringRef slot) const override { return slot == "exp_inf"; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot("exp_avg", parameter), fullSlot("exp_inf", parameter)};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient();
    Quantity beta1 = u.hyperparameter("betas", 0), beta2 = u.hyperparameter("betas", 1);
    if (u.uses("weight-decay"))
      gradient = gradient + u.hyperparameter("weight-decay") * parameter;
    Quantity average = beta1 * u.state("exp_avg") + (1.0 - beta1) * gradient;
    Quantity largest = max(beta2 * u.state("exp_inf"), abs(gradient) + u.settings.getNumber("eps"));
    Quantity rate = u.rate() / (1.0 - pow(beta1, u.step()));
    u.setParameter(parameter - rate * (average / largest));
    u.setState("exp_avg", average);
    u.setState("exp_inf", largest);
  }
};
} // namespace

const Optimizer &mlir::memopt::getAdamax() {
  static const Adamax optimizer;
  return optimizer;
}
