//===- Dropout.cpp - dropout, and draws of zeros and ones -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Without dropout (evaluation, or because the user said so) what drops is the identity.
//
//===----------------------------------------------------------------------===//

#include "Dropout.h"

#include "memopt/Import/Graph/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cmath>

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

/// Whether there is anything to drop; an error when p is no probability.
static Expected<bool> dropsSomething(OpContext &op, double probability, bool train) {
  if (!(probability >= 0 && probability <= 1))
    return op.error("argument 'p': expected a number from 0 to 1, found " + toString(probability));
  return train && probability > 0 && dropoutIsOn(op);
}

/// Nothing is left.
static Tensor dropAll(OpContext &op, const Tensor &input) {
  Value value = op.getCompact(input);
  return op.wrap(input.dtype, input.sizes,
                 multiply(op.b, value, splat(op.b, value.getType(), 0.0)));
}

static Error lowerDropout(OpContext &op) {
  Tensor input = op.tensor("input");
  double p = op.number("p");
  ASSIGN_OR_RETURN(bool drops, dropsSomething(op, p, op.flag("train")));
  if (drops && p == 1)
    return setResult(op, dropAll(op, input));
  return setResult(op, drops ? dropout(op, input, p) : input);
}

static Error lowerNativeDropout(OpContext &op) {
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  Tensor input = op.tensor("input");
  bool train = !op.has("train") || op.flag("train");
  ASSIGN_OR_RETURN(bool drops, dropsSomething(op, op.number("p"), train));
  if (!drops) {
    op.setResult(0, op.copy(input));
    op.setResult(1, op.wrap(ConstantTensor::splat(DType::Bool, input.sizes, 1)));
    return Error::success();
  }
  if (op.number("p") == 1) {
    op.setResult(0, dropAll(op, input));
    op.setResult(1, op.wrap(ConstantTensor::splat(DType::Bool, input.sizes, 0)));
    return Error::success();
  }
  Value mask;
  op.setResult(0, dropout(op, input, op.number("p"), &mask));
  op.setResult(1, op.wrap(DType::Bool, mask));
  return Error::success();
}

static Error lowerNativeDropoutBackward(OpContext &op) {
  Scalar scale = op.scalar("scale");
  return mapReals(op, {op.tensor("grad_output"), op.tensor("mask")},
                  [&](ArrayRef<Element> v) { return v[0] * (v[1] * scale.asDouble()); });
}

/// A tensor of ones for the input's elements, or for its channels alone.
static Expected<Tensor> onesFor(OpContext &op, const Tensor &input, bool byChannel) {
  Shape sizes(input.sizes);
  if (byChannel) {
    if (input.rank() < 2 || input.getNumElements() == 0)
      return op.error("expected an input with batch and channels, found " + toString(input.sizes));
    std::fill(sizes.begin() + 2, sizes.end(), 1);
  }
  return op.wrap(input.dtype, splat(op.b, op.tensorType(input.dtype, sizes), 1.0));
}

/// Drops whole channels: the mask has the batch and channel dimensions only.
static Error lowerFeatureDropout(OpContext &op) {
  Tensor input = op.tensor("input");
  ASSIGN_OR_RETURN(bool drops, dropsSomething(op, op.number("p"), op.flag("train")));
  if (!drops || op.number("p") == 1)
    return setResult(op, drops ? dropAll(op, input) : input);
  ASSIGN_OR_RETURN(Tensor ones, onesFor(op, input, /*byChannel=*/true));
  Tensor factors = dropout(op, ones, op.number("p"));
  return setResult(op,
                   elementwise(op, {input, factors}, input.dtype, input.dtype,
                               [](Builder &b, ValueRange v) { return multiply(b, v[0], v[1]); }));
}

/// Klambauer et al., Self-Normalizing Neural Networks, 2017: what is dropped goes to SELU's lower
/// bound -alpha, and a scale and an offset restore mean 0 and variance 1.
static constexpr double kAlpha = 1.7580993408473766;
static double getAlphaScale(double p) { return 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p)); }

template <bool byChannel> static Error lowerAlphaDropout(OpContext &op) {
  Tensor input = op.tensor("input");
  double p = op.number("p");
  ASSIGN_OR_RETURN(bool drops, dropsSomething(op, p, op.flag("train")));
  if (!drops)
    return setResult(op, input);
  if (p == 1)
    return setResult(op,
                     op.copy(castTo(op, op.wrap(ConstantTensor::splat(DType::I64, input.sizes, 0)),
                                    input.dtype)));
  ASSIGN_OR_RETURN(Tensor ones, onesFor(op, input, byChannel));
  Tensor kept = dropout(op, ones, p); // 0 or 1 / (1 - p)
  double scale = getAlphaScale(p);
  return setResult(
      op, elementwise(op, {input, kept}, input.dtype, input.dtype, [&](Builder &b, ValueRange v) {
        auto number = [&](double value) { return splat(b, v[0].getType(), value); };
        Value noise = multiply(b, v[1], number(1 - p));
        Value lowered =
            multiply(b, arith::SubFOp::create(b, noise, number(1)), number(kAlpha * scale));
        Value offset = arith::AddFOp::create(b, lowered, number(kAlpha * scale * p));
        Value scaled = multiply(b, v[0], multiply(b, noise, number(scale)));
        return Value(arith::AddFOp::create(b, scaled, offset));
      }));
}

/// Ones with probability p, else zeros. With dropout off, a draw is its mean: `x * bernoulli(p) /
/// p`, which drops whole paths of a network, then leaves x alone.
static Error lowerBernoulli(OpContext &op) {
  double p = op.number("p");
  DType type = op.resultMeta(0).dtype;
  Tensor self = op.tensor("self");
  if (!(p >= 0 && p <= 1) || !isFloat(type) || self.getNumElements() == 0)
    return op.error("expected a floating-point tensor and a probability, found " + getName(type) +
                    " and " + toString(p));
  RankedTensorType ones = op.tensorType(type, self.sizes);
  if (!dropoutIsOn(op) || p == 0 || p == 1)
    return setResult(op, op.wrap(type, splat(op.b, ones, p)));
  RandomState random = nextRandomState(op);
  Value drawn = mlir::memopt::DropoutMaskOp::create(op.b, ones.clone(op.b.getI1Type()), random.seed,
                                                    random.step, op.b.getF64FloatAttr(1 - p),
                                                    op.b.getI64IntegerAttr(random.id));
  return setResult(op, op.wrap(type, convert(op.b, drawn, DType::Bool, type)));
}

//===----------------------------------------------------------------------===//
// Alpha dropout in parts
//===----------------------------------------------------------------------===//

namespace {
/// The nodes of a graph by what they read.
class Readers {
public:
  explicit Readers(const Graph &graph) {
    for (const Node &node : graph.nodes)
      for (const NamedArgument &input : node.inputs)
        if (input.value.kind == Argument::Kind::Tensor)
          readers[input.value.names.front()].push_back(&node);
  }
  /// The only reader of `name` among nodes that start with `target`; null when there is none.
  const Node *find(StringRef name, StringRef target) const {
    const Node *found = nullptr;
    for (const Node *reader : readers.lookup(name))
      if (StringRef(reader->target).starts_with(target)) {
        if (found)
          return nullptr;
        found = reader;
      }
    return found;
  }

private:
  StringMap<SmallVector<const Node *, 2>> readers;
};
} // namespace

static StringRef getOutput(const Node &node) {
  return node.outputs.size() == 1 && node.outputs.front().names.size() == 1
             ? StringRef(node.outputs.front().names.front())
             : StringRef();
}

/// The number that an operator of a tensor and a number has.
static std::optional<double> getNumber(const Node *node) {
  if (!node || node->inputs.size() != 2)
    return std::nullopt;
  const Argument &value = node->inputs[1].value;
  if (value.kind == Argument::Kind::Float)
    return value.floats.front();
  if (value.kind == Argument::Kind::Int)
    return double(value.ints.front());
  return std::nullopt;
}

static bool isNear(std::optional<double> value, double expected) {
  return value && std::abs(*value - expected) <= 1e-9 * std::abs(expected);
}

StringMap<std::string> memopt::pt2::findAlphaDropouts(const Graph &graph) {
  StringMap<std::string> found;
  std::optional<Readers> readers;
  for (const Node &draw : graph.nodes) {
    std::optional<double> kept = getNumber(&draw);
    if (draw.target != "aten.bernoulli.p" || !kept)
      continue;
    if (!readers)
      readers.emplace(graph);
    double scale = getAlphaScale(1 - *kept);
    const Node *dropped = readers->find(getOutput(draw), "aten.add.");
    const Node *scaled = readers->find(getOutput(draw), "aten.mul.");
    if (!isNear(getNumber(dropped), -1) || !isNear(getNumber(scaled), scale))
      continue;
    const Node *lowered = readers->find(getOutput(*dropped), "aten.mul.");
    if (!isNear(getNumber(lowered), kAlpha * scale))
      continue;
    const Node *offset = readers->find(getOutput(*lowered), "aten.add.");
    const Node *product = readers->find(getOutput(*scaled), "aten.mul.Tensor");
    if (!isNear(getNumber(offset), kAlpha * scale * (1 - *kept)) || !product)
      continue;
    const Node *result = readers->find(getOutput(*product), "aten.add.Tensor");
    if (result && result == readers->find(getOutput(*offset), "aten.add.Tensor"))
      found[getOutput(*result)] = product->inputs.front().value.names.front();
  }
  return found;
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerDropout(OpTable &table) {
  table.add("aten.dropout.default", "Tensor input, float p, bool train", lowerDropout);
  table.add("aten.feature_dropout.default", "Tensor input, float p, bool train",
            lowerFeatureDropout);
  table.add("aten.alpha_dropout.default", "Tensor input, float p, bool train",
            lowerAlphaDropout<false>);
  table.add("aten.feature_alpha_dropout.default", "Tensor input, float p, bool train",
            lowerAlphaDropout<true>);
  table.add("aten.bernoulli.p", "Tensor self, float p, ignored generator", lowerBernoulli);
  table.add("aten.bernoulli.float", "Tensor self, float p=0.5, ignored generator", lowerBernoulli);
  table.add("aten.native_dropout.default", "Tensor input, float p, bool? train=None",
            lowerNativeDropout);
  table.add("aten.native_dropout_backward.default", "Tensor grad_output, Tensor mask, Scalar scale",
            lowerNativeDropoutBackward);
}
