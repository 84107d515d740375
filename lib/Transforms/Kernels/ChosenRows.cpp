//===- ChosenRows.cpp - masks of which few hold at a place ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ChosenRows.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::memopt;

/// What is far behind is not looked for.
static constexpr int64_t kMostSteps = 256;

namespace {
/// An element of a tensor: its indices follow from (t, j).
struct Element {
  Value tensor;
  AffineMap indices;
};

/// A scalar in a generic's body, at loops that follow from (t, j).
struct Scalar {
  Value value;
  linalg::GenericOp generic;
  AffineMap loops;

  Scalar of(Value other) const { return {other, generic, loops}; }
};

/// Goes from a mask to the comparison that it follows from.
class ChoiceSearch {
public:
  std::optional<ChosenRows> findIn(Element element);

private:
  std::optional<ChosenRows> findIn(Scalar scalar);
  std::optional<ChosenRows> findInReduction(linalg::GenericOp generic, Element element);
  std::optional<ChosenRows> findEqual(Scalar a, Scalar b);
  std::optional<Element> getElement(Scalar scalar) const;

  int64_t choices = 0; ///< j's; 0 until there is one
  int64_t left = kMostSteps;
};
} // namespace

/// Through views, to the tensor whose elements they show.
static Element resolve(Element element) {
  while (auto view = element.tensor.getDefiningOp<ViewOpInterface>()) {
    if (view.getViewKind() == ViewKind::Assembled)
      break;
    element = {view->getOperand(0),
               simplifyAffineMap(view.getViewParts().front().map.compose(element.indices))};
  }
  return element;
}

/// What a block argument of the body stands for.
std::optional<Element> ChoiceSearch::getElement(Scalar scalar) const {
  auto argument = dyn_cast<BlockArgument>(scalar.value);
  if (!argument || argument.getOwner() != scalar.generic.getBody() ||
      argument.getArgNumber() >= scalar.generic.getNumDpsInputs())
    return std::nullopt;
  OpOperand *operand = scalar.generic.getDpsInputOperand(argument.getArgNumber());
  return resolve(
      {operand->get(), scalar.generic.getMatchingIndexingMap(operand).compose(scalar.loops)});
}

/// The number that a scalar is whatever t and j are.
static std::optional<int64_t> getNumber(Scalar scalar, std::optional<Element> element) {
  APInt number;
  if (matchPattern(scalar.value, m_ConstantInt(&number)))
    return number.getSExtValue();
  if (Operation *op = scalar.value.getDefiningOp();
      isa_and_nonnull<arith::IndexCastOp, arith::ExtSIOp>(op))
    return getNumber(scalar.of(op->getOperand(0)), std::nullopt);
  if (auto index = scalar.value.getDefiningOp<linalg::IndexOp>()) {
    auto constant = dyn_cast<AffineConstantExpr>(scalar.loops.getResult(index.getDim()));
    return constant ? std::optional(constant.getValue()) : std::nullopt;
  }
  if (!element || !element->indices.isConstant())
    return std::nullopt;
  SmallVector<int64_t> at = element->indices.getConstantResults();
  if (auto iota = element->tensor.getDefiningOp<IotaOp>())
    return at[iota.getDimension()];
  DenseIntElementsAttr numbers;
  if (!matchPattern(element->tensor, m_Constant(&numbers)))
    return std::nullopt;
  if (numbers.isSplat())
    return numbers.getSplatValue<APInt>().getSExtValue();
  return numbers.getValues<APInt>()[SmallVector<uint64_t>(at.begin(), at.end())].getSExtValue();
}

/// Whether every result is t, j or a constant, and t one of them.
static bool isPlainAccess(AffineMap map) {
  bool hasRow = false;
  for (AffineExpr expr : map.getResults()) {
    if (!isa<AffineDimExpr, AffineConstantExpr>(expr))
      return false;
    hasRow |= expr == getAffineDimExpr(0, map.getContext());
  }
  return hasRow;
}

std::optional<ChosenRows> ChoiceSearch::findEqual(Scalar a, Scalar b) {
  std::optional<Element> table = getElement(a);
  std::optional<int64_t> number = getNumber(b, getElement(b));
  if (!table || !number || !getElementTypeOrSelf(table->tensor).isInteger() ||
      !isPlainAccess(table->indices))
    return std::nullopt;
  bool hasChoices = table->indices.isFunctionOfDim(1);
  return ChosenRows{table->tensor, table->indices, hasChoices ? choices : 1, *number};
}

static bool isZero(Value value) {
  return matchPattern(value, m_Zero()) || matchPattern(value, m_AnyZeroFloat());
}

/// The choice that a scalar follows from that is not zero.
std::optional<ChosenRows> ChoiceSearch::findIn(Scalar scalar) {
  if (left-- <= 0)
    return std::nullopt;
  if (std::optional<Element> element = getElement(scalar))
    return findIn(*element);
  Operation *op = scalar.value.getDefiningOp();
  if (!op || op->getBlock() != scalar.generic.getBody())
    return std::nullopt;
  auto operand = [&](unsigned number) { return scalar.of(op->getOperand(number)); };
  auto either = [&](unsigned first, unsigned second) {
    int64_t before = choices;
    if (std::optional<ChosenRows> found = findIn(operand(first)))
      return found;
    choices = before;
    return findIn(operand(second));
  };
  return llvm::TypeSwitch<Operation *, std::optional<ChosenRows>>(op)
      .Case<arith::ExtUIOp, arith::ExtSIOp, arith::TruncIOp, arith::UIToFPOp, arith::SIToFPOp>(
          [&](Operation *) { return findIn(operand(0)); })
      .Case([&](arith::CmpIOp compare) -> std::optional<ChosenRows> {
        if (compare.getPredicate() == arith::CmpIPredicate::ne && isZero(compare.getRhs()))
          return findIn(operand(0));
        if (compare.getPredicate() != arith::CmpIPredicate::eq)
          return std::nullopt;
        if (std::optional<ChosenRows> found = findEqual(operand(0), operand(1)))
          return found;
        return findEqual(operand(1), operand(0));
      })
      .Case([&](arith::CmpFOp compare) -> std::optional<ChosenRows> {
        if (compare.getPredicate() == arith::CmpFPredicate::UNE && isZero(compare.getRhs()))
          return findIn(operand(0));
        return std::nullopt;
      })
      .Case<arith::AndIOp, arith::MulIOp>([&](Operation *) { return either(0, 1); })
      .Case([&](arith::SelectOp select) -> std::optional<ChosenRows> {
        return isZero(select.getFalseValue()) ? either(0, 1) : std::nullopt;
      })
      .Default([](Operation *) { return std::nullopt; });
}

/// The largest of several is not zero: then one of them is not, unless it is where the search for the
/// largest began.
std::optional<ChosenRows> ChoiceSearch::findInReduction(linalg::GenericOp generic,
                                                        Element element) {
  auto yield = cast<linalg::YieldOp>(generic.getBody()->getTerminator());
  Operation *combine = yield.getValues()[0].getDefiningOp();
  BlockArgument total = generic.getBody()->getArguments().back();
  if (choices != 0 || generic.getNumReductionLoops() != 1 ||
      !isa_and_nonnull<arith::MaxSIOp, arith::MaxUIOp, arith::OrIOp>(combine) ||
      !llvm::is_contained(combine->getOperands(), total))
    return std::nullopt;
  auto fill = generic.getDpsInitOperand(0)->get().getDefiningOp<linalg::FillOp>();
  APInt first;
  if (!fill || !matchPattern(fill.getInputs().front(), m_ConstantInt(&first)) ||
      !(first.isZero() ||
        (isa<arith::MaxSIOp>(combine) && first.getBitWidth() > 1 && first.isMinSignedValue())))
    return std::nullopt;
  AffineMap written = generic.getMatchingIndexingMap(generic.getDpsInitOperand(0));
  SmallVector<AffineExpr> loops(generic.getNumLoops(), getAffineDimExpr(1, generic.getContext()));
  for (auto [expr, at] : llvm::zip_equal(written.getResults(), element.indices.getResults()))
    loops[cast<AffineDimExpr>(expr).getPosition()] = at;
  SmallVector<unsigned> reduced;
  generic.getReductionDims(reduced);
  choices = generic.getStaticLoopRanges()[reduced.front()];
  Value other = combine->getOperand(combine->getOperand(0) == total ? 1 : 0);
  return findIn(Scalar{other, generic, AffineMap::get(2, 0, loops, generic.getContext())});
}

std::optional<ChosenRows> ChoiceSearch::findIn(Element element) {
  element = resolve(element);
  auto generic = element.tensor.getDefiningOp<linalg::GenericOp>();
  if (left-- <= 0 || !generic || generic.getNumResults() != 1)
    return std::nullopt;
  AffineMap written = generic.getMatchingIndexingMap(generic.getDpsInitOperand(0));
  if (!written.isProjectedPermutation())
    return std::nullopt;
  if (generic.getNumReductionLoops() != 0)
    return findInReduction(generic, element);
  SmallVector<AffineExpr> loops(generic.getNumLoops());
  for (auto [expr, at] : llvm::zip_equal(written.getResults(), element.indices.getResults()))
    loops[cast<AffineDimExpr>(expr).getPosition()] = at;
  if (llvm::is_contained(loops, AffineExpr()))
    return std::nullopt;
  auto yield = cast<linalg::YieldOp>(generic.getBody()->getTerminator());
  return findIn(
      Scalar{yield.getValues()[0], generic, AffineMap::get(2, 0, loops, generic.getContext())});
}

std::optional<ChosenRows> mlir::memopt::findChosenRows(Value mask) {
  return ChoiceSearch().findIn(
      Element{mask, AffineMap::get(2, 0, getAffineDimExpr(0, mask.getContext()))});
}
