//===- Asgd.cpp - averaged stochastic gradient descent ----------*- C++ -*-===//
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
class Asgd : public Optimizer {
public:
  StringRef getName() const override { return "asgd"; }
  StringRef getSource() const override {
    return "torch.optim.ASGD; Polyak and Juditsky, Acceleration of Stochastic Approximation by "
           "Averaging, "
           "1992; rates: Bottou, Large-Scale Machine Learning with Stochastic Gradient Descent, "
           "2010";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {
        options::learningRate(1e-2),
        {"lambd", "X", "decay of the parameters and of the rate", OptimizerOption::Number, {1e-4}},
        {"alpha",
         "X",
         "decay of the squares; power of the rate's decay",
         OptimizerOption::Number,
         {0.75}},
        {"t0", "N", "step at which averaging starts", OptimizerOption::Number, {1e6}, -INFINITY},
        options::weightDecay(0.0)};
  }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {scalarSlot("eta", 0.0), fullSlot("ax", parameter)};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient(), rate = u.rate(), step = u.step();
    double lambda = u.settings.getNumber("lambd");
    if (u.uses("weight-decay"))
      gradient = gradient + u.hyperparameter("weight-decay") * parameter;
    // A step uses the rate and the weight that the step before chose.
    Quantity eta = selectLess(step, 2.0, rate, u.state("eta", {}));
    Quantity weight = 1.0 / max(1.0, step - 1.0 - u.settings.getNumber("t0"));
    Quantity moved = parameter - lambda * eta * parameter - eta * gradient;
    Quantity average = u.state("ax");
    u.setParameter(moved);
    u.setState("ax", selectLess(weight, 1.0, average + (moved - average) * weight, moved));
    u.setState("eta", rate / pow(1.0 + lambda * rate * step, u.settings.getNumber("alpha")));
  }
};
} // namespace

const Optimizer &mlir::memopt::getAsgd() {
  static const Asgd optimizer;
  return optimizer;
}
