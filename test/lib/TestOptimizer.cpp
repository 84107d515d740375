//===- TestOptimizer.cpp - an optimizer of nobody's -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestOptimizer.h"

#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
class TestSign : public Optimizer {
public:
  StringRef getName() const override { return "test-sign"; }
  StringRef getSource() const override { return "none, for tests"; }
  SmallVector<OptimizerOption> getOptions() const override { return {options::learningRate(0.5)}; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    return {fullSlot("sum", parameter)};
  }
  void build(Update &u) const override {
    Quantity sum = u.state("sum") + u.gradient();
    u.setState("sum", sum);
    u.setParameter(u.parameter() - u.rate() * sign(sum));
  }
};
} // namespace

void memopt_test::registerTestOptimizer() {
  static const TestSign optimizer;
  registerOptimizer(optimizer);
}
