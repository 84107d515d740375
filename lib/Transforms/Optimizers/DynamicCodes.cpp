//===- DynamicCodes.cpp - numbers in 8 bits -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DynamicCodes.h"

#include "memopt/Transforms/Utils/ScalarFormula.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// The codes with e leading zeros.
struct Decade {
  double power;    ///< 10^-e
  int64_t buckets; ///< 2^r; also the code of the first one

  double getValue(int64_t code) const {
    return power *
           (0.1 + 0.9 * (static_cast<double>(code - buckets) + 0.5) / static_cast<double>(buckets));
  }
  double getFirst() const { return getValue(buckets); }
  double getLast() const { return getValue(2 * buckets - 1); }
};
} // namespace

static constexpr int kDecades = 7;

static Decade getDecade(int zeros, bool isSigned) {
  int fractionBits = (isSigned ? 6 : 7) - zeros;
  return {std::pow(10.0, -zeros), int64_t(1) << fractionBits};
}

int8_t mlir::memopt::getCodeOfOne(bool isSigned) { return isSigned ? -128 : 1; }

DenseElementsAttr mlir::memopt::getDynamicCodes(MLIRContext *context, bool isSigned) {
  SmallVector<float> values(256, 0.0f);
  for (int zeros = 0; zeros < kDecades; ++zeros) {
    Decade decade = getDecade(zeros, isSigned);
    for (int64_t code = decade.buckets; code < 2 * decade.buckets; ++code) {
      values[code] = static_cast<float>(decade.getValue(code));
      if (isSigned)
        values[256 - code] = -values[code];
    }
  }
  values[static_cast<uint8_t>(getCodeOfOne(isSigned))] = 1.0f;
  return DenseElementsAttr::get(RankedTensorType::get({256}, Float32Type::get(context)),
                                ArrayRef(values));
}

Value mlir::memopt::emitDecode(ImplicitLocOpBuilder &b, Value code, Value table) {
  Value byte = arith::ExtUIOp::create(b, b.getI64Type(), code);
  Value index = arith::IndexCastOp::create(b, b.getIndexType(), byte);
  return tensor::ExtractOp::create(b, table, index);
}

/// Within a decade codes are equally spaced, so the nearest one is found by rounding down
/// `x * slope + start`; between decades the middle of the neighbours decides.
Value mlir::memopt::emitEncode(ImplicitLocOpBuilder &b, Value x, bool isSigned) {
  Formula f{b, b.getF32Type()};
  Type integer = b.getI32Type();
  auto greater = [&](Value a, Value c) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, a, c);
  };
  auto select = [&](Value condition, Value a, Value c) -> Value {
    return arith::SelectOp::create(b, condition, a, c);
  };
  Value magnitude = math::AbsFOp::create(b, x), slope, buckets;
  for (int zeros = kDecades - 1; zeros >= 0; --zeros) {
    Decade decade = getDecade(zeros, isSigned);
    auto count = static_cast<double>(decade.buckets);
    Value ownSlope = f.number(count / (0.9 * decade.power)), own = f.number(count);
    if (!slope) {
      slope = ownSlope;
      buckets = own;
      continue;
    }
    double middle = (getDecade(zeros + 1, isSigned).getLast() + decade.getFirst()) / 2;
    Value isAbove = greater(magnitude, f.number(middle));
    slope = select(isAbove, ownSlope, slope);
    buckets = select(isAbove, own, buckets);
  }
  // code = buckets + (magnitude / power - 0.1) / 0.9 * buckets, within the decade.
  Value code = f.add(f.mul(magnitude, slope), f.scale(8.0 / 9.0, buckets));
  Value last = f.sub(f.add(buckets, buckets), f.number(1.0));
  code = arith::MinNumFOp::create(b, arith::MaxNumFOp::create(b, code, buckets), last);
  code = arith::FPToSIOp::create(b, integer, code);
  double smallest = getDecade(kDecades - 1, isSigned).getFirst() / 2;
  code = select(greater(magnitude, f.number(smallest)), code, createIntConstant(b, integer, 0));
  if (isSigned) {
    Value negative = arith::SubIOp::create(b, createIntConstant(b, integer, 0), code);
    code = select(greater(f.number(0.0), x), negative, code);
  }
  double largest = (getDecade(0, isSigned).getLast() + 1.0) / 2;
  Value one = createIntConstant(b, integer, getCodeOfOne(isSigned));
  code = select(greater(x, f.number(largest)), one, code);
  return arith::TruncIOp::create(b, b.getI8Type(), code);
}
