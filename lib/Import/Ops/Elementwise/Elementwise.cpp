//===- Elementwise.cpp - arithmetic with PyTorch's promotion and broadcasting -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"
#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Constants and conversions
//===----------------------------------------------------------------------===//

Value memopt::pt2::splat(mlir::ImplicitLocOpBuilder &b, mlir::Type type, double value) {
  Scalar scalar;
  scalar.isFloat = true;
  scalar.real = value;
  return splat(b, type, scalar);
}

/// Numbers beyond 64 bits come from files that contradict themselves; they give zero.
static uint64_t toInteger(const Scalar &value) {
  if (!value.isFloat)
    return value.integer;
  return std::abs(value.real) < 9.2e18 ? int64_t(value.real) : 0;
}

Value memopt::pt2::splat(mlir::ImplicitLocOpBuilder &b, mlir::Type type, const Scalar &value) {
  auto tensor = cast<RankedTensorType>(type);
  mlir::Type element = tensor.getElementType();
  mlir::TypedAttr attr;
  if (isa<mlir::FloatType>(element))
    attr = b.getFloatAttr(element, value.asDouble());
  else if (element.isInteger(1))
    attr = b.getBoolAttr(value.isFloat ? value.real != 0 : value.integer != 0);
  else
    attr = mlir::IntegerAttr::get(element, APInt(element.getIntOrFloatBitWidth(), toInteger(value),
                                                 /*isSigned=*/true, /*implicitTrunc=*/true));
  return arith::ConstantOp::create(b, mlir::DenseElementsAttr::get(tensor, attr));
}

Value memopt::pt2::multiply(mlir::ImplicitLocOpBuilder &b, Value x, Value y) {
  return mlir::arith::MulFOp::create(b, x, y);
}

static bool isUnsigned(DType type) { return type == DType::U8 || type == DType::Bool; }

Value memopt::pt2::convert(mlir::ImplicitLocOpBuilder &b, Value value, DType from, DType to) {
  if (from == to || (from == DType::U8 && to == DType::I8) ||
      (from == DType::I8 && to == DType::U8))
    return value;
  auto shaped = cast<RankedTensorType>(value.getType());
  auto withElement = [&](mlir::Type element) { return shaped.clone(element); };
  mlir::Type target = withElement(getElementType(b, to));
  if (to == DType::Bool) {
    Value zero = splat(b, shaped, 0.0);
    if (isFloat(from))
      return arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, value, zero);
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, value, zero);
  }
  // Halves meet everything else in f32, where PyTorch rounds on the way, too.
  if ((isHalf(from) && to != DType::F32) || (isHalf(to) && from != DType::F32))
    return convert(b, convert(b, value, from, DType::F32), DType::F32, to);
  if (isFloat(from) && isFloat(to)) {
    if (getByteWidth(from) < getByteWidth(to))
      return arith::ExtFOp::create(b, target, value);
    return arith::TruncFOp::create(b, target, value);
  }
  // Small integers wrap around, as those do that PyTorch goes through.
  if (isFloat(from) && to == DType::U8)
    return convert(b, convert(b, value, from, DType::I64), DType::I64, to);
  if (isFloat(from) && getByteWidth(to) < 4)
    return convert(b, convert(b, value, from, DType::I32), DType::I32, to);
  if (isFloat(from))
    return arith::FPToSIOp::create(b, target, value);
  if (isFloat(to))
    return isUnsigned(from) ? arith::UIToFPOp::create(b, target, value).getResult()
                            : arith::SIToFPOp::create(b, target, value).getResult();
  if (getByteWidth(to) < getByteWidth(from))
    return arith::TruncIOp::create(b, target, value);
  return isUnsigned(from) ? arith::ExtUIOp::create(b, target, value).getResult()
                          : arith::ExtSIOp::create(b, target, value).getResult();
}

Tensor memopt::pt2::castTo(OpContext &op, const Tensor &from, DType to) {
  if (from.dtype == to)
    return from;
  if (from.constant && !isFloat(to))
    return op.wrap(ConstantTensor::map(to, {from.constant},
                                       [&](ArrayRef<int64_t> v) { return wrapTo(to, v[0]); }));
  return op.wrap(to, from.sizes, convert(op.b, op.getCompact(from), from.dtype, to));
}

//===----------------------------------------------------------------------===//
// Promotion
//===----------------------------------------------------------------------===//

/// bool < integers < floating point; inside a kind the wider one wins.
static int kindOf(DType type) { return type == DType::Bool ? 0 : isFloat(type) ? 2 : 1; }

static DType widen(DType a, DType b) {
  if (a == b)
    return a;
  if (kindOf(a) != kindOf(b))
    return kindOf(a) < kindOf(b) ? b : a;
  if (isFloat(a) && getByteWidth(a) == getByteWidth(b))
    return DType::F32; // f16 with bf16
  if (!isFloat(a) && getByteWidth(a) == getByteWidth(b))
    return DType::I16; // u8 with i8
  return getByteWidth(a) < getByteWidth(b) ? b : a;
}

/// A later rank of operands (0: with dimensions, 1: without, 2: numbers) only counts when its kind
/// is higher than what the earlier ranks gave.
DType memopt::pt2::promote(ArrayRef<Operand> operands) {
  std::optional<DType> ranks[3];
  auto join = [&](int rank, DType type) {
    ranks[rank] = ranks[rank] ? widen(*ranks[rank], type) : type;
  };
  for (const Operand &operand : operands) {
    if (const Tensor *tensor = std::get_if<Tensor>(&operand)) {
      join(tensor->sizes.empty() ? 1 : 0, tensor->dtype);
      continue;
    }
    const Scalar &scalar = std::get<Scalar>(operand);
    join(2, scalar.isFloat ? DType::F32 : scalar.isBool ? DType::Bool : DType::I64);
  }
  std::optional<DType> result;
  for (const std::optional<DType> &rank : ranks)
    if (rank && (!result || kindOf(*rank) > kindOf(*result)))
      result = rank;
  return *result;
}

//===----------------------------------------------------------------------===//
// Elementwise operators
//===----------------------------------------------------------------------===//

static Expected<Constant> evaluateElementwise(OpContext &op, ArrayRef<Operand> operands,
                                              ArrayRef<int64_t> sizes, ArrayRef<DType> compute,
                                              DType result, Evaluate evaluate) {
  SmallVector<Constant> known;
  for (auto [operand, type] : zip_equal(operands, compute)) {
    const Tensor *tensor = std::get_if<Tensor>(&operand);
    if (!tensor) {
      known.push_back(ConstantTensor::splat(type, sizes, std::get<Scalar>(operand).integer));
      continue;
    }
    ASSIGN_OR_RETURN(Tensor expanded, expand(op, *tensor, sizes));
    known.push_back(expanded.constant);
  }
  Shape extents(sizes.size(), 1);
  for (const Constant &operand : known)
    for (auto [extent, other] : zip_equal(extents, operand->getExtents()))
      extent = std::max(extent, other);
  RETURN_IF_ERROR(checkFoldable(op, extents));
  return ConstantTensor::map(result, known, [&](ArrayRef<int64_t> values) {
    SmallVector<int64_t, 4> converted;
    for (auto [value, type] : zip_equal(values, compute))
      converted.push_back(wrapTo(type, value));
    return wrapTo(result, evaluate(converted));
  });
}

/// Known integers and booleans stay known as long as nothing floating-point comes in.
static bool isKnown(ArrayRef<Operand> operands, ArrayRef<DType> compute, DType result) {
  bool anyTensor = false;
  for (const Operand &operand : operands) {
    if (const Tensor *tensor = std::get_if<Tensor>(&operand)) {
      if (!tensor->constant)
        return false;
      anyTensor = true;
    } else if (std::get<Scalar>(operand).isFloat) {
      return false;
    }
  }
  return anyTensor && none_of(compute, isFloat) && !isFloat(result);
}

Expected<Tensor> memopt::pt2::elementwise(OpContext &op, ArrayRef<Operand> operands, DType compute,
                                          DType result, Build build, Evaluate evaluate) {
  return elementwise(op, operands, SmallVector<DType>(operands.size(), compute), result, build,
                     evaluate);
}

Expected<Tensor> memopt::pt2::elementwise(OpContext &op, ArrayRef<Operand> operands,
                                          ArrayRef<DType> compute, DType result, Build build,
                                          Evaluate evaluate) {
  Shape sizes, extents;
  for (const Operand &operand : operands)
    if (const Tensor *tensor = std::get_if<Tensor>(&operand)) {
      ASSIGN_OR_RETURN(sizes, broadcastShapes(op, sizes, tensor->sizes));
      ASSIGN_OR_RETURN(extents, broadcastShapes(op, extents, tensor->extents()));
    }
  if (is_contained(sizes, 0))
    return makeEmpty(op, result, sizes);
  if (evaluate && isKnown(operands, compute, result)) {
    ASSIGN_OR_RETURN(Constant known,
                     evaluateElementwise(op, operands, sizes, compute, result, evaluate));
    return op.wrap(known);
  }
  SmallVector<Value> values;
  for (auto [operand, type] : zip_equal(operands, compute)) {
    if (const Tensor *tensor = std::get_if<Tensor>(&operand)) {
      Value value = convert(op.b, op.getCompact(*tensor), tensor->dtype, type);
      values.push_back(broadcastValue(op.b, value, extents));
    } else {
      values.push_back(splat(op.b, op.tensorType(type, extents), std::get<Scalar>(operand)));
    }
  }
  return op.wrap(result, sizes, build(op.b, values));
}

Expected<Tensor> memopt::pt2::select(OpContext &op, const Tensor &condition, const Operand &yes,
                                     const Operand &no, DType type) {
  return elementwise(
      op, {condition, yes, no}, ArrayRef<DType>{DType::Bool, type, type}, type,
      [](mlir::ImplicitLocOpBuilder &b, mlir::ValueRange v) -> Value {
        return arith::SelectOp::create(b, v[0], v[1], v[2]);
      },
      [](ArrayRef<int64_t> v) { return v[0] ? v[1] : v[2]; });
}

Error memopt::pt2::mapElements(OpContext &op, ArrayRef<Operand> operands, FormulaFn formula,
                               Evaluate evaluate) {
  DType type = op.resultMeta(0).dtype, compute = getArithmeticType(type);
  ASSIGN_OR_RETURN(Tensor result,
                   elementwise(op, operands, compute, compute, inBuild(formula), evaluate));
  return setResult(op, castTo(op, result, type));
}

Error memopt::pt2::mapReals(OpContext &op, ArrayRef<Operand> operands, FormulaFn formula) {
  RETURN_IF_ERROR(op.checkReal(op.resultMeta(0).dtype));
  return mapElements(op, operands, formula);
}

Error memopt::pt2::mapFloat(OpContext &op, Build build, StringRef parameter) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  return setResult(op, elementwise(op, {op.tensor(parameter)}, type, type, build));
}

Error memopt::pt2::setResult(OpContext &op, Expected<Tensor> result) {
  if (!result)
    return result.takeError();
  if (op.getNumResults() != 1)
    return op.error("expected one result, found " + Twine(op.getNumResults()));
  op.setResult(0, std::move(*result));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Reductions and random bits
//===----------------------------------------------------------------------===//

Value memopt::pt2::reduceValue(mlir::ImplicitLocOpBuilder &b, Value value,
                               mlir::memopt::ReduceKind kind, ArrayRef<int64_t> dimensions,
                               bool keep) {
  auto type = cast<RankedTensorType>(value.getType());
  Shape reduced, kept(type.getShape());
  for (auto [dim, size] : enumerate(type.getShape()))
    if (is_contained(dimensions, int64_t(dim)))
      kept[dim] = 1;
    else
      reduced.push_back(size);
  if (!dimensions.empty())
    value = mlir::memopt::ReduceOp::create(b, RankedTensorType::get(reduced, type.getElementType()),
                                           value, kind, dimensions);
  return keep ? reshapeValue(b, value, kept) : value;
}

Value memopt::pt2::countAlong(mlir::ImplicitLocOpBuilder &b, Value value,
                              ArrayRef<int64_t> dimensions) {
  mlir::Type element = cast<RankedTensorType>(value.getType()).getElementType();
  return mlir::memopt::CountOp::create(b, RankedTensorType::get({}, element), value, dimensions);
}

Value memopt::pt2::anyOf(mlir::ImplicitLocOpBuilder &b, Value booleans,
                         ArrayRef<int64_t> dimensions, bool keep) {
  Value numbers = convert(b, booleans, DType::Bool, DType::I32);
  Value most = reduceValue(b, numbers, mlir::memopt::ReduceKind::Max, dimensions, keep);
  return convert(b, most, DType::I32, DType::Bool);
}

Expected<Value> memopt::pt2::applyReduction(OpContext &op, Value losses, int64_t reduction) {
  auto type = cast<RankedTensorType>(losses.getType());
  if (reduction == 0)
    return losses;
  if (reduction != 1 && reduction != 2)
    return op.error("argument 'reduction': expected 0, 1 or 2, found " + Twine(reduction));
  SmallVector<int64_t> all = to_vector(seq<int64_t>(0, type.getRank()));
  Value total = reduceValue(op.b, losses, mlir::memopt::ReduceKind::Add, all);
  if (reduction == 2)
    return total;
  return arith::DivFOp::create(op.b, total, countAlong(op.b, losses, all)).getResult();
}

bool memopt::pt2::dropoutIsOn(OpContext &op) {
  return op.importer.getOptions().dropout && !isEvaluation(op);
}

bool memopt::pt2::isEvaluation(OpContext &op) { return op.importer.overridesTraining(); }

RandomState memopt::pt2::nextRandomState(OpContext &op) {
  return op.importer.nextRandomState(op.b);
}

Tensor memopt::pt2::dropout(OpContext &op, const Tensor &input, double probability, Value *mask) {
  Value value = op.get(input);
  auto type = cast<RankedTensorType>(value.getType());
  RandomState random = nextRandomState(op);
  Value kept = mlir::memopt::DropoutMaskOp::create(op.b, type.clone(op.b.getI1Type()), random.seed,
                                                   random.step, op.b.getF64FloatAttr(probability),
                                                   op.b.getI64IntegerAttr(random.id));
  if (mask)
    *mask = kept;
  Value scaled = arith::MulFOp::create(op.b, value, splat(op.b, type, 1.0 / (1.0 - probability)));
  return op.wrap(input.dtype, arith::SelectOp::create(op.b, kept, scaled, splat(op.b, type, 0.0)));
}
