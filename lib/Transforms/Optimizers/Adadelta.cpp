//===- Adadelta.cpp - Adadelta ----------------------------------*- C++ -*-===//
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
class Adadelta : public Optimizer {
public:
  StringRef getName() const override { return "adadelta"; }
  StringRef getSource() const override {
    return "torch.optim.Adadelta; Zeiler, ADADELTA: An Adaptive Learning Rate Method, 2012";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1.0),
            {"rho", "X", "decay of the averages of squares", OptimizerOption::Number, {0.9}, 0, 1},
            options::eps(1e-6),
            options::weightDecay(0.0)};
  }
  bool isNonNegative(StringRef slot) const override { return true; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot("square_avg", parameter), fullSlot("acc_delta", parameter)};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient();
    double rho = u.settings.getNumber("rho"), eps = u.settings.getNumber("eps");
    if (u.uses("weight-decay"))
      gradient = gradient + u.hyperparameter("weight-decay") * parameter;
    Quantity squares = rho * u.state("square_avg") + (1.0 - rho) * gradient * gradient;
    Quantity old = u.state("acc_delta");
    Quantity delta = sqrt(old + eps) / sqrt(squares + eps) * gradient;
    u.setParameter(parameter - u.rate() * delta);
    u.setState("square_avg", squares);
    u.setState("acc_delta", rho * old + (1.0 - rho) * delta * delta);
  }
};
} // namespace

const Optimizer &mlir::memopt::getAdadelta() {
  static const Adadelta optimizer;
  return optimizer;
}
