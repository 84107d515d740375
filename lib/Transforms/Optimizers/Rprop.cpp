//===- Rprop.cpp - resilient propagation ------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Only signs of gradients count: each element has a step of its own, which grows while its gradient
// keeps its sign, and shrinks where it turns. The learning rate is the size of the first step alone.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
class Rprop : public Optimizer {
public:
  StringRef getName() const override { return "rprop"; }
  StringRef getSource() const override {
    return "torch.optim.Rprop; Riedmiller and Braun, A Direct Adaptive Method for Faster "
           "Backpropagation Learning, 1993";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {
        options::learningRate(1e-2),
        {"etas",
         "X,Y",
         "factors of a step whose gradient has turned, and has not",
         OptimizerOption::Pair,
         {0.5, 1.2}},
        {"step-sizes", "X,Y", "smallest and largest step", OptimizerOption::Pair, {1e-6, 50.0}}};
  }
  llvm::Error check(const OptimizerSettings &settings) const override {
    ArrayRef<double> etas = settings.getNumbers("etas");
    if (!(0 < etas[0] && etas[0] < 1 && 1 < etas[1]))
      return llvm::createStringError("--etas expects a number between 0 and 1, and one above 1");
    return llvm::Error::success();
  }
  SmallVector<unsigned> getStateBits() const override { return {32}; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot("prev", parameter), fullSlot("step_size", parameter)};
  }
  void build(Update &u) const override {
    ArrayRef<double> etas = u.settings.getNumbers("etas");
    ArrayRef<double> sizes = u.settings.getNumbers("step-sizes");
    Quantity gradient = u.gradient(), turn = gradient * u.state("prev");
    Quantity factor = selectLess(turn, 0.0, etas[0], selectLess(0.0, turn, etas[1], 1.0));
    Quantity size = selectLess(u.step(), 2.0, u.rate(), u.state("step_size"));
    size = min(max(size * factor, sizes[0]), sizes[1]);
    gradient = selectLess(turn, 0.0, 0.0, gradient);
    u.setParameter(u.parameter() - sign(gradient) * size);
    u.setState("prev", gradient);
    u.setState("step_size", size);
  }
};
} // namespace

const Optimizer &mlir::memopt::getRprop() {
  static const Rprop optimizer;
  return optimizer;
}
