//===- LowerToLinalgRandom.cpp - counter-based random bits --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC'11) spelled out in
// integer arithmetic. memopt-runtime/Philox.h is the definition; the two must agree bit by bit.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// 32-bit words in 64-bit lanes would waste half of them: words are i32, products i64.
struct Philox {
  ImplicitLocOpBuilder &b;

  Value word(uint32_t value) {
    return createIntConstant(b, b.getI32Type(), static_cast<int32_t>(value));
  }
  Value low(Value wide) { return arith::TruncIOp::create(b, b.getI32Type(), wide); }
  Value high(Value wide) {
    Value shift = createIntConstant(b, b.getI64Type(), 32);
    return low(arith::ShRUIOp::create(b, wide, shift));
  }
  Value multiply(uint32_t factor, Value value) {
    Value wide = arith::ExtUIOp::create(b, b.getI64Type(), value);
    return arith::MulIOp::create(b, wide, createIntConstant(b, b.getI64Type(), factor));
  }
  Value exclusiveOr(Value l, Value r) { return arith::XOrIOp::create(b, l, r); }

  /// The first word of the result.
  Value run(std::array<Value, 4> counter, Value key0, Value key1) {
    for (int round = 0; round < 10; ++round) {
      Value product0 = multiply(0xD2511F53u, counter[0]);
      Value product1 = multiply(0xCD9E8D57u, counter[2]);
      counter = {exclusiveOr(exclusiveOr(high(product1), counter[1]), key0), low(product1),
                 exclusiveOr(exclusiveOr(high(product0), counter[3]), key1), low(product0)};
      key0 = arith::AddIOp::create(b, key0, word(0x9E3779B9u));
      key1 = arith::AddIOp::create(b, key1, word(0xBB67AE85u));
    }
    return counter[0];
  }
};
} // namespace

/// Row-major number of the current point of `shape`.
static Value createElementNumber(ImplicitLocOpBuilder &b, ArrayRef<int64_t> shape) {
  Value number = createIntConstant(b, b.getIndexType(), 0);
  for (auto [dim, size] : llvm::enumerate(shape)) {
    Value scaled = arith::MulIOp::create(b, number, createIntConstant(b, b.getIndexType(), size));
    number = arith::AddIOp::create(b, scaled, linalg::IndexOp::create(b, dim));
  }
  return convertTo(b, number, b.getI64Type());
}

static Lowered lowerDropoutMask(DropoutMaskOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorTypeOf(op.getResult());
  AffineMap scalarMap = AffineMap::get(type.getRank(), 0, b.getContext());
  double threshold = std::ceil(op.getProbabilityAttr().getValueAsDouble() * 4294967296.0);
  return createPointwise(
      b, type.getShape(), {{op.getSeed(), scalarMap}, {op.getStep(), scalarMap}},
      {type.getElementType()}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Philox philox{inner};
        Value seed = convertTo(inner, x[0], inner.getI64Type());
        Value step = convertTo(inner, x[1], inner.getI64Type());
        Value element = createElementNumber(inner, type.getShape());
        Value bits = philox.run({philox.low(element), philox.high(element), philox.low(step),
                                 philox.word(static_cast<uint32_t>(op.getIdAttr().getInt()))},
                                philox.low(seed), philox.high(seed));
        // A threshold of 2^32 keeps nothing and is no 32-bit number.
        if (threshold >= 4294967296.0)
          return SmallVector<Value>{createIntConstant(inner, inner.getI1Type(), 0)};
        return SmallVector<Value>{arith::CmpIOp::create(
            inner, arith::CmpIPredicate::uge, bits, philox.word(static_cast<uint32_t>(threshold)))};
      });
}

void memopt::populateRandomLowerings(LinalgLowerings &lowerings) {
  lowerings.add<DropoutMaskOp>(lowerDropoutMask);
}
