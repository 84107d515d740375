//===- Padding.cpp - borders around a tensor -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Zeros are memopt.pad. Otherwise a padded dimension is a concatenation: of what lies before, the
// tensor, and what lies after. Each part is a constant or a view of the tensor (turned around,
// repeated, or from the other end), so gradients are sums of views and nothing is scattered.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpContext.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

Tensor memopt::pt2::padZeros(OpContext &op, const Tensor &self, ArrayRef<int64_t> low,
                             ArrayRef<int64_t> high) {
  Shape sizes;
  for (auto [size, before, after] : zip_equal(self.sizes, low, high))
    sizes.push_back(size + before + after);
  if (sizes == self.sizes)
    return self;
  return op.wrap(self.dtype, mlir::memopt::PadOp::create(op.b, op.tensorType(self.dtype, sizes),
                                                         op.get(self), low, high));
}

/// Elements of `value` before and after a dimension.
static Value surround(OpContext &op, Value inside, int64_t dim, int64_t low, int64_t high,
                      double value) {
  auto type = cast<RankedTensorType>(inside.getType());
  SmallVector<Value> parts;
  auto fill = [&](int64_t count) {
    Shape sizes(type.getShape());
    sizes[dim] = count;
    if (count > 0)
      parts.push_back(splat(op.b, type.clone(sizes), value));
  };
  fill(low);
  parts.push_back(inside);
  fill(high);
  return parts.size() == 1 ? inside : mlir::tensor::ConcatOp::create(op.b, dim, parts).getResult();
}

/// `pad` has two numbers for each dimension, last dimension first; negative ones cut.
static Error lowerConstantPad(OpContext &op) {
  Tensor self = op.tensor("self");
  ArrayRef<int64_t> pad = op.integers("pad");
  double value = op.has("value") ? op.number("value") : 0;
  if (pad.size() % 2 || int64_t(pad.size() / 2) > self.rank() || self.getNumElements() == 0)
    return op.error("argument 'pad': expected pairs for at most " + Twine(self.rank()) +
                    " dimensions, found " + toString(pad));
  Shape low(self.rank(), 0), high(self.rank(), 0), sizes(self.sizes);
  for (size_t i = 0; i != pad.size() / 2; ++i) {
    int64_t dim = self.rank() - 1 - int64_t(i), before = pad[2 * i], after = pad[2 * i + 1];
    constexpr int64_t most = int64_t(1) << 40;
    if (before < -most || after < -most || before > most || after > most)
      return op.error("argument 'pad': out of range: " + toString(pad));
    int64_t begin = std::max<int64_t>(0, -before);
    int64_t count = sizes[dim] - begin - std::max<int64_t>(0, -after);
    if (count < 1)
      return op.error("argument 'pad': cuts all of dimension " + Twine(dim));
    ASSIGN_OR_RETURN(self, slice(op, self, dim, begin, 1, count));
    low[dim] = std::max<int64_t>(0, before);
    high[dim] = std::max<int64_t>(0, after);
    sizes[dim] = low[dim] + count + high[dim];
  }
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  if (value == 0)
    return setResult(op, op.copy(padZeros(op, self, low, high)));
  Value result = op.get(self);
  for (int64_t dim = 0; dim != self.rank(); ++dim)
    result = surround(op, result, dim, low[dim], high[dim], value);
  return setResult(op, op.wrap(self.dtype, result));
}

//===----------------------------------------------------------------------===//
// Continuations
//===----------------------------------------------------------------------===//

namespace {
enum class Border { Reflect, Replicate, Circular };
} // namespace

/// `count` elements that continue `self` along `dim`, before its first or behind its last.
static Expected<Tensor> continueBorder(OpContext &op, const Tensor &self, int64_t dim,
                                       int64_t count, bool isBefore, Border border) {
  int64_t size = self.sizes[dim];
  switch (border) {
  case Border::Reflect: {
    ASSIGN_OR_RETURN(Tensor part, slice(op, self, dim, isBefore ? 1 : size - 1 - count, 1, count));
    return flip(op, part, dim);
  }
  case Border::Replicate: {
    ASSIGN_OR_RETURN(Tensor edge, slice(op, self, dim, isBefore ? 0 : size - 1, 1, 1));
    Shape sizes(self.sizes);
    sizes[dim] = count;
    return expand(op, edge, sizes);
  }
  case Border::Circular:
    return slice(op, self, dim, isBefore ? size - count : 0, 1, count);
  }
  llvm_unreachable("all borders are listed");
}

/// Negative padding cuts.
static Expected<Tensor> padDimension(OpContext &op, Tensor self, int64_t dim, int64_t before,
                                     int64_t after, Border border) {
  int64_t size = self.sizes[dim];
  int64_t most = border == Border::Reflect ? size - 1
                 : border == Border::Circular
                     ? size + std::min<int64_t>(0, before) + std::min<int64_t>(0, after)
                     : INT64_MAX;
  if (before > most || after > most || size + before + after < 1)
    return op.error("cannot pad dimension " + Twine(dim) + " of " + toString(self.sizes) + " by " +
                    Twine(before) + " and " + Twine(after));
  int64_t begin = std::max<int64_t>(0, -before), end = size + std::min<int64_t>(0, after);
  ASSIGN_OR_RETURN(Tensor middle, slice(op, self, dim, begin, 1, end - begin));
  // A circle is closed behind the cut, mirrors and edges are those of the whole.
  const Tensor &source = border == Border::Circular ? middle : self;
  std::vector<Tensor> parts;
  if (before > 0) {
    ASSIGN_OR_RETURN(Tensor part, continueBorder(op, source, dim, before, true, border));
    parts.push_back(part);
  }
  parts.push_back(middle);
  if (after > 0) {
    ASSIGN_OR_RETURN(Tensor part, continueBorder(op, source, dim, after, false, border));
    parts.push_back(part);
  }
  return concatenate(op, parts, dim);
}

/// `padding` begins with the last dimension, as PyTorch writes it.
static Error pad(OpContext &op, ArrayRef<int64_t> padding, Border border) {
  Tensor result = op.tensor("self");
  int64_t dims = padding.size() / 2;
  if (padding.size() % 2 || dims > result.rank() || result.getNumElements() == 0)
    return op.error("expected two numbers for each of at most " + Twine(result.rank()) +
                    " dimensions, found " + toString(padding));
  for (int64_t i = 0; i != dims; ++i) {
    if (padding[2 * i] == 0 && padding[2 * i + 1] == 0)
      continue;
    ASSIGN_OR_RETURN(result, padDimension(op, result, result.rank() - 1 - i, padding[2 * i],
                                          padding[2 * i + 1], border));
  }
  return setResult(op, op.copy(result));
}

template <Border border> static Error lowerBorder(OpContext &op) {
  return pad(op, op.integers("padding"), border);
}

static Error padByMode(OpContext &op, StringRef mode) {
  auto border = StringSwitch<std::optional<Border>>(mode)
                    .Case("reflect", Border::Reflect)
                    .Case("replicate", Border::Replicate)
                    .Case("circular", Border::Circular)
                    .Default(std::nullopt);
  if (!border)
    return op.error("argument 'mode': expected constant, reflect, replicate or circular, found '" +
                    mode + "'");
  return pad(op, op.integers("pad"), *border);
}

static Error lowerPad(OpContext &op) {
  StringRef mode = op.text("mode");
  return mode == "constant" ? lowerConstantPad(op) : padByMode(op, mode);
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerPadding(OpTable &table) {
  table.add("aten.constant_pad_nd.default", "Tensor self, int[] pad, Scalar value=0",
            lowerConstantPad);
  table.add("aten.pad.default", "Tensor self, int[] pad, str mode='constant', float? value=None",
            lowerPad);
  constexpr StringLiteral parameters = "Tensor self, int[] padding";
  table.add("aten.reflection_pad1d.default", parameters, lowerBorder<Border::Reflect>);
  table.add("aten.reflection_pad2d.default", parameters, lowerBorder<Border::Reflect>);
  table.add("aten.reflection_pad3d.default", parameters, lowerBorder<Border::Reflect>);
  table.add("aten.replication_pad1d.default", parameters, lowerBorder<Border::Replicate>);
  table.add("aten.replication_pad2d.default", parameters, lowerBorder<Border::Replicate>);
  table.add("aten.replication_pad3d.default", parameters, lowerBorder<Border::Replicate>);
  table.add("aten._pad_circular.default", "Tensor self, int[] pad",
            [](OpContext &op) { return padByMode(op, "circular"); });
}
