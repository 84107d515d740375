//===- Comparisons.cpp - comparisons, logic, selection -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"
#include "memopt/Import/Ops/Indexing/Indexing.h"
#include "memopt/Import/Ops/Special/SpecialFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
using Elements = ArrayRef<Element>;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Comparisons
//===----------------------------------------------------------------------===//

/// false where a NaN takes part, except for "unequal".
template <Element compare(Element, Element), typename Evaluated>
static Error lowerCompare(OpContext &op) {
  SmallVector<Operand> operands{op.operand("self"), op.operand("other")};
  DType type = getArithmeticType(promote(operands));
  return setResult(
      op, elementwise(op, operands, type, DType::Bool,
                      inBuild([](Elements v) { return compare(v[0], v[1]); }),
                      [](ArrayRef<int64_t> v) -> int64_t { return Evaluated()(v[0], v[1]); }));
}

/// A property of real numbers, which integers have or lack alike.
static Error classify(OpContext &op, FormulaFn property, bool ofIntegers) {
  Tensor self = op.tensor("self");
  if (!isFloat(self.dtype))
    return setResult(op, op.wrap(ConstantTensor::splat(DType::Bool, self.sizes, ofIntegers)));
  return setResult(op, elementwise(op, {self}, self.dtype, DType::Bool, inBuild(property)));
}

static Error lowerIsNaN(OpContext &op) {
  return classify(op, [](Elements v) { return isNaN(v[0]); }, false);
}
static Error lowerIsInf(OpContext &op) {
  return classify(op, [](Elements v) { return isInfinite(v[0]); }, false);
}
static Error lowerIsFinite(OpContext &op) {
  return classify(op, [](Elements v) { return less(abs(v[0]), kInfinity); }, true);
}
static Error lowerIsPosInf(OpContext &op) {
  return classify(op, [](Elements v) { return equals(v[0], kInfinity); }, false);
}
static Error lowerIsNegInf(OpContext &op) {
  return classify(op, [](Elements v) { return equals(v[0], -kInfinity); }, false);
}
static Error lowerIsReal(OpContext &op) {
  return setResult(op, op.wrap(ConstantTensor::splat(DType::Bool, op.tensor("self").sizes, 1)));
}

/// Minus zero and negative NaNs have the bit, too.
static Error lowerSignBit(OpContext &op) {
  Tensor self = op.tensor("self");
  DType type = getArithmeticType(self.dtype);
  return setResult(op, elementwise(op, {self}, type, DType::Bool, inBuild([](Elements v) {
                                     Element x = v[0];
                                     return less(x.isReal() ? copySign(x.like(1), x) : x, 0);
                                   })));
}

/// |a - b| <= atol + rtol |b|, both finite, or equal.
static Error lowerIsClose(OpContext &op) {
  Tensor a = op.tensor("self"), b = op.tensor("other");
  double relative = op.number("rtol"), absolute = op.number("atol");
  bool equalNaN = op.flag("equal_nan");
  DType type = isFloat(a.dtype) ? a.dtype : DType::F64;
  return setResult(op, elementwise(op, {a, b}, type, DType::Bool, inBuild([&](Elements v) {
                                     Element distance = abs(v[0] - v[1]);
                                     Element allowed = abs(v[1] * relative) + absolute;
                                     Element close =
                                         equals(v[0], v[1]) | (lessOrEqual(distance, allowed) &
                                                               less(distance, kInfinity));
                                     return equalNaN ? close | (isNaN(v[0]) & isNaN(v[1])) : close;
                                   })));
}

//===----------------------------------------------------------------------===//
// Membership and places among sorted numbers
//===----------------------------------------------------------------------===//

/// Compares every element of `x` [..] with all of `table` [.., n], whose leading sizes are x's
/// or 1. The result [.., n] says where `condition` holds.
static Expected<Value> compareWithAll(OpContext &op, Tensor x, const Tensor &table,
                                      FormulaFn condition) {
  Shape sizes(x.sizes);
  sizes.push_back(1);
  ASSIGN_OR_RETURN(x, reshape(op, x, sizes));
  DType type = getArithmeticType(promote({x, table}));
  ASSIGN_OR_RETURN(Tensor hits, elementwise(op, {x, table}, type, DType::Bool, inBuild(condition)));
  return op.get(hits);
}

/// A number as a tensor of its own.
static Tensor asTensor(OpContext &op, const Operand &operand) {
  if (const auto *tensor = std::get_if<Tensor>(&operand))
    return *tensor;
  DType type = promote(operand);
  return op.wrap(type, splat(op.b, op.tensorType(type, {}), std::get<Scalar>(operand)));
}

static Error lowerIsIn(OpContext &op) {
  Tensor elements = asTensor(op, op.operand(op.hasParameter("element") ? "element" : "elements"));
  Tensor table =
      asTensor(op, op.operand(op.hasParameter("test_element") ? "test_element" : "test_elements"));
  ASSIGN_OR_RETURN(table, reshape(op, table, {table.getNumElements()}));
  ASSIGN_OR_RETURN(Value hits, compareWithAll(op, elements, table,
                                              [](Elements v) { return equals(v[0], v[1]); }));
  Element found(op.b, anyOf(op.b, hits, elements.rank()));
  return setResult(op, op.wrap(DType::Bool, op.flag("invert") ? !found : found));
}

/// How many of the sorted `table` stand before an element: those below it, with `right` those that
/// equal it as well. NaN stands behind all numbers.
static Error countBefore(OpContext &op, const Tensor &x, const Tensor &table, bool right) {
  ASSIGN_OR_RETURN(Value before, compareWithAll(op, x, table, [&](Elements v) {
                     return right ? !less(v[0], v[1]) : !lessOrEqual(v[0], v[1]);
                   }));
  DType type = op.resultMeta(0).dtype;
  Value numbers = convert(op.b, before, DType::Bool, type);
  return setResult(
      op, op.wrap(type, reduceValue(op.b, numbers, mlir::memopt::ReduceKind::Add, x.rank())));
}

static Error lowerBucketize(OpContext &op) {
  Tensor table = op.tensor("boundaries");
  if (table.rank() != 1)
    return op.error("expected boundaries of rank 1, found " + toString(table.sizes));
  return countBefore(op, asTensor(op, op.operand("self")), table, op.flag("right"));
}

static Error lowerSearchSorted(OpContext &op) {
  Tensor table = op.tensor("sorted_sequence"), x = asTensor(op, op.operand("self"));
  StringRef side = op.has("side") ? op.text("side") : "left";
  if (side != "left" && side != "right")
    return op.error("argument 'side': expected left or right, found '" + side + "'");
  bool right = op.flag("right") || side == "right";
  if (table.rank() == 0 || (table.rank() > 1 && table.rank() != x.rank()))
    return op.error("expected a sequence of rank 1 or of the values' rank, found " +
                    toString(table.sizes) + " and " + toString(x.sizes));
  if (std::optional<Tensor> sorter = op.optionalTensor("sorter")) {
    ASSIGN_OR_RETURN(table, gatherAlong(op, table, *sorter, table.rank() - 1));
  }
  if (table.rank() > 1) {
    Shape sizes(table.sizes);
    sizes.insert(sizes.end() - 1, 1);
    ASSIGN_OR_RETURN(table, reshape(op, table, sizes));
  }
  return countBefore(op, x, table, right);
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

/// By as many bits as the type has or more, nothing but the sign is left; bytes have none.
template <bool left> static Error lowerShift(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  if (isFloat(type) || type == DType::Bool)
    return op.error("expected integers, found " + getName(type));
  int64_t bits = 8 * getByteWidth(type), most = left || type == DType::U8 ? bits : bits - 1;
  return mapElements(op, {op.operand("self"), op.operand("other")}, [&](Elements v) -> Element {
    Builder &b = v[0].getBuilder();
    Element isFar = less(v[1], 0) | greaterOrEqual(v[1], double(most));
    Element by = select(isFar, v[1].like(left ? 0 : double(most)), v[1]);
    if (left)
      return select(isFar, v[0].like(0), Element(b, arith::ShLIOp::create(b, v[0], by)));
    return {b, arith::ShRSIOp::create(b, v[0], by)};
  });
}

static Error lowerLogicalNot(OpContext &op) { return invert(op, DType::Bool); }
static Error lowerBitwiseNot(OpContext &op) { return invert(op, op.resultMeta(0).dtype); }

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

static Error select(OpContext &op, const Tensor &condition, const Operand &yes, const Operand &no) {
  return setResult(op, select(op, condition, yes, no, op.resultMeta(0).dtype));
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

template <Element compare(Element, Element), typename Evaluated>
static void addComparison(OpTable &table, StringLiteral scalar, StringLiteral tensor) {
  for (StringLiteral name : {scalar, tensor})
    table.add(name, "Tensor|Scalar self, Tensor|Scalar other", lowerCompare<compare, Evaluated>);
}

static void registerProperties(OpTable &table) {
  table.add("aten.isnan.default", "Tensor self", lowerIsNaN);
  table.add("aten.isinf.default", "Tensor self", lowerIsInf);
  table.add("aten.isfinite.default", "Tensor self", lowerIsFinite);
  table.add("aten.isposinf.default", "Tensor self", lowerIsPosInf);
  table.add("aten.isneginf.default", "Tensor self", lowerIsNegInf);
  table.add("aten.isreal.default", "Tensor self", lowerIsReal);
  table.add("aten.signbit.default", "Tensor self", lowerSignBit);
  table.add("aten.isclose.default",
            "Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False",
            lowerIsClose);
  table.add("aten.isin.Tensor_Tensor",
            "Tensor elements, Tensor test_elements, bool assume_unique=False, bool invert=False",
            lowerIsIn);
  table.add("aten.isin.Tensor_Scalar",
            "Tensor elements, Scalar test_element, bool assume_unique=False, bool invert=False",
            lowerIsIn);
  table.add("aten.isin.Scalar_Tensor",
            "Scalar element, Tensor test_elements, bool assume_unique=False, bool invert=False",
            lowerIsIn);
  for (StringLiteral name :
       {StringLiteral("aten.bucketize.Tensor"), StringLiteral("aten.bucketize.Scalar")})
    table.add(name, "Tensor|Scalar self, Tensor boundaries, bool out_int32=False, bool right=False",
              lowerBucketize);
  for (StringLiteral name :
       {StringLiteral("aten.searchsorted.Tensor"), StringLiteral("aten.searchsorted.Scalar")})
    table.add(name,
              "Tensor sorted_sequence, Tensor|Scalar self, bool out_int32=False, bool right=False, "
              "str? side=None, Tensor? sorter=None",
              lowerSearchSorted);
}

void memopt::pt2::registerComparisons(OpTable &table) {
  addComparison<equals, std::equal_to<>>(table, "aten.eq.Scalar", "aten.eq.Tensor");
  addComparison<differs, std::not_equal_to<>>(table, "aten.ne.Scalar", "aten.ne.Tensor");
  addComparison<less, std::less<>>(table, "aten.lt.Scalar", "aten.lt.Tensor");
  addComparison<lessOrEqual, std::less_equal<>>(table, "aten.le.Scalar", "aten.le.Tensor");
  addComparison<greater, std::greater<>>(table, "aten.gt.Scalar", "aten.gt.Tensor");
  addComparison<greaterOrEqual, std::greater_equal<>>(table, "aten.ge.Scalar", "aten.ge.Tensor");
  registerProperties(table);
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
        {"aten.__xor__.Scalar", lowerBitwise<Logic::Xor>},
        {"aten.bitwise_xor.Scalar", lowerBitwise<Logic::Xor>},
        {"aten.bitwise_xor.Tensor", lowerBitwise<Logic::Xor>}})
    table.add(name, "Tensor self, Tensor|Scalar other", lower);
  for (StringLiteral name :
       {StringLiteral("aten.bitwise_left_shift.Tensor"),
        StringLiteral("aten.bitwise_left_shift.Tensor_Scalar"),
        StringLiteral("aten.__lshift__.Tensor"), StringLiteral("aten.__lshift__.Scalar")})
    table.add(name, "Tensor self, Tensor|Scalar other", lowerShift<true>);
  for (StringLiteral name :
       {StringLiteral("aten.bitwise_right_shift.Tensor"),
        StringLiteral("aten.bitwise_right_shift.Tensor_Scalar"),
        StringLiteral("aten.__rshift__.Tensor"), StringLiteral("aten.__rshift__.Scalar")})
    table.add(name, "Tensor self, Tensor|Scalar other", lowerShift<false>);
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
