//===- ActivationCodes.cpp - activations in 8 bits --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Kernels/ActivationCodes.h"

#include "memopt/Dialect/Formula.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mlir::memopt;

static constexpr int64_t kLeastBlock = 64;
/// The largest numbers of both forms.
static constexpr double kLargestInt8 = 127, kLargestFP8 = 448;
/// The smallest normal number of fp8 is 2^-6; below it numbers are multiples of 2^-9.
static constexpr double kSmallestNormal = 0x1p-6, kDenormalUnit = 0x1p-9;
/// Places of f32's mantissa that fp8 lacks, and what its exponent is less, at its place in fp8.
static constexpr int64_t kLostBits = 20, kExponentShift = (127 - 7) << 3;

std::optional<ActivationForm> mlir::memopt::parseActivationForm(StringRef name) {
  if (name == "bf16")
    return ActivationForm::BF16;
  if (name == "int8")
    return ActivationForm::Int8;
  if (name == "fp8")
    return ActivationForm::FP8;
  return std::nullopt;
}

FailureOr<std::optional<ActivationForm>> mlir::memopt::readActivationForm(Operation *op,
                                                                          StringRef name) {
  std::optional<ActivationForm> form = parseActivationForm(name);
  if (!form && name != "f32")
    return op->emitError()
           << "expected f32, bf16, int8 or fp8 as the type of kept activations, found '" << name
           << "'";
  return form;
}

bool mlir::memopt::isWide(Type elementType, ActivationForm form) {
  return elementType.isF32() || (form != ActivationForm::BF16 && elementType.isBF16());
}

int64_t KeptActivation::getBytes() const {
  return getTensorBytes(codes.getType()) + (scales ? getTensorBytes(scales.getType()) : 0);
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

static Value createNumber(ImplicitLocOpBuilder &b, int64_t value) {
  return createIntConstant(b, b.getI32Type(), value);
}

/// In [0, limit], NaN as 0.
static Value clamp(ImplicitLocOpBuilder &b, Value x, double limit) {
  Formula f{b, b.getF32Type()};
  return arith::MinNumFOp::create(b, arith::MaxNumFOp::create(b, x, f.number(0)), f.number(limit));
}

/// In [0, 1), of 24 bits.
static Value createUniform(ImplicitLocOpBuilder &b, Value word) {
  Value bits = arith::ShRUIOp::create(b, word, createNumber(b, 8));
  Formula f{b, b.getF32Type()};
  return f.scale(0x1p-24, arith::SIToFPOp::create(b, b.getF32Type(), bits));
}

/// The code of a number in [-127, 127].
static Value encodeInt8(ImplicitLocOpBuilder &b, Value x, Value word) {
  Formula f{b, b.getF32Type()};
  // Above 0, where conversion rounds down.
  Value shifted = f.add(f.add(x, f.number(128)), createUniform(b, word));
  Value code = arith::FPToSIOp::create(b, b.getI32Type(), clamp(b, shifted, 255));
  return arith::SubIOp::create(b, code, createNumber(b, 128));
}

/// The code of a number in [-448, 448].
static Value encodeFP8(ImplicitLocOpBuilder &b, Value x, Value word) {
  Formula f{b, b.getF32Type()};
  Type integer = b.getI32Type();
  Value magnitude = clamp(b, math::AbsFOp::create(b, x), kLargestFP8);
  Value units = f.add(f.scale(1 / kDenormalUnit, magnitude), createUniform(b, word));
  Value denormal = arith::FPToSIOp::create(b, integer, clamp(b, units, 8));
  // A random number of the lost places carries into those that stay.
  Value noise = arith::AndIOp::create(b, word, createNumber(b, (int64_t(1) << kLostBits) - 1));
  Value pattern = arith::AddIOp::create(b, arith::BitcastOp::create(b, integer, magnitude), noise);
  Value normal =
      arith::SubIOp::create(b, arith::ShRUIOp::create(b, pattern, createNumber(b, kLostBits)),
                            createNumber(b, kExponentShift));
  normal = arith::MinSIOp::create(b, normal, createNumber(b, 0x7e));
  Value isNormal =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGE, magnitude, f.number(kSmallestNormal));
  Value code = arith::SelectOp::create(b, isNormal, normal, denormal);
  Value isNegative = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, f.number(0));
  Value negative = arith::OrIOp::create(b, code, createNumber(b, 0x80));
  return arith::SelectOp::create(b, isNegative, negative, code);
}

static Value decodeFP8(ImplicitLocOpBuilder &b, Value code) {
  Formula f{b, b.getF32Type()};
  Value bits = arith::ExtUIOp::create(b, b.getI32Type(), code);
  Value magnitude = arith::AndIOp::create(b, bits, createNumber(b, 0x7f));
  Value denormal = f.scale(kDenormalUnit, arith::SIToFPOp::create(b, b.getF32Type(), magnitude));
  Value pattern =
      arith::ShLIOp::create(b, arith::AddIOp::create(b, magnitude, createNumber(b, kExponentShift)),
                            createNumber(b, kLostBits));
  Value normal = arith::BitcastOp::create(b, b.getF32Type(), pattern);
  Value isDenormal =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, magnitude, createNumber(b, 8));
  Value number = arith::SelectOp::create(b, isDenormal, denormal, normal);
  Value isNegative =
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, bits, createNumber(b, 0x80));
  return arith::SelectOp::create(b, isNegative, f.sub(f.number(0), number), number);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// Dimensions that count blocks.
static int64_t countBlockDims(ArrayRef<int64_t> shape) {
  auto dims = static_cast<int64_t>(shape.size());
  for (int64_t elements = 1; dims > 0 && elements < kLeastBlock;)
    elements *= shape[--dims];
  return dims;
}

static SmallVector<int64_t> listDims(int64_t begin, int64_t end) {
  return llvm::to_vector(llvm::seq(begin, end));
}

static Read readAll(ImplicitLocOpBuilder &b, Value value) {
  return {value, b.getMultiDimIdentityMap(tensorType(value).getRank())};
}

static Value convert(ImplicitLocOpBuilder &b, Value value, Type elementType) {
  return createPointwise(b, tensorType(value).getShape(), readAll(b, value), elementType,
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           return SmallVector<Value>{convertTo(inner, x[0], elementType)};
                         })[0];
}

static Value createElementNumber(ImplicitLocOpBuilder &b, ArrayRef<int64_t> shape) {
  Value number = createIntConstant(b, b.getIndexType(), 0);
  for (auto [dim, stride] : llvm::enumerate(computeStrides(shape)))
    number = arith::AddIOp::create(
        b, number,
        arith::MulIOp::create(b, linalg::IndexOp::create(b, dim),
                              createIntConstant(b, b.getIndexType(), stride)));
  return convertTo(b, number, b.getI64Type());
}

static Value findLargest(ImplicitLocOpBuilder &b, Value wide) {
  ArrayRef<int64_t> shape = tensorType(wide).getShape();
  int64_t blockDims = countBlockDims(shape);
  return createReduction(b, shape, listDims(blockDims, tensorType(wide).getRank()),
                         readAll(b, wide), {{ReduceKind::Max, b.getF32Type()}},
                         [](ImplicitLocOpBuilder &inner, ValueRange x) {
                           Value single = convertTo(inner, x[0], inner.getF32Type());
                           return SmallVector<Value>{math::AbsFOp::create(inner, single)};
                         })[0];
}

KeptActivation mlir::memopt::narrowActivation(ImplicitLocOpBuilder &b, Value wide,
                                              ActivationForm form, const RoundingWords &words) {
  if (form == ActivationForm::BF16)
    return {convert(b, wide, b.getBF16Type()), {}};
  RankedTensorType type = tensorType(wide);
  Value scales = findLargest(b, wide);
  MLIRContext *context = b.getContext();
  AffineMap scalar = AffineMap::get(type.getRank(), 0, context);
  AffineMap blocks = selectDims(context, type.getRank(), listDims(0, tensorType(scales).getRank()));
  double largest = form == ActivationForm::Int8 ? kLargestInt8 : kLargestFP8;
  auto encode = [&](ImplicitLocOpBuilder &inner, ValueRange x) {
    Formula f{inner, inner.getF32Type()};
    Type wideInteger = inner.getI64Type();
    Value zero = createIntConstant(inner, wideInteger, 0);
    Value word =
        RandomWordOp::create(inner, inner.getI32Type(), zero,
                             createElementNumber(inner, type.getShape()), x[2], x[3], words.id);
    // A block of zeros has scale zero; any divisor will do.
    Value scale = arith::MaximumFOp::create(inner, x[1], f.number(1e-30));
    Value number =
        f.mul(f.div(convertTo(inner, x[0], inner.getF32Type()), scale), f.number(largest));
    Value code = form == ActivationForm::Int8 ? encodeInt8(inner, number, word)
                                              : encodeFP8(inner, number, word);
    return SmallVector<Value>{arith::TruncIOp::create(inner, inner.getI8Type(), code)};
  };
  Value codes = createPointwise(
      b, type.getShape(),
      {readAll(b, wide), {scales, blocks}, {words.seed, scalar}, {words.step, scalar}},
      ArrayRef<Type>{b.getI8Type()}, encode)[0];
  return {codes, scales};
}

Value mlir::memopt::widenActivation(ImplicitLocOpBuilder &b, const KeptActivation &kept,
                                    ActivationForm form, Type elementType) {
  if (form == ActivationForm::BF16)
    return convert(b, kept.codes, elementType);
  RankedTensorType type = tensorType(kept.codes);
  AffineMap blocks =
      selectDims(b.getContext(), type.getRank(), listDims(0, tensorType(kept.scales).getRank()));
  auto decode = [&](ImplicitLocOpBuilder &inner, ValueRange x) {
    Formula f{inner, inner.getF32Type()};
    bool isInt8 = form == ActivationForm::Int8;
    Value number = isInt8 ? Value(arith::SIToFPOp::create(inner, inner.getF32Type(), x[0]))
                          : decodeFP8(inner, x[0]);
    Value unit = f.scale(1 / (isInt8 ? kLargestInt8 : kLargestFP8), x[1]);
    return SmallVector<Value>{convertTo(inner, f.mul(number, unit), elementType)};
  };
  return createPointwise(b, type.getShape(), {readAll(b, kept.codes), {kept.scales, blocks}},
                         ArrayRef<Type>{elementType}, decode)[0];
}
