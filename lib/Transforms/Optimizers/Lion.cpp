//===- Lion.cpp - Lion ------------------------------------------*- C++ -*-===//
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
class Lion : public Optimizer {
public:
  StringRef getName() const override { return "lion"; }
  StringRef getSource() const override {
    return "Chen et al., Symbolic Discovery of Optimization Algorithms, algorithm 2, 2023";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-4), options::betas(0.9, 0.99), options::weightDecay(0.0)};
  }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot("exp_avg", parameter)};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient(), average = u.state("exp_avg");
    Quantity beta1 = u.hyperparameter("betas", 0), beta2 = u.hyperparameter("betas", 1);
    if (u.uses("weight-decay"))
      parameter = parameter - u.rate() * u.hyperparameter("weight-decay") * parameter;
    Quantity direction = sign(beta1 * average + (1.0 - beta1) * gradient);
    u.setParameter(parameter - u.rate() * direction);
    u.setState("exp_avg", beta2 * average + (1.0 - beta2) * gradient);
  }
};
} // namespace

const Optimizer &mlir::memopt::getLion() {
  static const Lion optimizer;
  return optimizer;
}
