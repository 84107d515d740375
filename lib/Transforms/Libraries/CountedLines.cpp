//===- CountedLines.cpp - matrices of which a mask counts lines -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Libraries/CountedLines.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Follows zeros from where a mask chooses them. What is far behind is not looked for.
class LineSearch {
public:
  Value findLines(Value tensor, int64_t dim);

private:
  Value findLinesOfCall(LibraryCallOp call, int64_t dim);
  /// The mask by which a scalar is zero where the line is not counted, `loop` being the lines'.
  Value findMask(Value scalar, linalg::GenericOp generic, unsigned loop);
  Value findMaskOfBoth(ValueRange scalars, linalg::GenericOp generic, unsigned loop);

  int64_t left = 64; ///< values to look at
};
} // namespace

/// The loop that writes lines of an elementwise op's result.
static std::optional<unsigned> findLoop(linalg::GenericOp generic, int64_t dim) {
  if (!generic || generic.getNumResults() != 1 || generic.getNumReductionLoops() != 0)
    return std::nullopt;
  auto loop = dyn_cast<AffineDimExpr>(
      generic.getMatchingIndexingMap(generic.getDpsInitOperand(0)).getResult(dim));
  return loop ? std::optional(loop.getPosition()) : std::nullopt;
}

static Value getYielded(linalg::GenericOp generic) {
  return cast<linalg::YieldOp>(generic.getBody()->getTerminator()).getValues()[0];
}

/// The operand that a scalar of the body is; null where it is computed.
static OpOperand *getOperand(Value scalar, linalg::GenericOp generic) {
  auto argument = dyn_cast<BlockArgument>(scalar);
  return argument && argument.getOwner() == generic.getBody() &&
                 argument.getArgNumber() < generic.getNumDpsInputs()
             ? generic.getDpsInputOperand(argument.getArgNumber())
             : nullptr;
}

/// The operand that a condition is, where it has an element for each line and nothing else.
static Value getMask(Value condition, linalg::GenericOp generic, unsigned loop) {
  OpOperand *operand = getOperand(condition, generic);
  if (!operand)
    return Value();
  AffineMap map = generic.getMatchingIndexingMap(operand);
  RankedTensorType type = tensorType(operand->get());
  return map.getNumResults() == 1 && type.getElementType().isInteger(1) &&
                 map.getResult(0) == getAffineDimExpr(loop, map.getContext()) &&
                 type.getDimSize(0) == generic.getStaticLoopRanges()[loop]
             ? operand->get()
             : Value();
}

Value LineSearch::findLines(Value tensor, int64_t dim) {
  if (left-- <= 0)
    return Value();
  if (auto call = tensor.getDefiningOp<LibraryCallOp>())
    return findLinesOfCall(call, dim);
  if (auto transpose = tensor.getDefiningOp<TransposeOp>())
    return findLines(transpose->getOperand(0), transpose.getPermutation()[dim]);
  auto generic = tensor.getDefiningOp<linalg::GenericOp>();
  std::optional<unsigned> loop = findLoop(generic, dim);
  return loop ? findMask(getYielded(generic), generic, *loop) : Value();
}

/// Products of counted rows have zeros elsewhere.
Value LineSearch::findLinesOfCall(LibraryCallOp call, int64_t dim) {
  auto matmul = dyn_cast<MatmulAttr>(call.getCall());
  bool isPlain = matmul && matmul.getCountsRows() && !matmul.getBias() && !matmul.getAccumulate() &&
                 dim == 0 && tensorType(call->getResult(0)).getRank() == 2 &&
                 matmul.getCStrides().back() == 1;
  return isPlain ? call->getOperand(2) : Value();
}

Value LineSearch::findMaskOfBoth(ValueRange scalars, linalg::GenericOp generic, unsigned loop) {
  Value first = findMask(scalars[0], generic, loop);
  return first && first == findMask(scalars[1], generic, loop) ? first : Value();
}

Value LineSearch::findMask(Value scalar, linalg::GenericOp generic, unsigned loop) {
  if (left-- <= 0)
    return Value();
  if (OpOperand *operand = getOperand(scalar, generic)) {
    AffineMap map = generic.getMatchingIndexingMap(operand);
    std::optional<unsigned> dim = map.getResultPosition(getAffineDimExpr(loop, map.getContext()));
    return dim ? findLines(operand->get(), *dim) : Value();
  }
  Operation *op = scalar.getDefiningOp();
  if (!op || op->getBlock() != generic.getBody())
    return Value();
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case([&](arith::SelectOp select) {
        bool isZero = matchPattern(select.getFalseValue(), m_AnyZeroFloat());
        if (Value mask = isZero ? getMask(select.getCondition(), generic, loop) : Value())
          return mask;
        return isZero ? findMask(select.getTrueValue(), generic, loop)
                      : findMaskOfBoth(op->getOperands().drop_front(), generic, loop);
      })
      .Case([&](arith::MulFOp) {
        Value mask = findMask(op->getOperand(0), generic, loop);
        return mask ? mask : findMask(op->getOperand(1), generic, loop);
      })
      .Case<arith::AddFOp, arith::SubFOp>(
          [&](Operation *) { return findMaskOfBoth(op->getOperands(), generic, loop); })
      .Case<arith::DivFOp, arith::NegFOp, arith::ExtFOp, arith::TruncFOp>(
          [&](Operation *) { return findMask(op->getOperand(0), generic, loop); })
      .Default([](Operation *) { return Value(); });
}

Value mlir::memopt::findCountedLines(Value matrix, int64_t dim) {
  return LineSearch().findLines(matrix, dim);
}

Value mlir::memopt::getUncounted(Value matrix, int64_t dim, Value mask) {
  auto generic = matrix.getDefiningOp<linalg::GenericOp>();
  std::optional<unsigned> loop = findLoop(generic, dim);
  auto select = loop ? getYielded(generic).getDefiningOp<arith::SelectOp>() : arith::SelectOp();
  if (!select || !matchPattern(select.getFalseValue(), m_AnyZeroFloat()) ||
      getMask(select.getCondition(), generic, *loop) != mask)
    return matrix;
  OpOperand *chosen = getOperand(select.getTrueValue(), generic);
  bool isSame = chosen && chosen->get().getType() == matrix.getType() &&
                generic.getMatchingIndexingMap(chosen) ==
                    generic.getMatchingIndexingMap(generic.getDpsInitOperand(0));
  return isSame ? chosen->get() : matrix;
}
