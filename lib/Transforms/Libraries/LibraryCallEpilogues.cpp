//===- LibraryCallEpilogues.cpp - what a call computes besides its op ------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Libraries/LibraryCallBuilder.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"
#include "memopt/Transforms/Utils/PlaceOps.h"
#include "memopt/Transforms/Utils/TokenTiles.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Bias
//===----------------------------------------------------------------------===//

static bool isPlainAddition(linalg::GenericOp generic) {
  if (generic.getNumDpsInputs() != 2 || generic.getNumResults() != 1 ||
      generic.getNumReductionLoops() != 0)
    return false;
  Block &body = *generic.getBody();
  auto yield = cast<linalg::YieldOp>(body.getTerminator());
  auto add = yield.getValues()[0].getDefiningOp<arith::AddFOp>();
  return add && body.getOperations().size() == 2 && add.getLhs() != add.getRhs() &&
         isa<BlockArgument>(add.getLhs()) && isa<BlockArgument>(add.getRhs());
}

static std::optional<BiasAddition> matchAddition(Value result, int64_t axis, bool mayReshape) {
  if (!result.hasOneUse())
    return std::nullopt;
  BiasAddition match{nullptr, nullptr, Value(), nullptr};
  OpOperand *use = &*result.use_begin();
  if (isReshape(use->getOwner())) {
    // Fine when the last dimension, along which the bias runs, stays itself.
    match.reshape = use->getOwner();
    Value reshaped = match.reshape->getResult(0);
    if (!mayReshape || !reshaped.hasOneUse() || tensorType(reshaped).getRank() == 0 ||
        tensorType(reshaped).getShape().back() != tensorType(result).getShape().back())
      return std::nullopt;
    axis = tensorType(reshaped).getRank() - 1;
    use = &*reshaped.use_begin();
  }
  match.add = dyn_cast<linalg::GenericOp>(use->getOwner());
  if (!match.add || !isPlainAddition(match.add) ||
      match.add->getResult(0).getType() != use->get().getType() ||
      !match.add.getMatchingIndexingMap(use).isIdentity() ||
      !match.add.getMatchingIndexingMap(match.add.getDpsInitOperand(0)).isIdentity())
    return std::nullopt;
  OpOperand *other = match.add.getDpsInputOperand(1 - use->getOperandNumber());
  AffineMap map = match.add.getMatchingIndexingMap(other);
  if (map.getNumResults() != 1 || map.getResult(0) != getAffineDimExpr(axis, map.getContext()) ||
      other->get().getType() == use->get().getType())
    return std::nullopt;
  match.bias = other->get();
  return match;
}

static bool isWrittenBetween(ReadOp read, Operation *op) {
  for (Operation *other = op; other != read; other = other->getNextNode())
    if (auto write = dyn_cast<WriteOp>(other); write && write.getVariable() == read.getVariable())
      return true;
  return false;
}

/// Collects, in their order, what must stand in front of `op` so that it can use `value`: reads,
/// views (parts of what ranks have gathered, above all), and the elementwise code that widens what
/// these give. Whether that is all that is missing.
static bool collectMissing(Value value, Operation *op, SetVector<Operation *> &missing) {
  Operation *producer = value.getDefiningOp();
  if (!producer)
    return true;
  if (producer->getBlock() != op->getBlock())
    return false;
  if (producer->isBeforeInBlock(op))
    return true;
  if (auto read = dyn_cast<ReadOp>(producer)) {
    if (isWrittenBetween(read, op))
      return false;
  } else {
    auto generic = dyn_cast<linalg::GenericOp>(producer);
    SetVector<Value> captured;
    if (generic)
      getUsedValuesDefinedAbove(generic.getRegion(), captured);
    if (!isa<tensor::EmptyOp, tensor::ExtractSliceOp>(producer) && !isReshape(producer) &&
        (!generic || generic.getNumReductionLoops() != 0 || !captured.empty()))
      return false;
    for (Value operand : producer->getOperands())
      if (!collectMissing(operand, op, missing))
        return false;
  }
  missing.insert(producer);
  return true;
}

/// The bias must be known where the call stands. A parameter is, wherever the step reads it.
static bool makeAvailableBefore(Value value, Operation *op) {
  SetVector<Operation *> missing;
  if (!collectMissing(value, op, missing))
    return false;
  for (Operation *producer : missing)
    putBefore(producer, op);
  return true;
}

/// Whether `generic` rounds its operand element by element and does nothing else.
static bool isPlainRounding(linalg::GenericOp generic) {
  if (generic.getNumDpsInputs() != 1 || generic.getNumResults() != 1 ||
      generic.getNumReductionLoops() != 0 ||
      !llvm::all_of(generic.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return false;
  Block &body = *generic.getBody();
  auto yield = cast<linalg::YieldOp>(body.getTerminator());
  auto truncation = yield.getValues()[0].getDefiningOp<arith::TruncFOp>();
  return truncation && body.getOperations().size() == 2 &&
         truncation.getIn() == body.getArgument(0);
}

/// The rounding of `value` to `type` that is its only use; null where there is none.
static linalg::GenericOp findRounding(Value value, Type type) {
  if (!value.hasOneUse())
    return nullptr;
  auto rounding = dyn_cast<linalg::GenericOp>(*value.user_begin());
  return rounding && isPlainRounding(rounding) &&
                 tensorType(rounding->getResult(0)).getElementType() == type
             ? rounding
             : nullptr;
}

std::optional<BiasAddition> LibraryCallBuilder::takeBias(Value result, int64_t axis,
                                                         bool mayReshape) {
  std::optional<BiasAddition> match = matchAddition(result, axis, mayReshape);
  if (!match || !makeAvailableBefore(match->bias, op))
    return std::nullopt;
  addPacked(match->bias);
  return match;
}

std::optional<BiasAddition> LibraryCallBuilder::takeRoundedBias(Value result, int64_t axis,
                                                                Type type) {
  std::optional<BiasAddition> match = matchAddition(result, axis, /*mayReshape=*/true);
  if (!match || !findRounding(match->add->getResult(0), type) ||
      !makeAvailableBefore(match->bias, op))
    return std::nullopt;
  ImplicitLocOpBuilder b(match->bias.getLoc(), op);
  ArrayRef<int64_t> length = tensorType(match->bias).getShape();
  AffineMap map = b.getMultiDimIdentityMap(1);
  Value rounded =
      createPointwise(b, length, Read{match->bias, map}, type,
                      [&](ImplicitLocOpBuilder &b, ValueRange scalars) -> SmallVector<Value> {
                        return {convertTo(b, scalars[0], type)};
                      })
          .front();
  setPhase(rounded.getDefiningOp(), getPhase(op));
  match->isRounded = true;
  addPacked(rounded);
  return match;
}

//===----------------------------------------------------------------------===//
// Relu
//===----------------------------------------------------------------------===//

/// Whether `generic` gives 0 for elements that are not above 0, and all others as they are.
static bool isPlainRelu(linalg::GenericOp generic) {
  if (generic.getNumDpsInputs() != 1 || generic.getNumResults() != 1 ||
      !llvm::all_of(generic.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return false;
  Block &body = *generic.getBody();
  Value x = body.getArgument(0);
  auto isZero = [&](Value value) { return matchPattern(value, m_AnyZeroFloat()); };
  auto select =
      cast<linalg::YieldOp>(body.getTerminator()).getValues()[0].getDefiningOp<arith::SelectOp>();
  auto compare = select ? select.getCondition().getDefiningOp<arith::CmpFOp>() : arith::CmpFOp();
  return compare && compare.getPredicate() == arith::CmpFPredicate::OLE && compare.getLhs() == x &&
         isZero(compare.getRhs()) && isZero(select.getTrueValue()) && select.getFalseValue() == x;
}

linalg::GenericOp mlir::memopt::findRelu(Value value) {
  if (!value.hasOneUse())
    return nullptr;
  auto relu = dyn_cast<linalg::GenericOp>(*value.user_begin());
  return relu && isPlainRelu(relu) && relu->getResult(0).getType() == value.getType() ? relu
                                                                                      : nullptr;
}

//===----------------------------------------------------------------------===//
// Accumulation
//===----------------------------------------------------------------------===//

/// Whether all that is written to the variable that `read` reads is this value.
static bool isOnlyWrite(Value value, ReadOp read, const VariableWrites &writes) {
  auto found = writes.find(read.getVariableAttr());
  return found != writes.end() &&
         llvm::all_of(found->second, [&](WriteOp write) { return write.getValue() == value; });
}

/// Whether a scan's iteration goes on with `value`, which the last one left.
static bool isCarried(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  auto scan = argument ? dyn_cast<ScanOp>(argument.getOwner()->getParentOp()) : ScanOp();
  return scan && llvm::is_contained(scan.getCarriedArguments(), argument);
}

/// Whether `value` is what tiles in front of that of `add` come to, which nothing else reads.
static bool isSumOfTiles(Value value, linalg::GenericOp add) {
  if (isCarried(value))
    return add->hasAttr(kTileAttr) && value.hasOneUse();
  Operation *maker = value.getDefiningOp();
  if (auto cut = dyn_cast_or_null<tensor::ExtractSliceOp>(maker);
      cut && cut.getSource().hasOneUse())
    maker = cut.getSource().getDefiningOp<LibraryCallOp>();
  return add->hasAttr(kTileAttr) && value.hasOneUse() &&
         isa_and_nonnull<LibraryCallOp, ReadOp>(maker) && maker->getBlock() == add->getBlock();
}

/// Whether lines follow each other; there may be more of them behind.
static bool hasPackedLines(const StridedView &view) {
  return view.offset == 0 && llvm::equal(view.strides, computeStrides(view.shape));
}

linalg::GenericOp LibraryCallBuilder::takeAccumulation(bool mayPermute,
                                                       const VariableWrites &writes) {
  Value result = op->getResult(0);
  if (!result.hasOneUse())
    return nullptr;
  OpOperand &use = *result.use_begin();
  auto add = dyn_cast<linalg::GenericOp>(use.getOwner());
  if (!add || add->getBlock() != op->getBlock() || !isPlainAddition(add) ||
      !(mayPermute ? add.getMatchingIndexingMap(&use).isPermutation()
                   : add.getMatchingIndexingMap(&use).isIdentity()) ||
      !add.getMatchingIndexingMap(add.getDpsInitOperand(0)).isIdentity() ||
      tensorType(add->getResult(0)).getElementType() != tensorType(result).getElementType())
    return nullptr;
  OpOperand *other = add.getDpsInputOperand(1 - use.getOperandNumber());
  if (other->get().getType() != add->getResult(0).getType() ||
      !add.getMatchingIndexingMap(other).isIdentity())
    return nullptr;
  // A call goes on with lines that lie as those of its result: not with a slice of longer ones.
  StridedView before = getStridedView(other->get());
  bool isSumOfParts = add->hasAttr(kSumOfPartsAttr) && other->get().hasOneUse() &&
                      use.getOperandNumber() == 1 && before.isPacked();
  if (isSumOfParts || (isSumOfTiles(other->get(), add) && hasPackedLines(before))) {
    addOperand(before);
    return add;
  }
  auto read = other->get().getDefiningOp<ReadOp>();
  if (!read || read->getBlock() != op->getBlock() || !isOnlyWrite(add->getResult(0), read, writes))
    return nullptr;
  // Nothing is written to it in between: the only write is of the sum.
  if (!read->isBeforeInBlock(op))
    putBefore(read, op);
  addOperand(getStridedView(read.getResult()));
  return add;
}

void mlir::memopt::replaceAccumulation(linalg::GenericOp add, Value made) {
  add->getResult(0).replaceAllUsesWith(made);
  add->erase();
}

//===----------------------------------------------------------------------===//
// Rounding
//===----------------------------------------------------------------------===//

Type LibraryCallBuilder::takeRounding(std::optional<BiasAddition> &bias, Type type) {
  Value result = op->getResult(0), stored = bias ? bias->add->getResult(0) : result;
  Type wide = tensorType(stored).getElementType();
  linalg::GenericOp rounding = wide == type ? nullptr : findRounding(stored, type);
  if (!rounding)
    return wide;
  result.setType(tensorType(result).clone(type));
  if (bias) {
    bias->rounding = rounding;
    return type;
  }
  rounding->getResult(0).replaceAllUsesWith(result);
  moveActivationNumber(rounding, op);
  rounding->erase();
  return type;
}

void mlir::memopt::replaceWithBias(const BiasAddition &match, Value made) {
  linalg::GenericOp add = match.add;
  OpBuilder b(add);
  Value sum = made;
  if (match.reshape) {
    IRMapping mapping;
    mapping.map(match.reshape->getOperand(0), made);
    sum = b.clone(*match.reshape, mapping)->getResult(0);
    sum.setType(tensorType(sum).clone(tensorType(made).getElementType()));
  }
  linalg::GenericOp last = match.rounding ? match.rounding : add;
  moveActivationNumber(last, made.getDefiningOp());
  last->getResult(0).replaceAllUsesWith(sum);
  if (match.rounding)
    last->erase();
  add->erase();
  if (match.reshape)
    match.reshape->erase();
}
