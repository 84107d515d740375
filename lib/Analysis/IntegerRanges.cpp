//===- IntegerRanges.cpp - which integers a tensor may hold -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/IntegerRanges.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

using namespace mlir;
using namespace mlir::memopt;

IntegerRange IntegerRange::getHull() const {
  if (!other)
    return *this;
  return {std::min(min, *other), std::max(max, *other), std::nullopt};
}

static unsigned getWidth(Value value) {
  return getElementTypeOrSelf(value.getType()).getIntOrFloatBitWidth();
}

static IntegerRange getTypeRange(Value value) {
  unsigned width = getWidth(value);
  if (width == 1)
    return {0, 1, std::nullopt};
  return {APInt::getSignedMinValue(width).getSExtValue(),
          APInt::getSignedMaxValue(width).getSExtValue(), std::nullopt};
}

static IntegerRange unite(const IntegerRange &a, const IntegerRange &b) {
  IntegerRange x = a.getHull(), y = b.getHull();
  return {std::min(x.min, y.min), std::max(x.max, y.max), std::nullopt};
}

//===----------------------------------------------------------------------===//
// Leaves
//===----------------------------------------------------------------------===//

/// Inputs have the range that their batches are held to.
static IntegerRange getArgumentRange(BlockArgument argument) {
  auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto range = function ? function.getArgAttrOfType<DictionaryAttr>(argument.getArgNumber(),
                                                                    MemoptDialect::kValidRangeAttr)
                        : DictionaryAttr();
  if (!range)
    return getTypeRange(argument);
  IntegerRange result = getTypeRange(argument);
  if (auto min = range.getAs<IntegerAttr>("min"))
    result.min = min.getInt();
  if (auto max = range.getAs<IntegerAttr>("max"))
    result.max = max.getInt();
  if (auto ignore = range.getAs<IntegerAttr>("ignore"))
    result.other = ignore.getInt();
  return result;
}

static IntegerRange getConstantRange(Value value, Attribute attribute) {
  auto asNumber = [](const APInt &number) {
    return number.getBitWidth() == 1 ? int64_t(number.getZExtValue()) : number.getSExtValue();
  };
  if (auto integer = dyn_cast<IntegerAttr>(attribute))
    return {asNumber(integer.getValue()), asNumber(integer.getValue()), std::nullopt};
  auto elements = dyn_cast<DenseElementsAttr>(attribute);
  if (!elements || elements.empty())
    return getTypeRange(value);
  int64_t first = asNumber(*elements.value_begin<APInt>());
  IntegerRange result{first, first, std::nullopt};
  if (!elements.isSplat())
    for (const APInt &element : elements.getValues<APInt>()) {
      result.min = std::min(result.min, asNumber(element));
      result.max = std::max(result.max, asNumber(element));
    }
  return result;
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

static IntegerRange getCheckedRange(CheckOp check, const IntegerRange &input) {
  int64_t low = check.getMin(), high = check.getMax();
  if (low > high)
    return input;
  IntegerRange result{std::min<int64_t>(low, check.getOtherwise()),
                      std::max<int64_t>(high, check.getOtherwise()), std::nullopt};
  if (check.getIgnore())
    result.other = static_cast<int64_t>(*check.getIgnore());
  return result;
}

static IntegerRange getReducedRange(ReduceOp reduce, const IntegerRange &input) {
  if (reduce.getKind() == ReduceKind::Max || reduce.getKind() == ReduceKind::Min)
    return input;
  int64_t count = cast<RankedTensorType>(reduce.getInput().getType()).getNumElements() /
                  cast<RankedTensorType>(reduce.getResult().getType()).getNumElements();
  IntegerRange hull = input.getHull(), all = getTypeRange(reduce.getResult()), result = all;
  bool overflows = __builtin_mul_overflow(hull.min, count, &result.min) ||
                   __builtin_mul_overflow(hull.max, count, &result.max);
  bool fits = !overflows && result.min >= all.min && result.max <= all.max;
  return reduce.getKind() == ReduceKind::Add && fits ? result : all;
}

/// Places along an axis of a tensor.
static IntegerRange getPlaces(Value tensor, int64_t axis) {
  return {0, cast<RankedTensorType>(tensor.getType()).getDimSize(axis) - 1, std::nullopt};
}

/// By upstream's rule for the op, which must have integer operands alone.
IntegerRange IntegerRanges::infer(OpResult result) {
  Operation *op = result.getOwner();
  auto rule = dyn_cast<InferIntRangeInterface>(op);
  IntegerRange all = getTypeRange(result);
  if (!rule)
    return all;
  SmallVector<ConstantIntRanges> operands;
  for (Value operand : op->getOperands()) {
    if (!isa<IntegerType>(getElementTypeOrSelf(operand.getType())))
      return all;
    IntegerRange range = get(operand).getHull();
    unsigned width = getWidth(operand);
    APInt low(width, range.min, /*isSigned=*/true, /*implicitTrunc=*/true);
    APInt high(width, range.max, /*isSigned=*/true, /*implicitTrunc=*/true);
    operands.push_back(width == 1 ? ConstantIntRanges::fromUnsigned(low, high)
                                  : ConstantIntRanges::fromSigned(low, high));
  }
  IntegerRange inferred = all;
  rule.inferResultRanges(operands, [&](Value value, const ConstantIntRanges &ranges) {
    if (value != result)
      return;
    inferred = getWidth(value) == 1
                   ? IntegerRange{int64_t(ranges.umin().getZExtValue()),
                                  int64_t(ranges.umax().getZExtValue()), std::nullopt}
                   : IntegerRange{ranges.smin().getSExtValue(), ranges.smax().getSExtValue(),
                                  std::nullopt};
  });
  return inferred;
}

IntegerRange IntegerRanges::getRangeOfParts(ViewOpInterface view) {
  SmallVector<ViewPart> parts = view.getViewParts();
  ArrayRef<int64_t> shape = cast<RankedTensorType>(view->getResult(0).getType()).getShape();
  std::optional<IntegerRange> all;
  for (const ViewPart &part : parts) {
    IntegerRange range = get(view->getOperand(part.operand));
    all = all ? unite(*all, range) : range;
  }
  IntegerRange zero{0, 0, std::nullopt};
  return !all ? zero : areComplete(parts, shape) ? *all : unite(*all, zero);
}

IntegerRange IntegerRanges::compute(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (auto repeat = dyn_cast<RepeatOp>(argument.getOwner()->getParentOp()))
      return get(repeat.getInputs()[argument.getArgNumber()]);
    return getArgumentRange(argument);
  }
  Operation *op = value.getDefiningOp();
  Attribute constant;
  if (matchPattern(value, m_Constant(&constant)))
    return getConstantRange(value, constant);
  if (auto iota = dyn_cast<IotaOp>(op))
    return getPlaces(value, iota.getDimension());
  if (auto argsort = dyn_cast<ArgsortOp>(op))
    return getPlaces(argsort.getInput(), argsort.getAxis());
  if (auto scan = dyn_cast<ArgextremeScanOp>(op))
    return getPlaces(scan.getInput(), scan.getAxis());
  if (isa<GatherOp>(op))
    return get(op->getOperand(0));
  if (auto view = dyn_cast<ViewOpInterface>(op))
    return getRangeOfParts(view);
  if (auto select = dyn_cast<arith::SelectOp>(op))
    return unite(get(select.getTrueValue()), get(select.getFalseValue()));
  if (auto check = dyn_cast<CheckOp>(op))
    return getCheckedRange(check, get(check.getValue()));
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return getReducedRange(reduce, get(reduce.getInput()));
  if (auto pool = dyn_cast<MaxPoolOp>(op)) {
    int64_t taps = 1;
    for (int64_t size : pool.getKernel())
      taps *= size;
    return {0, taps - 1, std::nullopt};
  }
  return infer(cast<OpResult>(value));
}

/// What the range of a value may follow from.
static SmallVector<Value> getSources(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op) {
    auto argument = cast<BlockArgument>(value);
    auto repeat = dyn_cast<RepeatOp>(argument.getOwner()->getParentOp());
    return repeat ? SmallVector<Value>{repeat.getInputs()[argument.getArgNumber()]}
                  : SmallVector<Value>();
  }
  return llvm::filter_to_vector(op->getOperands(), [](Value operand) {
    return isa<IntegerType>(getElementTypeOrSelf(operand.getType()));
  });
}

/// Sources first, so that none is asked for before it is known: chains may be long.
IntegerRange IntegerRanges::get(Value value) {
  SmallVector<Value> todo{value};
  while (!todo.empty()) {
    Value next = todo.back();
    auto isUnknown = [&](Value source) { return !known.contains(source); };
    SmallVector<Value> missing = llvm::filter_to_vector(getSources(next), isUnknown);
    if (isUnknown(next) && !missing.empty()) {
      llvm::append_range(todo, missing);
      continue;
    }
    todo.pop_back();
    if (isUnknown(next))
      known.try_emplace(next, compute(next));
  }
  return known.find(value)->second;
}

OpOperand *mlir::memopt::getIntegerDivisor(Operation *op) {
  if (!isa<arith::DivSIOp, arith::DivUIOp, arith::FloorDivSIOp, arith::CeilDivSIOp,
           arith::CeilDivUIOp, arith::RemSIOp, arith::RemUIOp>(op) ||
      !isa<RankedTensorType>(op->getResult(0).getType()))
    return nullptr;
  return &op->getOpOperand(1);
}
