//===- Comparisons.cpp - comparisons, logic, selection -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

//===----------------------------------------------------------------------===//
// Comparisons
//===----------------------------------------------------------------------===//

/// Ordered: false where a NaN takes part, except for "unequal".
template <arith::CmpFPredicate real, arith::CmpIPredicate integer>
static Error lowerCompare(OpContext &op) {
  SmallVector<Operand> operands{op.tensor("self"), op.operand("other")};
  DType type = promote(operands);
  return setResult(
      op, elementwise(
              op, operands, type, DType::Bool,
              [&](Builder &b, ValueRange v) -> Value {
                if (isFloat(type))
                  return arith::CmpFOp::create(b, real, v[0], v[1]);
                // true is 1 and not -1, and bytes may be unsigned
                auto predicate = integer;
                if (type == DType::Bool || type == DType::U8)
                  predicate = integer == arith::CmpIPredicate::slt   ? arith::CmpIPredicate::ult
                              : integer == arith::CmpIPredicate::sle ? arith::CmpIPredicate::ule
                              : integer == arith::CmpIPredicate::sgt ? arith::CmpIPredicate::ugt
                              : integer == arith::CmpIPredicate::sge ? arith::CmpIPredicate::uge
                                                                     : integer;
                return arith::CmpIOp::create(b, predicate, v[0], v[1]);
              },
              [](ArrayRef<int64_t> v) -> int64_t {
                switch (integer) {
                case arith::CmpIPredicate::eq:
                  return v[0] == v[1];
                case arith::CmpIPredicate::ne:
                  return v[0] != v[1];
                case arith::CmpIPredicate::slt:
                  return v[0] < v[1];
                case arith::CmpIPredicate::sle:
                  return v[0] <= v[1];
                case arith::CmpIPredicate::sgt:
                  return v[0] > v[1];
                default:
                  return v[0] >= v[1];
                }
              }));
}

template <typename OpTy> static Error lowerClassify(OpContext &op) {
  Tensor self = op.tensor("self");
  if (!isFloat(self.dtype))
    return setResult(op, op.wrap(ConstantTensor::splat(DType::Bool, self.sizes,
                                                       std::is_same_v<OpTy, math::IsFiniteOp>)));
  return setResult(
      op, elementwise(op, {self}, self.dtype, DType::Bool,
                      [](Builder &b, ValueRange v) -> Value { return OpTy::create(b, v[0]); }));
}

//===----------------------------------------------------------------------===//
// Logic
//===----------------------------------------------------------------------===//

enum class Logic { And, Or, Xor };

/// `and` with all true, `or` with all false: the other operand, so that masks which exclude nothing
/// leave no trace.
static std::optional<Tensor> skipNeutral(const Operand &x, const Operand &y, Logic logic) {
  const Tensor *constant = std::get_if<Tensor>(&x), *other = std::get_if<Tensor>(&y);
  if (!constant || !other || !constant->constant || other->dtype != DType::Bool)
    return std::nullopt;
  if (constant->constant->getSplat() != (logic == Logic::And ? 1 : 0))
    return std::nullopt;
  return *other;
}

template <Logic logic> static Error lowerLogic(OpContext &op, DType type) {
  Operand x = op.tensor("self"), y = op.operand("other");
  if (isFloat(type))
    return op.error("expected integers or booleans, found " + getName(type));
  if (type == DType::Bool)
    for (bool swapped : {false, true})
      if (auto other = skipNeutral(swapped ? y : x, swapped ? x : y, logic)) {
        ASSIGN_OR_RETURN(Tensor expanded, expand(op, *other, op.resultMeta(0).sizes));
        return setResult(op, op.copy(expanded));
      }
  return setResult(op, elementwise(
                           op, {x, y}, type, type,
                           [](Builder &b, ValueRange v) -> Value {
                             if (logic == Logic::And)
                               return arith::AndIOp::create(b, v[0], v[1]);
                             if (logic == Logic::Or)
                               return arith::OrIOp::create(b, v[0], v[1]);
                             return arith::XOrIOp::create(b, v[0], v[1]);
                           },
                           [](ArrayRef<int64_t> v) {
                             return logic == Logic::And  ? v[0] & v[1]
                                    : logic == Logic::Or ? v[0] | v[1]
                                                         : v[0] ^ v[1];
                           }));
}

template <Logic logic> static Error lowerLogical(OpContext &op) {
  return lowerLogic<logic>(op, DType::Bool);
}
template <Logic logic> static Error lowerBitwise(OpContext &op) {
  return lowerLogic<logic>(op, op.resultMeta(0).dtype);
}

static Error invert(OpContext &op, DType type) {
  if (isFloat(type))
    return op.error("expected integers or booleans, found " + getName(type));
  return setResult(
      op, elementwise(
              op, {op.tensor("self")}, type, type,
              [](Builder &b, ValueRange v) -> Value {
                Scalar ones;
                ones.integer = -1;
                return arith::XOrIOp::create(b, v[0], splat(b, v[0].getType(), ones));
              },
              [&](ArrayRef<int64_t> v) -> int64_t { return type == DType::Bool ? !v[0] : ~v[0]; }));
}

static Error lowerLogicalNot(OpContext &op) { return invert(op, DType::Bool); }
static Error lowerBitwiseNot(OpContext &op) { return invert(op, op.resultMeta(0).dtype); }

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

static Error select(OpContext &op, const Tensor &condition, const Operand &yes, const Operand &no) {
  DType type = op.resultMeta(0).dtype;
  return setResult(op, elementwise(
                           op, {condition, yes, no}, ArrayRef<DType>{DType::Bool, type, type}, type,
                           [](Builder &b, ValueRange v) -> Value {
                             return arith::SelectOp::create(b, v[0], v[1], v[2]);
                           },
                           [](ArrayRef<int64_t> v) { return v[0] ? v[1] : v[2]; }));
}

static Error lowerWhere(OpContext &op) {
  return select(op, op.tensor("condition"), op.operand("self"), op.operand("other"));
}
static Error lowerMaskedFill(OpContext &op) {
  return select(op, op.tensor("mask"), op.operand("value"), op.tensor("self"));
}

/// Keeps the elements on one side of a diagonal of the last two dimensions.
template <bool lower> static Error lowerTriangle(OpContext &op) {
  Tensor self = op.tensor("self");
  int64_t diagonal = op.integer("diagonal");
  if (self.rank() < 2)
    return op.error("expected a tensor of rank 2 at least, found " + toString(self.sizes));
  Shape sizes(ArrayRef(self.sizes).take_back(2));
  RETURN_IF_ERROR(checkFoldable(op, sizes));
  Constant kept = ConstantTensor::generate(DType::Bool, sizes, [&](ArrayRef<int64_t> index) {
    int64_t distance = index[1] - index[0];
    return lower ? distance <= diagonal : distance >= diagonal;
  });
  return select(op, op.wrap(kept), self, Scalar());
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

template <arith::CmpFPredicate real, arith::CmpIPredicate integer>
static void addComparison(OpTable &table, StringLiteral scalar, StringLiteral tensor) {
  table.add(scalar, "Tensor self, Tensor|Scalar other", lowerCompare<real, integer>);
  table.add(tensor, "Tensor self, Tensor|Scalar other", lowerCompare<real, integer>);
}

void memopt::pt2::registerComparisons(OpTable &table) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  addComparison<F::OEQ, I::eq>(table, "aten.eq.Scalar", "aten.eq.Tensor");
  addComparison<F::UNE, I::ne>(table, "aten.ne.Scalar", "aten.ne.Tensor");
  addComparison<F::OLT, I::slt>(table, "aten.lt.Scalar", "aten.lt.Tensor");
  addComparison<F::OLE, I::sle>(table, "aten.le.Scalar", "aten.le.Tensor");
  addComparison<F::OGT, I::sgt>(table, "aten.gt.Scalar", "aten.gt.Tensor");
  addComparison<F::OGE, I::sge>(table, "aten.ge.Scalar", "aten.ge.Tensor");
  table.add("aten.isnan.default", "Tensor self", lowerClassify<math::IsNaNOp>);
  table.add("aten.isinf.default", "Tensor self", lowerClassify<math::IsInfOp>);
  table.add("aten.isfinite.default", "Tensor self", lowerClassify<math::IsFiniteOp>);
  table.add("aten.logical_and.default", "Tensor self, Tensor other", lowerLogical<Logic::And>);
  table.add("aten.logical_or.default", "Tensor self, Tensor other", lowerLogical<Logic::Or>);
  table.add("aten.logical_xor.default", "Tensor self, Tensor other", lowerLogical<Logic::Xor>);
  table.add("aten.logical_not.default", "Tensor self", lowerLogicalNot);
  for (auto [name, lower] :
       {std::pair<StringLiteral, Lowering>("aten.bitwise_and.Tensor", lowerBitwise<Logic::And>),
        {"aten.bitwise_and.Scalar", lowerBitwise<Logic::And>},
        {"aten.__and__.Tensor", lowerBitwise<Logic::And>},
        {"aten.__and__.Scalar", lowerBitwise<Logic::And>},
        {"aten.bitwise_or.Tensor", lowerBitwise<Logic::Or>},
        {"aten.bitwise_or.Scalar", lowerBitwise<Logic::Or>},
        {"aten.__or__.Tensor", lowerBitwise<Logic::Or>},
        {"aten.__or__.Scalar", lowerBitwise<Logic::Or>},
        {"aten.__xor__.Tensor", lowerBitwise<Logic::Xor>},
        {"aten.bitwise_xor.Tensor", lowerBitwise<Logic::Xor>}})
    table.add(name, "Tensor self, Tensor|Scalar other", lower);
  table.add("aten.bitwise_not.default", "Tensor self", lowerBitwiseNot);
  for (StringLiteral name :
       {StringLiteral("aten.where.self"), StringLiteral("aten.where.ScalarSelf"),
        StringLiteral("aten.where.ScalarOther"), StringLiteral("aten.where.Scalar")})
    table.add(name, "Tensor condition, Tensor|Scalar self, Tensor|Scalar other", lowerWhere);
  table.add("aten.masked_fill.Scalar", "Tensor self, Tensor mask, Tensor|Scalar value",
            lowerMaskedFill);
  table.add("aten.masked_fill.Tensor", "Tensor self, Tensor mask, Tensor|Scalar value",
            lowerMaskedFill);
  table.add("aten.tril.default", "Tensor self, int diagonal=0", lowerTriangle<true>);
  table.add("aten.triu.default", "Tensor self, int diagonal=0", lowerTriangle<false>);
}
