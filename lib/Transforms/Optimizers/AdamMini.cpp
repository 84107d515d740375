//===- AdamMini.cpp - Adam-mini ---------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One second moment for each block of a parameter. The blocks are those of the authors' package
// adam-mini 1.1.1, which goes by names: the heads of query and key projections; the rows of
// embeddings, outputs, values, attention projections and MLPs; the elements of biases; else the
// whole tensor. Weight decay leaves norms and biases out.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

static bool hasOneOf(StringRef name, ArrayRef<StringRef> words) {
  return llvm::any_of(words, [&](StringRef word) { return name.contains(word); });
}

/// Elements that share a second moment.
static llvm::Expected<int64_t> chooseBlock(const ParameterInfo &parameter,
                                           const OptimizerSettings &settings) {
  std::string name = parameter.getName().lower();
  RankedTensorType type = parameter.type;
  int64_t elements = type.getNumElements();
  if (hasOneOf(name, {"bias"}) || elements == 0)
    return 1;
  if (hasOneOf(name, {"k_proj", "q_proj", "wq", "wk", "query", "key"}) && type.getRank() >= 2) {
    auto heads = static_cast<int64_t>(settings.getNumber("n-heads"));
    int64_t width = type.getDimSize(1);
    if (heads == 0)
      return llvm::createStringError("adam-mini needs --n-heads=N for '" + parameter.getName() +
                                     "', which its name makes a query or key projection");
    int64_t block = width * width / heads;
    if (width * width % heads || block == 0 || elements % block)
      return llvm::createStringError("--n-heads=" + Twine(heads) + " does not divide '" +
                                     parameter.getName() + "' into heads of " + Twine(width) + "x" +
                                     Twine(width) + "/" + Twine(heads) + " elements");
    return block;
  }
  bool hasRows =
      hasOneOf(name, {"embed", "embd", "wte", "lm_head", "output", "final_layer", "v_proj", "wv",
                      "value", "o_proj", "wo", "attn.proj", "feed_forward", "linear", "mlp"});
  return hasRows && type.getRank() >= 1 ? elements / type.getDimSize(0) : elements;
}

/// What `adapt` chose; the whole tensor where nobody did.
static int64_t getBlock(const OptimizerSettings &settings, int64_t elements) {
  auto block = settings.has("block") ? static_cast<int64_t>(settings.getNumber("block")) : elements;
  return block > 0 && elements % block == 0 ? block : elements;
}

namespace {
class AdamMini : public Optimizer {
public:
  StringRef getName() const override { return "adam-mini"; }
  StringRef getSource() const override {
    return "Zhang et al., Adam-mini: Use Fewer Learning Rates To Gain More, 2024";
  }
  SmallVector<OptimizerOption> getOptions() const override {
    return {options::learningRate(1e-3),
            options::betas(0.9, 0.999),
            options::eps(1e-8),
            options::weightDecay(0.0),
            {"n-heads",
             "N",
             "attention heads of a query or key projection",
             OptimizerOption::Count,
             {0}}};
  }
  SmallVector<unsigned> getStateBits() const override { return {32, 16}; }
  llvm::Error adapt(const ParameterInfo &parameter, OptimizerSettings &settings) const override {
    std::string name = parameter.getName().lower();
    if (hasOneOf(name, {"norm", "ln", "bias"}))
      settings.setNumbers("weight-decay", {0.0});
    llvm::Expected<int64_t> block = chooseBlock(parameter, settings);
    if (!block)
      return block.takeError();
    settings.setNumbers("block", {static_cast<double>(*block)});
    return llvm::Error::success();
  }
  SmallVector<StateSlot> getState(const ParameterInfo &parameter,
                                  const OptimizerSettings &settings) const override {
    SmallVector<int64_t> blocks{1, 1};
    int64_t elements = parameter.type.getNumElements();
    blocks.front() = elements / std::max<int64_t>(1, getBlock(settings, elements));
    return {fullSlot("exp_avg", parameter), {"vmean", {0}, 0, false, blocks}};
  }
  void build(Update &u) const override {
    int64_t elements = u.getNumElements(), block = getBlock(u.settings, elements);
    u.cut({elements / std::max<int64_t>(1, block), block});
    Quantity parameter = u.parameter(), gradient = u.gradient(), rate = u.rate(), step = u.step();
    Quantity beta1 = u.hyperparameter("betas", 0), beta2 = u.hyperparameter("betas", 1);
    if (u.uses("weight-decay"))
      parameter = parameter - rate * u.hyperparameter("weight-decay") * parameter;
    Quantity first = beta1 * u.state("exp_avg") + (1.0 - beta1) * gradient;
    Quantity second = u.materialize(beta2 * u.state("vmean", {0}) +
                                    (1.0 - beta2) * u.mean(gradient * gradient, {1}));
    Quantity denominator =
        sqrt(second) / sqrt(1.0 - pow(beta2, step)) + u.settings.getNumber("eps");
    u.setParameter(parameter - rate / (1.0 - pow(beta1, step)) * (first / denominator));
    u.setState("exp_avg", first);
    u.setState("vmean", second);
  }
};
} // namespace

const Optimizer &mlir::memopt::getAdamMini() {
  static const AdamMini optimizer;
  return optimizer;
}
