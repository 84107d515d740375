//===- Sm3.cpp - SM3 --------------------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One accumulator for each dimension, the largest sum of squares of what lies at an index. The sum
// of an element is at most the smallest of its accumulators, and takes that one's place.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

static std::string accumulatorOf(int64_t dim) { return "accumulator_" + std::to_string(dim); }

namespace {
class Sm3 : public Optimizer {
public:
  StringRef getName() const override { return "sm3"; }
  StringRef getSource() const override {
    return "Anil et al., Memory-Efficient Adaptive Optimization, algorithm SM3-II, 2019; momentum "
           "as in the "
           "authors' code";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-1), options::momentum(0.9), options::eps(1e-30)};
  }
  SmallVector<unsigned> getStateBits() const override { return {32, 16}; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    SmallVector<StateSlot> slots;
    for (int64_t dim = 0, rank = std::max<int64_t>(1, parameter.type.getRank()); dim < rank;
         ++dim) {
      StateSlot slot{accumulatorOf(dim)};
      if (parameter.type.getRank())
        slot.dims.push_back(dim);
      slots.push_back(std::move(slot));
    }
    if (settings.getNumber("momentum") != 0)
      slots.push_back(fullSlot("momentum_buffer", parameter));
    return slots;
  }
  void build(Update &u) const override {
    int64_t rank = u.getShape().size();
    Quantity gradient = u.gradient();
    Quantity total = u.state(accumulatorOf(0), {0});
    for (int64_t dim = 1; dim < rank; ++dim)
      total = min(total, u.state(accumulatorOf(dim), {dim}));
    total = total + gradient * gradient;
    for (int64_t dim = 0; dim < rank; ++dim) {
      SmallVector<int64_t> others;
      for (int64_t other = 0; other < rank; ++other)
        if (other != dim)
          others.push_back(other);
      u.setState(accumulatorOf(dim), others.empty() ? total : u.largest(total, others));
    }
    Quantity momentum = u.hyperparameter("momentum");
    Quantity direction = (1.0 - momentum) * gradient / sqrt(total + u.settings.getNumber("eps"));
    if (u.uses("momentum")) {
      direction = momentum * u.state("momentum_buffer") + direction;
      u.setState("momentum_buffer", direction);
    }
    u.setParameter(u.parameter() - u.rate() * direction);
  }
};
} // namespace

const Optimizer &mlir::memopt::getSm3() {
  static const Sm3 optimizer;
  return optimizer;
}
