//===- Clamps.cpp - the larger, the smaller, bounds -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gradients at bounds and ties are those of PyTorch 2.15: a number as a bound takes the gradient
// where the input equals it, a tensor shares it.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace llvm;
using namespace memopt::pt2;
using Elements = ArrayRef<Element>;
namespace arith = mlir::arith;

/// NaN where either is; PyTorch's maximum and minimum.
template <bool isMax> static Error lowerExtreme(OpContext &op) {
  return mapElements(
      op, {op.operand("self"), op.operand("other")},
      [](Elements v) { return isMax ? largerOf(v[0], v[1]) : smallerOf(v[0], v[1]); },
      [](ArrayRef<int64_t> v) { return isMax ? std::max(v[0], v[1]) : std::min(v[0], v[1]); });
}

/// The number where the other is NaN.
template <bool isMax> static Error lowerNumberExtreme(OpContext &op) {
  if (!isFloat(op.resultMeta(0).dtype))
    return lowerExtreme<isMax>(op);
  return mapReals(op, {op.tensor("self"), op.tensor("other")}, [](Elements v) -> Element {
    auto &b = v[0].getBuilder();
    if (isMax)
      return {b, arith::MaxNumFOp::create(b, v[0], v[1])};
    return {b, arith::MinNumFOp::create(b, v[0], v[1])};
  });
}

//===----------------------------------------------------------------------===//
// Clamp
//===----------------------------------------------------------------------===//

namespace {
struct Bounds {
  std::optional<Operand> low, high;
};
} // namespace

static Element bind(Element x, std::optional<Element> low, std::optional<Element> high) {
  if (low)
    x = largerOf(x, *low);
  return high ? smallerOf(x, *high) : x;
}

/// Bounds that are numbers: the gradient passes strictly between them.
static Element clampByNumbers(Element x, std::optional<Element> low, std::optional<Element> high) {
  Element value = bind(x, low, high);
  if (!x.isReal())
    return value;
  Element inside = low ? greater(x, *low) : less(x, *high);
  if (low && high)
    inside = inside & less(x, *high);
  return withSlopes(value, {{x, select(inside, x.like(1), x.like(0))}});
}

/// Two bounds that are tensors: where the input equals one of them they share the gradient, and
/// bounds in the wrong order leave it to the upper one, which is the value.
static Element clampByTensors(Element x, Element low, Element high) {
  Element value = bind(x, low, high);
  if (!x.isReal())
    return value;
  Element one = x.like(1), half = x.like(0.5), zero = x.like(0);
  Element onLow = equals(x, low), onHigh = equals(x, high), isOpen = less(low, high);
  Element isShared = onLow ^ onHigh;
  Element isOut = less(x, low) | greater(x, high);
  Element own = select(isOut, zero, select(isShared, half, one));
  Element toLow =
      select(less(x, low) & lessOrEqual(low, high), one, select(onLow & isOpen, half, zero));
  Element above = (greater(x, high) & lessOrEqual(low, high)) | less(high, low);
  Element toHigh = select(above, one, select(onHigh & isOpen, half, zero));
  return withSlopes(value, {{x, own}, {low, toLow}, {high, toHigh}});
}

static Error lowerClampWithin(OpContext &op, const Bounds &bounds) {
  if (!bounds.low && !bounds.high)
    return op.error("expected a bound at least");
  SmallVector<Operand> operands{op.tensor("self")};
  bool byTensors = false;
  for (const std::optional<Operand> &bound : {bounds.low, bounds.high})
    if (bound) {
      operands.push_back(*bound);
      byTensors |= std::holds_alternative<Tensor>(*bound);
    }
  return mapElements(op, operands, [&](Elements v) -> Element {
    std::optional<Element> low, high;
    if (bounds.low)
      low = v[1];
    if (bounds.high)
      high = v.back();
    if (!byTensors)
      return clampByNumbers(v[0], low, high);
    return low && high ? clampByTensors(v[0], *low, *high) : bind(v[0], low, high);
  });
}

static std::optional<Operand> getBound(OpContext &op, StringRef name) {
  return op.has(name) ? std::optional(op.operand(name)) : std::nullopt;
}

static Error lowerClamp(OpContext &op) {
  return lowerClampWithin(op, {getBound(op, "min"), getBound(op, "max")});
}
static Error lowerClampMin(OpContext &op) {
  return lowerClampWithin(op, {op.operand("min"), std::nullopt});
}
static Error lowerClampMax(OpContext &op) {
  return lowerClampWithin(op, {std::nullopt, op.operand("max")});
}

//===----------------------------------------------------------------------===//
// Replacements
//===----------------------------------------------------------------------===//

/// Infinities become the largest numbers of the type unless others are given.
static Error lowerNanToNum(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  if (!isFloat(type))
    return setResult(op, op.copy(op.tensor("self")));
  double largest = getLargestFinite(type);
  double nan = op.has("nan") ? op.number("nan") : 0;
  double positive = op.has("posinf") ? op.number("posinf") : largest;
  double negative = op.has("neginf") ? op.number("neginf") : -largest;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return mapReals(op, {op.tensor("self")}, [&](Elements v) {
    Element x = v[0], finite = select(equals(x, -infinity), negative, x);
    return select(isNaN(x), nan, select(equals(x, infinity), positive, finite));
  });
}

/// `value` up to the threshold, the input beyond it and where it is NaN.
static Error lowerThreshold(OpContext &op) {
  Scalar threshold = op.scalar("threshold"), value = op.scalar("value");
  return mapElements(op, {op.tensor("self"), threshold, value},
                     [](Elements v) { return select(lessOrEqual(v[0], v[1]), v[2], v[0]); });
}

/// 1 beyond zero, a given value on it, 0 elsewhere.
static Error lowerHeaviside(OpContext &op) {
  return mapElements(op, {op.tensor("self"), op.tensor("values")}, [](Elements v) {
    return select(equals(v[0], 0), v[1], select(greater(v[0], 0), v[0].like(1), v[0].like(0)));
  });
}

void memopt::pt2::registerClamps(OpTable &table) {
  constexpr StringLiteral pair = "Tensor|Scalar self, Tensor|Scalar other",
                          both = "Tensor self, Tensor|Scalar? min=None, Tensor|Scalar? max=None";
  for (StringLiteral name :
       {StringLiteral("aten.maximum.default"), StringLiteral("aten.max.other")})
    table.add(name, pair, lowerExtreme<true>);
  for (StringLiteral name :
       {StringLiteral("aten.minimum.default"), StringLiteral("aten.min.other")})
    table.add(name, pair, lowerExtreme<false>);
  table.add("aten.fmax.default", pair, lowerNumberExtreme<true>);
  table.add("aten.fmin.default", pair, lowerNumberExtreme<false>);
  for (StringLiteral name :
       {StringLiteral("aten.clamp.default"), StringLiteral("aten.clamp.Tensor"),
        StringLiteral("aten.clip.default"), StringLiteral("aten.clip.Tensor")})
    table.add(name, both, lowerClamp);
  table.add("aten.clamp_min.default", "Tensor self, Tensor|Scalar min", lowerClampMin);
  table.add("aten.clamp_min.Tensor", "Tensor self, Tensor|Scalar min", lowerClampMin);
  table.add("aten.clamp_max.default", "Tensor self, Tensor|Scalar max", lowerClampMax);
  table.add("aten.clamp_max.Tensor", "Tensor self, Tensor|Scalar max", lowerClampMax);
  table.add("aten.nan_to_num.default",
            "Tensor self, float? nan=None, float? posinf=None, float? neginf=None", lowerNanToNum);
  table.add("aten.threshold.default", "Tensor self, Scalar threshold, Scalar value",
            lowerThreshold);
  table.add("aten.heaviside.default", "Tensor self, Tensor values", lowerHeaviside);
}
