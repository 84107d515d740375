//===- Adafactor.cpp - Adafactor --------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The variance of a matrix is kept as its means over columns and over rows; leading dimensions are
// batches of matrices.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

static Quantity estimateVariance(Update &u, Quantity gradient, double eps) {
  int64_t rank = u.getShape().size();
  Quantity squares = gradient * gradient,
           weight = pow(u.step(), u.settings.getNumber("beta2-decay"));
  if (rank < 2) {
    Quantity variance = lerp(u.state("variance"), squares, weight);
    u.setState("variance", variance);
    return variance;
  }
  SmallVector<int64_t> rowDims, columnDims;
  for (int64_t dim = 0; dim < rank; ++dim) {
    if (dim != rank - 1)
      rowDims.push_back(dim);
    if (dim != rank - 2)
      columnDims.push_back(dim);
  }
  Quantity rows =
      u.materialize(lerp(u.state("row_var", rowDims), u.mean(squares, {rank - 1}), weight));
  Quantity columns =
      u.materialize(lerp(u.state("col_var", columnDims), u.mean(squares, {rank - 2}), weight));
  u.setState("row_var", rows);
  u.setState("col_var", columns);
  return rows * columns / max(u.mean(rows, {rank - 2}), eps);
}

namespace {
class Adafactor : public Optimizer {
public:
  StringRef getName() const override { return "adafactor"; }
  StringRef getSource() const override {
    return "torch.optim.Adafactor; Shazeer and Stern, Adafactor: Adaptive Learning Rates with "
           "Sublinear "
           "Memory Cost, algorithms 4 and 5, 2018";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-2),
            {"beta2-decay",
             "X",
             "step t weighs new squares by t^X",
             OptimizerOption::Number,
             {-0.8},
             -INFINITY,
             0},
            {"eps",
             "X,Y",
             "least variance and least relative rate",
             OptimizerOption::Pair,
             {std::numeric_limits<float>::epsilon(), 1e-3}},
            {"d",
             "X",
             "clip the root mean square of updates to this",
             OptimizerOption::Number,
             {1.0},
             1},
            options::weightDecay(0.0)};
  }
  SmallVector<unsigned> getStateBits() const override { return {32}; }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    int64_t rank = parameter.type.getRank();
    if (rank < 2)
      return {fullSlot("variance", parameter)};
    StateSlot row{"row_var"}, column{"col_var"};
    for (int64_t dim = 0; dim < rank; ++dim) {
      if (dim != rank - 1)
        row.dims.push_back(dim);
      if (dim != rank - 2)
        column.dims.push_back(dim);
    }
    return {row, column};
  }
  void build(Update &u) const override {
    Quantity parameter = u.parameter(), gradient = u.gradient(), rate = u.rate();
    ArrayRef<double> eps = u.settings.getNumbers("eps");
    auto rms = [&](Quantity x) {
      return sqrt(u.sum(x * x)) / std::sqrt(double(u.getNumElements()));
    };
    Quantity relative = min(rate, 1.0 / sqrt(u.step())) * max(eps[1], rms(parameter));
    if (u.uses("weight-decay"))
      parameter = parameter - rate * u.hyperparameter("weight-decay") * parameter;
    Quantity variance = estimateVariance(u, gradient, eps[0]);
    Quantity direction = gradient / sqrt(max(variance, eps[0] * eps[0]));
    Quantity clip = max(1.0, rms(direction) / u.settings.getNumber("d"));
    u.setParameter(parameter - relative / clip * direction);
  }
};
} // namespace

const Optimizer &mlir::memopt::getAdafactor() {
  static const Adafactor optimizer;
  return optimizer;
}
