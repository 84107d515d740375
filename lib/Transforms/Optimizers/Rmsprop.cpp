//===- Rmsprop.cpp - RMSprop ------------------------------------*- C++ -*-===//
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
class Rmsprop : public Optimizer {
public:
  StringRef getName() const override { return "rmsprop"; }
  StringRef getSource() const override {
    return "torch.optim.RMSprop; Tieleman and Hinton, lecture 6.5 of Neural Networks for Machine "
           "Learning, "
           "2012; centered: Graves, Generating Sequences With Recurrent Neural Networks, 2013";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-2),
            {"alpha",
             "X",
             "decay of the squares; power of the rate's decay",
             OptimizerOption::Number,
             {0.99}},
            options::eps(1e-8),
            options::weightDecay(0.0),
            options::momentum(0.0),
            {"centered",
             "[on|off]",
             "divide by the deviation instead of the mean square",
             OptimizerOption::Flag,
             {0.0}}};
  }
  bool isNonNegative(StringRef slot) const override { return slot == "square_avg"; }
  /// Rounded averages leave a mean square below the squared mean, whose root is NaN.
  std::string refuseBits(const OptimizerSettings &settings, unsigned bits) const override {
    return bits != 32 && settings.isOn("centered")
               ? "the deviation that --centered divides by is lost in state of " +
                     std::to_string(bits) + " bits"
               : Optimizer::refuseBits(settings, bits);
  }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    SmallVector<StateSlot> slots{fullSlot("square_avg", parameter)};
    if (settings.getNumber("momentum") != 0)
      slots.push_back(fullSlot("momentum_buffer", parameter));
    if (settings.isOn("centered"))
      slots.push_back(fullSlot("grad_avg", parameter));
    return slots;
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient();
    double alpha = u.settings.getNumber("alpha");
    if (u.uses("weight-decay"))
      gradient = gradient + u.hyperparameter("weight-decay") * parameter;
    Quantity squares = alpha * u.state("square_avg") + (1.0 - alpha) * gradient * gradient;
    Quantity spread = squares;
    u.setState("square_avg", squares);
    if (u.settings.isOn("centered")) {
      Quantity average = alpha * u.state("grad_avg") + (1.0 - alpha) * gradient;
      spread = squares - average * average;
      u.setState("grad_avg", average);
    }
    Quantity direction = gradient / (sqrt(spread) + u.settings.getNumber("eps"));
    if (u.uses("momentum")) {
      Quantity momentum = u.hyperparameter("momentum");
      direction = momentum * u.state("momentum_buffer") + direction;
      u.setState("momentum_buffer", direction);
    }
    u.setParameter(parameter - u.rate() * direction);
  }
};
} // namespace

const Optimizer &mlir::memopt::getRmsprop() {
  static const Rmsprop optimizer;
  return optimizer;
}
