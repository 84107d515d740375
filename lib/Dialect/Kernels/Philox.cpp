//===- Philox.cpp - counter-based random numbers in IR ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Kernels/Philox.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// 32-bit words in 64-bit lanes would waste half of them: words are i32, products i64. Values are
/// scalars or lanes; where both meet a scalar is the same in all lanes.
struct Philox {
  ImplicitLocOpBuilder &b;

  /// `element`, in as many lanes as `value`.
  static Type like(Value value, Type element) {
    auto vector = dyn_cast<VectorType>(value.getType());
    return vector ? vector.clone(element) : element;
  }
  /// Of the type of `value`.
  Value numberLike(Value value, int64_t number) {
    TypedAttr attribute = b.getIntegerAttr(getElementTypeOrSelf(value.getType()), number);
    if (auto vector = dyn_cast<VectorType>(value.getType()))
      attribute = DenseElementsAttr::get(vector, cast<Attribute>(attribute));
    return arith::ConstantOp::create(b, attribute);
  }
  Value wordLike(Value value, uint32_t word) {
    return numberLike(value, static_cast<int32_t>(word));
  }
  Value shiftRight(Value value, int64_t bits) {
    return arith::ShRUIOp::create(b, value, numberLike(value, bits));
  }
  Value low(Value wide) { return arith::TruncIOp::create(b, like(wide, b.getI32Type()), wide); }
  Value high(Value wide) { return low(shiftRight(wide, 32)); }
  Value multiply(uint32_t factor, Value value) {
    Value wide = arith::ExtUIOp::create(b, like(value, b.getI64Type()), value);
    return arith::MulIOp::create(b, wide, numberLike(wide, factor));
  }
  Value exclusiveOr(Value l, Value r) {
    if (l.getType() != r.getType()) {
      Value &scalar = isa<VectorType>(l.getType()) ? r : l;
      Value lanes = isa<VectorType>(l.getType()) ? l : r;
      scalar = vector::BroadcastOp::create(b, lanes.getType(), scalar);
    }
    return arith::XOrIOp::create(b, l, r);
  }

  std::array<Value, 4> run(std::array<Value, 4> counter, Value key0, Value key1) {
    for (int round = 0; round < 10; ++round) {
      Value product0 = multiply(0xD2511F53u, counter[0]);
      Value product1 = multiply(0xCD9E8D57u, counter[2]);
      counter = {exclusiveOr(exclusiveOr(high(product1), counter[1]), key0), low(product1),
                 exclusiveOr(exclusiveOr(high(product0), counter[3]), key1), low(product0)};
      key0 = arith::AddIOp::create(b, key0, wordLike(key0, 0x9E3779B9u));
      key1 = arith::AddIOp::create(b, key1, wordLike(key1, 0xBB67AE85u));
    }
    return counter;
  }

  Value hasBit(Value number, int64_t bit) {
    Value masked = arith::AndIOp::create(b, number, numberLike(number, bit));
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, masked, numberLike(number, 0));
  }
};
} // namespace

std::array<Value, 4> mlir::memopt::createRandomWords(ImplicitLocOpBuilder &b,
                                                     const RandomStream &stream, Value counter) {
  Philox philox{b};
  return philox.run(
      {philox.low(counter), philox.high(counter), philox.low(stream.step), philox.low(stream.id)},
      philox.low(stream.seed), philox.high(stream.seed));
}

Value mlir::memopt::createRandomWord(ImplicitLocOpBuilder &b, const RandomStream &stream,
                                     Value number) {
  Philox philox{b};
  auto words = createRandomWords(b, stream, philox.shiftRight(number, 2));
  auto select = [&](Value condition, Value l, Value r) -> Value {
    return arith::SelectOp::create(b, condition, l, r);
  };
  Value isOdd = philox.hasBit(number, 1);
  return select(philox.hasBit(number, 2), select(isOdd, words[3], words[2]),
                select(isOdd, words[1], words[0]));
}

std::optional<uint32_t> mlir::memopt::getDropoutThreshold(double probability) {
  constexpr double words = 4294967296.0;
  double threshold = std::ceil(probability * words);
  // 2^32 is no 32-bit number.
  return threshold < words ? std::optional(static_cast<uint32_t>(threshold)) : std::nullopt;
}
