//===- Adagrad.cpp - Adagrad ------------------------------------*- C++ -*-===//
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
class Adagrad : public Optimizer {
public:
  StringRef getName() const override { return "adagrad"; }
  StringRef getSource() const override {
    return "torch.optim.Adagrad; Duchi et al., Adaptive Subgradient Methods for Online Learning "
           "and "
           "Stochastic Optimization, 2011";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-2),
            {"lr-decay",
             "X",
             "the rate of step t is divided by 1 + (t - 1) X",
             OptimizerOption::Number,
             {0.0}},
            options::weightDecay(0.0),
            {"initial-accumulator-value",
             "X",
             "where the sum of squares starts",
             OptimizerOption::Number,
             {0.0}},
            options::eps(1e-10)};
  }
  bool isNonNegative(StringRef slot) const override { return slot == "sum"; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot("sum", parameter, settings.getNumber("initial-accumulator-value"))};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient();
    if (u.uses("weight-decay"))
      gradient = gradient + u.hyperparameter("weight-decay") * parameter;
    Quantity sum = u.state("sum") + gradient * gradient;
    Quantity rate = u.rate() / (1.0 + (u.step() - 1.0) * u.settings.getNumber("lr-decay"));
    u.setParameter(parameter - rate * (gradient / (sqrt(sum) + u.settings.getNumber("eps"))));
    u.setState("sum", sum);
  }
};
} // namespace

const Optimizer &mlir::memopt::getAdagrad() {
  static const Adagrad optimizer;
  return optimizer;
}
