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
            {"ema-warmup", "[on|off]", "", OptimizerOption::Flag, {0}},
            {"ema-uniform", "[on|off]", "", OptimizerOption::Flag, {0}},
            {"ema-start", "N", "", OptimizerOption::Count, {0}},
            {"ema-every", "N", "", OptimizerOption::Count, {1}, 1}};
  }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot(kAverageSlot, parameter), scalarSlot("average_updates", 0)};
  }
  void build(Update &u) const override {
    Quantity updates = u.state("average_updates", {}), decay = getDecay(u.settings, updates);
    Quantity parameter = u.parameter(), average = u.state(kAverageSlot);
    Quantity moved = decay * average + (1.0 - decay) * parameter, isTaken = takesStep(u);
    u.setParameter(parameter);
    u.setState(kAverageSlot, selectLess(isTaken, 0.5, average, moved));
    u.setState("average_updates", updates + isTaken);
  }

private:
  /// The part that the average keeps of itself. The first value is copied. A decay that warms up is
  /// timm's: 1 - n^(-2/3) at the n-th value. Of a uniform average all values have one weight.
  static Quantity getDecay(const OptimizerSettings &settings, Quantity updates) {
    if (settings.isOn("ema-uniform"))
      return updates / (updates + 1.0);
    Quantity decay = settings.getNumber("ema-decay");
    if (settings.isOn("ema-warmup"))
      decay = min(decay, 1.0 - pow(updates + 1.0, -2.0 / 3.0));
    return selectLess(updates, 0.5, 0.0, decay);
  }

  /// 1 for a step whose parameter is averaged, 0 for one that is left out.
  static Quantity takesStep(Update &u) {
    double start = u.settings.getNumber("ema-start"), every = u.settings.getNumber("ema-every");
    if (start == 0 && every == 1)
      return 1.0;
    Quantity behind = u.step() - start, rest = behind - every * floor(behind / every);
    return selectLess(behind, 0.5, 0.0, selectLess(rest, 0.5, 1.0, 0.0));
  }
};
} // namespace

const Optimizer &mlir::memopt::getAverage() {
  static const Average optimizer;
  return optimizer;
}
