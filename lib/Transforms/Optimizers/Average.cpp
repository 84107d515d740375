//===- Average.cpp - an average of the weights ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Beside the optimizer of a parameter stands a second update, which leaves the parameter as it is
// and moves an average of it. So the average is state like other state: sharded, offloaded, saved
// and skipped with it. How many values it holds is counted apart from the steps, for an average may
// begin in the middle of a training.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
class Average : public Optimizer {
public:
  StringRef getName() const override { return kAverageName; }
  StringRef getSource() const override {
    return "torch.optim.swa_utils.AveragedModel; Polyak and Juditsky, Acceleration of Stochastic "
           "Approximation by Averaging, 1992";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {{"ema-decay", "X", "", OptimizerOption::Number, {0}},
            {"ema-warmup", "[on|off]", "", OptimizerOption::Flag, {0}}};
  }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot(kAverageSlot, parameter), scalarSlot("average_updates", 0)};
  }
  /// The first value is copied. A decay that warms up is timm's: 1 - n^(-2/3) at the n-th value.
  void build(Update &u) const override {
    Quantity updates = u.state("average_updates", {}), decay = u.settings.getNumber("ema-decay");
    if (u.settings.isOn("ema-warmup"))
      decay = min(decay, 1.0 - pow(updates + 1.0, -2.0 / 3.0));
    decay = selectLess(updates, 0.5, 0.0, decay);
    Quantity parameter = u.parameter();
    u.setParameter(parameter);
    u.setState(kAverageSlot, decay * u.state(kAverageSlot) + (1.0 - decay) * parameter);
    u.setState("average_updates", updates + 1.0);
  }
};
} // namespace

const Optimizer &mlir::memopt::getAverage() {
  static const Average optimizer;
  return optimizer;
}
