//===- LowerToLinalgRandom.cpp - counter-based random numbers --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Elements are numbered row-major; one that needs k words has those from k times its number on
// (Philox.h). Kernels make them, for neighbours together.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"

#include "memopt/Dialect/Kernels/Philox.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;

/// Number of the current point in a tensor with these strides.
static Value createElementNumber(ImplicitLocOpBuilder &b, ArrayRef<int64_t> strides) {
  Value number = createIntConstant(b, b.getIndexType(), 0);
  for (auto [dim, stride] : llvm::enumerate(strides)) {
    Value scaled = arith::MulIOp::create(b, linalg::IndexOp::create(b, dim),
                                         createIntConstant(b, b.getIndexType(), stride));
    number = arith::AddIOp::create(b, number, scaled);
  }
  return convertTo(b, number, b.getI64Type());
}

namespace {
/// The words of one element of a random op.
struct Words {
  ImplicitLocOpBuilder &b;
  Value first, element; ///< numbers of the tensor's first element, and of this one behind it
  Value seed, step;
  int64_t id;

  /// Word `number` of the `count` that the element needs.
  Value get(int64_t number, int64_t count) const {
    if (count == 1)
      return RandomWordOp::create(b, b.getI32Type(), first, element, seed, step, id);
    auto constant = [&](int64_t value) { return createIntConstant(b, b.getI64Type(), value); };
    Value begin = arith::MulIOp::create(b, first, constant(count));
    Value word = arith::MulIOp::create(b, element, constant(count));
    word = arith::AddIOp::create(b, word, constant(number));
    return RandomWordOp::create(b, b.getI32Type(), begin, word, seed, step, id);
  }
};
} // namespace

/// A generic over the result's type whose body makes an element from its words.
template <typename OpType>
static Lowered lowerRandom(OpType op, ImplicitLocOpBuilder &b,
                           llvm::function_ref<Value(ImplicitLocOpBuilder &, const Words &)> make) {
  RankedTensorType type = tensorType(op.getResult());
  AffineMap scalarMap = AffineMap::get(type.getRank(), 0, b.getContext());
  SmallVector<Read> reads{{op.getSeed(), scalarMap}, {op.getStep(), scalarMap}};
  if (op.getFirst())
    reads.push_back({op.getFirst(), scalarMap});
  auto makeElement = [&](ImplicitLocOpBuilder &inner, ValueRange x) {
    Type wide = inner.getI64Type();
    bool isPart = op.getFirst() != nullptr;
    SmallVector<int64_t> strides =
        isPart ? SmallVector<int64_t>(*op.getStrides()) : computeStrides(type.getShape());
    Words words{inner,
                isPart ? convertTo(inner, x[2], wide) : createIntConstant(inner, wide, 0),
                createElementNumber(inner, strides),
                convertTo(inner, x[0], wide),
                convertTo(inner, x[1], wide),
                static_cast<int64_t>(op.getId())};
    return SmallVector<Value>{make(inner, words)};
  };
  return createPointwise(b, type.getShape(), reads, {type.getElementType()}, makeElement);
}

static Lowered lowerDropoutMask(DropoutMaskOp op, ImplicitLocOpBuilder &b) {
  std::optional<uint32_t> threshold =
      getDropoutThreshold(op.getProbabilityAttr().getValueAsDouble());
  return lowerRandom(op, b, [&](ImplicitLocOpBuilder &inner, const Words &words) -> Value {
    if (!threshold)
      return createIntConstant(inner, inner.getI1Type(), 0);
    return arith::CmpIOp::create(
        inner, arith::CmpIPredicate::uge, words.get(0, 1),
        createIntConstant(inner, inner.getI32Type(), static_cast<int32_t>(*threshold)));
  });
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

static Value shiftRight(ImplicitLocOpBuilder &b, Value word, int64_t bits) {
  return arith::ShRUIOp::create(b, word, createIntConstant(b, word.getType(), bits));
}
static Value multiply(ImplicitLocOpBuilder &b, Value x, double factor) {
  return arith::MulFOp::create(b, x, createConstant(b, x.getType(), factor));
}

/// `word`, of fewer bits than the type's mantissa, as a number.
static Value toFloat(ImplicitLocOpBuilder &b, Value word, Type type) {
  return arith::SIToFPOp::create(b, type, word);
}

/// In [0, 1): 24 bits of one word, or 53 of two.
static Value createUniform(ImplicitLocOpBuilder &b, const Words &words, Type type) {
  if (!type.isF64())
    return multiply(b, toFloat(b, shiftRight(b, words.get(0, 1), 8), type), 0x1p-24);
  Value upper = arith::ExtUIOp::create(b, b.getI64Type(), shiftRight(b, words.get(0, 2), 5));
  Value lower = arith::ExtUIOp::create(b, b.getI64Type(), shiftRight(b, words.get(1, 2), 6));
  Value high = arith::ShLIOp::create(b, upper, createIntConstant(b, b.getI64Type(), 26));
  return multiply(b, toFloat(b, arith::OrIOp::create(b, high, lower), type), 0x1p-53);
}

/// In (0, 1), no end included: the middles of 2^23 equal parts, or of 2^31.
static Value createInside(ImplicitLocOpBuilder &b, Value word, Type type) {
  int64_t bits = type.isF64() ? 31 : 23;
  Value number = toFloat(b, shiftRight(b, word, 32 - bits), type);
  Value middle = arith::AddFOp::create(b, number, createConstant(b, type, 0.5));
  return multiply(b, middle, std::ldexp(1.0, -static_cast<int>(bits)));
}

static Value createNumber(ImplicitLocOpBuilder &b, Distribution distribution, const Words &words,
                          Type type) {
  switch (distribution) {
  case Distribution::Uniform:
    return createUniform(b, words, type);
  case Distribution::Normal: {
    Value logarithm = math::LogOp::create(b, createInside(b, words.get(0, 2), type));
    Value radius = math::SqrtOp::create(b, multiply(b, logarithm, -2));
    constexpr double turn = 6.283185307179586;
    Value angle = multiply(b, createInside(b, words.get(1, 2), type), turn);
    return arith::MulFOp::create(b, radius, math::CosOp::create(b, angle));
  }
  case Distribution::Exponential:
    return arith::NegFOp::create(b, math::LogOp::create(b, createInside(b, words.get(0, 1), type)));
  }
  llvm_unreachable("all distributions are listed");
}

static Lowered lowerNumbers(RandomOp op, ImplicitLocOpBuilder &b) {
  Type type = tensorType(op.getResult()).getElementType();
  return lowerRandom(op, b, [&](ImplicitLocOpBuilder &inner, const Words &words) {
    return createNumber(inner, op.getDistribution(), words, type);
  });
}

//===----------------------------------------------------------------------===//
// Rounding
//===----------------------------------------------------------------------===//

/// The bits that bf16 drops are a number below 2^16: with a random one added, they carry into those
/// that it keeps with the probability that the place between two neighbours asks for.
static Value roundAtRandom(ImplicitLocOpBuilder &b, Value x, Value word) {
  Type bits = b.getI32Type();
  auto number = [&](uint32_t value) {
    return createIntConstant(b, bits, static_cast<int32_t>(value));
  };
  Value pattern = arith::BitcastOp::create(b, bits, x);
  Value noise = arith::AndIOp::create(b, word, number(0xffff));
  Value carried = arith::AddIOp::create(b, pattern, noise);
  Value kept = arith::AndIOp::create(b, carried, number(0xffff0000));
  // Infinities and NaN have an exponent of ones, and no neighbours.
  Value exponent = arith::AndIOp::create(b, pattern, number(0x7f800000));
  Value isFinite = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, exponent, number(0x7f800000));
  Value rounded = arith::SelectOp::create(b, isFinite, kept, pattern);
  return arith::BitcastOp::create(b, b.getF32Type(), rounded);
}

static Lowered lowerStochasticRound(StochasticRoundOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getResult());
  AffineMap scalarMap = AffineMap::get(type.getRank(), 0, b.getContext());
  return createPointwise(
      b, type.getShape(),
      {readAll(b, op.getInput()), {op.getSeed(), scalarMap}, {op.getStep(), scalarMap}},
      {type.getElementType()}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Type wide = inner.getI64Type();
        Words words{inner,
                    createIntConstant(inner, wide, 0),
                    createElementNumber(inner, computeStrides(type.getShape())),
                    convertTo(inner, x[1], wide),
                    convertTo(inner, x[2], wide),
                    static_cast<int64_t>(op.getId())};
        Value rounded = roundAtRandom(inner, x[0], words.get(0, 1));
        return SmallVector<Value>{convertTo(inner, rounded, type.getElementType())};
      });
}

void mlir::memopt::populateRandomLowerings(LinalgLowerings &lowerings) {
  lowerings.add<DropoutMaskOp>(lowerDropoutMask);
  lowerings.add<RandomOp>(lowerNumbers);
  lowerings.add<StochasticRoundOp>(lowerStochasticRound);
}
