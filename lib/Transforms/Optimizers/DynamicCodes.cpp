//===- DynamicCodes.cpp - numbers in 8 and 4 bits -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DynamicCodes.h"

#include "memopt/Dialect/Formula.h"

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

static int countDecades(unsigned bits) { return static_cast<int>(bits) - 1; }

static Decade getDecade(int zeros, StateCode code) {
  int fractionBits = static_cast<int>(code.bits) - (code.isSigned ? 2 : 1) - zeros;
  return {std::pow(10.0, -zeros), int64_t(1) << fractionBits};
}

int8_t mlir::memopt::getCodeOfOne(StateCode code) {
  if (code.bits == 4)
    return code.isSigned ? -8 : 15;
  return code.isSigned ? -128 : 1;
}

int8_t mlir::memopt::getByteOfOne(StateCode code) {
  int8_t one = getCodeOfOne(code);
  return code.bits == 8 ? one : static_cast<int8_t>((one & 15) | (one & 15) << 4);
}

DenseElementsAttr mlir::memopt::getStateCodes(MLIRContext *context, StateCode form) {
  int64_t count = int64_t(1) << form.bits;
  SmallVector<float> values(count, 0.0f);
  for (int64_t code = 0; form.isLinear() && code < count; ++code)
    values[code] = static_cast<float>(code + 1) / static_cast<float>(count);
  for (int zeros = 0; !form.isLinear() && zeros < countDecades(form.bits); ++zeros) {
    Decade decade = getDecade(zeros, form);
    for (int64_t code = decade.buckets; code < 2 * decade.buckets; ++code) {
      values[code] = static_cast<float>(decade.getValue(code));
      if (form.isSigned)
        values[count - code] = -values[code];
    }
  }
  values[getCodeOfOne(form) & (count - 1)] = 1.0f;
  return DenseElementsAttr::get(RankedTensorType::get({count}, Float32Type::get(context)),
                                ArrayRef(values));
}

/// Four bits for each half of a byte.
static Value getShift(ImplicitLocOpBuilder &b, Value half, Type type) {
  return arith::MulIOp::create(b, convertTo(b, half, type), createIntConstant(b, type, 4));
}

Value mlir::memopt::emitDecode(ImplicitLocOpBuilder &b, Value code, Value table, Value half) {
  Value byte = arith::ExtUIOp::create(b, b.getI64Type(), code);
  if (half) {
    byte = arith::ShRUIOp::create(b, byte, getShift(b, half, byte.getType()));
    byte = arith::AndIOp::create(b, byte, createIntConstant(b, byte.getType(), 15));
  }
  Value index = arith::IndexCastOp::create(b, b.getIndexType(), byte);
  return tensor::ExtractOp::create(b, table, index);
}

/// Of 16 values, equally spaced and without 0: that of the middle of the nearest.
static Value encodeLinearly(ImplicitLocOpBuilder &b, Value x) {
  Formula f{b, b.getF32Type()};
  Value code = f.sub(f.scale(16.0, x), f.number(0.5));
  code =
      arith::MinNumFOp::create(b, arith::MaxNumFOp::create(b, code, f.number(0.0)), f.number(15.0));
  return arith::FPToSIOp::create(b, b.getI32Type(), code);
}

/// Within a decade codes are equally spaced, so the nearest one is found by rounding down
/// `x * slope + start`; between decades the middle of the neighbours decides.
static Value encodeDynamically(ImplicitLocOpBuilder &b, Value x, StateCode form) {
  Formula f{b, b.getF32Type()};
  Type integer = b.getI32Type();
  auto greater = [&](Value a, Value c) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, a, c);
  };
  auto select = [&](Value condition, Value a, Value c) -> Value {
    return arith::SelectOp::create(b, condition, a, c);
  };
  Value magnitude = math::AbsFOp::create(b, x), slope, buckets;
  int decades = countDecades(form.bits);
  for (int zeros = decades - 1; zeros >= 0; --zeros) {
    Decade decade = getDecade(zeros, form);
    auto count = static_cast<double>(decade.buckets);
    Value ownSlope = f.number(count / (0.9 * decade.power)), own = f.number(count);
    if (!slope) {
      slope = ownSlope;
      buckets = own;
      continue;
    }
    double middle = (getDecade(zeros + 1, form).getLast() + decade.getFirst()) / 2;
    Value isAbove = greater(magnitude, f.number(middle));
    slope = select(isAbove, ownSlope, slope);
    buckets = select(isAbove, own, buckets);
  }
  // code = buckets + (magnitude / power - 0.1) / 0.9 * buckets, within the decade.
  Value code = f.add(f.mul(magnitude, slope), f.scale(8.0 / 9.0, buckets));
  Value last = f.sub(f.add(buckets, buckets), f.number(1.0));
  code = arith::MinNumFOp::create(b, arith::MaxNumFOp::create(b, code, buckets), last);
  code = arith::FPToSIOp::create(b, integer, code);
  double smallest = getDecade(decades - 1, form).getFirst() / 2;
  code = select(greater(magnitude, f.number(smallest)), code, createIntConstant(b, integer, 0));
  if (form.isSigned) {
    Value negative = arith::SubIOp::create(b, createIntConstant(b, integer, 0), code);
    code = select(greater(f.number(0.0), x), negative, code);
  }
  double largest = (getDecade(0, form).getLast() + 1.0) / 2;
  Value one = createIntConstant(b, integer, getCodeOfOne(form));
  return select(greater(x, f.number(largest)), one, code);
}

Value mlir::memopt::emitEncode(ImplicitLocOpBuilder &b, Value x, StateCode form, Value half) {
  Value code = form.isLinear() ? encodeLinearly(b, x) : encodeDynamically(b, x, form);
  if (half) {
    code = arith::AndIOp::create(b, code, createIntConstant(b, code.getType(), 15));
    code = arith::ShLIOp::create(b, code, getShift(b, half, code.getType()));
  }
  return arith::TruncIOp::create(b, b.getI8Type(), code);
}
