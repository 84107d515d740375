//===- Philox.cpp - counter-based random numbers in IR ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Philox.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// 32-bit words in 64-bit lanes would waste half of them: words are i32, products i64.
struct Philox {
  ImplicitLocOpBuilder &b;

  Value createNumber(Type type, int64_t value) {
    return arith::ConstantOp::create(b, b.getIntegerAttr(type, value));
  }
  Value word(uint32_t value) { return createNumber(b.getI32Type(), static_cast<int32_t>(value)); }
  Value low(Value wide) { return arith::TruncIOp::create(b, b.getI32Type(), wide); }
  Value high(Value wide) {
    Value shift = createNumber(b.getI64Type(), 32);
    return low(arith::ShRUIOp::create(b, wide, shift));
  }
  Value multiply(uint32_t factor, Value value) {
    Value wide = arith::ExtUIOp::create(b, b.getI64Type(), value);
    return arith::MulIOp::create(b, wide, createNumber(b.getI64Type(), factor));
  }
  Value exclusiveOr(Value l, Value r) { return arith::XOrIOp::create(b, l, r); }

  std::array<Value, 4> run(std::array<Value, 4> counter, Value key0, Value key1) {
    for (int round = 0; round < 10; ++round) {
      Value product0 = multiply(0xD2511F53u, counter[0]);
      Value product1 = multiply(0xCD9E8D57u, counter[2]);
      counter = {exclusiveOr(exclusiveOr(high(product1), counter[1]), key0), low(product1),
                 exclusiveOr(exclusiveOr(high(product0), counter[3]), key1), low(product0)};
      key0 = arith::AddIOp::create(b, key0, word(0x9E3779B9u));
      key1 = arith::AddIOp::create(b, key1, word(0xBB67AE85u));
    }
    return counter;
  }
};
} // namespace

std::array<Value, 4> mlir::memopt::createRandomWords(ImplicitLocOpBuilder &b,
                                                     const RandomStream &stream, Value element) {
  Philox philox{b};
  return philox.run({philox.low(element), philox.high(element), philox.low(stream.step),
                     philox.word(static_cast<uint32_t>(stream.id))},
                    philox.low(stream.seed), philox.high(stream.seed));
}

std::optional<uint32_t> mlir::memopt::getDropoutThreshold(double probability) {
  constexpr double words = 4294967296.0;
  double threshold = std::ceil(probability * words);
  // 2^32 is no 32-bit number.
  return threshold < words ? std::optional(static_cast<uint32_t>(threshold)) : std::nullopt;
}
