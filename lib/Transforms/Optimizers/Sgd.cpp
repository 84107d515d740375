//===- Sgd.cpp - stochastic gradient descent --------------------*- C++ -*-===//
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
class Sgd : public Optimizer {
public:
  StringRef getName() const override { return "sgd"; }
  StringRef getSource() const override {
    return "torch.optim.SGD; Sutskever et al., On the importance of initialization and momentum in "
           "deep "
           "learning, 2013";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {
        options::learningRate(1e-3),
        options::momentum(0.0),
        {"dampening", "X", "dampening of the momentum", OptimizerOption::Number, {0.0}, -INFINITY},
        {"nesterov", "[on|off]", "Nesterov momentum", OptimizerOption::Flag, {0.0}},
        options::weightDecay(0.0)};
  }
  llvm::Error check(const OptimizerSettings &settings) const override {
    if (settings.isOn("nesterov") &&
        (settings.getNumber("momentum") == 0 || settings.getNumber("dampening") != 0))
      return llvm::createStringError("--nesterov needs a momentum and no dampening");
    return llvm::Error::success();
  }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    if (settings.getNumber("momentum") == 0)
      return {};
    return {fullSlot("momentum", parameter)};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient();
    if (u.uses("weight-decay"))
      gradient = gradient + u.hyperparameter("weight-decay") * parameter;
    if (u.uses("momentum")) {
      Quantity momentum = u.hyperparameter("momentum");
      double kept = 1.0 - u.settings.getNumber("dampening");
      Quantity added = kept == 1.0 ? gradient : kept * gradient;
      Quantity buffer = selectLess(u.step(), 2.0, gradient, momentum * u.state("momentum") + added);
      gradient = u.settings.isOn("nesterov") ? gradient + momentum * buffer : buffer;
      u.setState("momentum", buffer);
    }
    u.setParameter(parameter - u.rate() * gradient);
  }
};
} // namespace

const Optimizer &mlir::memopt::getSgd() {
  static const Sgd optimizer;
  return optimizer;
}
