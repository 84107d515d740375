//===- LoopBody.cpp - what the turns of a written-out loop have in common -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoopBody.h"
#include "JoinedSlices.h"

#include "memopt/Dialect/Memopt.h"
#include "memopt/Dialect/ViewBuilders.h"
#include "memopt/Transforms/Utils/PlaceOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;

/// A value comes from this many turns before at most.
static constexpr size_t kMostLag = 3;
/// This many ops that move elements are looked through.
static constexpr unsigned kLongestChain = 32;

bool memopt::movesElements(Operation *op) {
  if (op->getNumResults() != 1 || op->getNumRegions() ||
      !isa<RankedTensorType>(op->getResult(0).getType()))
    return false;
  return op->hasTrait<OpTrait::ConstantLike>() ||
         (isa<ViewOpInterface>(op) && op->getNumOperands() == 1);
}

LoopBody::LoopBody(ArrayRef<Operation *> ops, size_t period)
    : ops(ops), period(period), count(ops.size() / period), location(ops.front()->getLoc()),
      outside(ops.front()), inside(ops.front()->getContext()) {
  inside.setInsertionPointToEnd(&block);
  for (auto [place, op] : llvm::enumerate(ops))
    places[op] = place;
}

LoopBody::~LoopBody() {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    op.erase();
}

//===----------------------------------------------------------------------===//
// In front of the loop
//===----------------------------------------------------------------------===//

/// The turn that has made `value`, ops that move elements looked through; nothing where none has.
std::optional<size_t> LoopBody::findTurn(Value value) const {
  Operation *op = value.getDefiningOp();
  for (unsigned length = 0; op && movesElements(op); ++length) {
    if (op->getNumOperands() == 0)
      return std::nullopt;
    if (length == kLongestChain)
      return count; // none of them
    op = op->getOperand(0).getDefiningOp();
  }
  auto place = places.find(op);
  return place == places.end() ? std::nullopt : std::optional(place->second / period);
}

/// What stands between the turns and comes from outside may stand in front of them.
bool LoopBody::moveOutside(Value value) {
  if (findTurn(value))
    return false;
  SmallVector<Operation *> chain;
  for (Operation *op = value.getDefiningOp();
       op && op->getBlock() == ops.front()->getBlock() && ops.front()->isBeforeInBlock(op);) {
    if (!movesElements(op))
      return false;
    chain.push_back(op);
    op = op->getNumOperands() ? op->getOperand(0).getDefiningOp() : nullptr;
  }
  for (Operation *op : llvm::reverse(chain))
    putBefore(op, ops.front());
  return true;
}

//===----------------------------------------------------------------------===//
// The body
//===----------------------------------------------------------------------===//

BlockArgument LoopBody::addInput(Input input) {
  Type type = input.whole.getType();
  if (input.kind == Kind::Slice)
    type = cast<RankedTensorType>(type).clone(tensorType(input.whole).getShape().drop_front());
  input.inside = block.addArgument(type, location);
  inputs.push_back(input);
  return input.inside;
}

/// What a value is in the body; null where the turns differ in another way than a loop's.
Value LoopBody::get(Turns turns) {
  std::vector<const void *> key;
  for (Value value : turns)
    key.push_back(value.getAsOpaquePointer());
  if (auto entry = known.find(key); entry != known.end())
    return entry->second;
  Value found = find(turns);
  known[key] = found;
  return found;
}

Value LoopBody::find(Turns turns) {
  if (turns.empty() ||
      !llvm::all_equal(llvm::map_range(turns, [](Value v) { return v.getType(); })))
    return Value();
  if (llvm::all_equal(turns) && !matchPattern(turns.front(), m_Constant()))
    return getFixed(turns.front());
  if (Value value = getOfSameTurn(turns))
    return value;
  if (Value value = getJoined(turns))
    return value;
  if (Value value = getMoved(turns))
    return value;
  return getCarried(turns);
}

Value LoopBody::getFixed(Value value) {
  return moveOutside(value) ? addInput({Kind::Fixed, {}, value, 0, false, {}}) : Value();
}

/// A result of the body's own op.
Value LoopBody::getOfSameTurn(Turns turns) {
  std::optional<std::pair<size_t, unsigned>> shared;
  for (auto [turn, value] : llvm::enumerate(turns)) {
    auto place = places.find(value.getDefiningOp());
    if (place == places.end() || place->second / period != turn)
      return Value();
    std::pair<size_t, unsigned> own{place->second % period,
                                    cast<OpResult>(value).getResultNumber()};
    if (shared && *shared != own)
      return Value();
    shared = own;
  }
  return shared->first < made.size() ? made[shared->first]->getResult(shared->second) : Value();
}

/// Alike ops that move elements, of operands that the body has.
Value LoopBody::getMoved(Turns turns) {
  Operation *first = turns.front().getDefiningOp();
  if (!first || !movesElements(first))
    return Value();
  bool hasEqualAttributes = true;
  SmallVector<Value> operands;
  for (Value value : turns) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getName() != first->getName() ||
        op->getOperandTypes() != first->getOperandTypes())
      return Value();
    hasEqualAttributes &= op->getAttrDictionary() == first->getAttrDictionary();
    llvm::append_range(operands, op->getOperands());
  }
  if (first->getNumOperands() == 0)
    return hasEqualAttributes ? inside.clone(*first)->getResult(0) : getConstant(turns);
  if (!hasEqualAttributes)
    return getSlice(turns);
  Value operand = get(operands);
  if (!operand)
    return Value();
  if (isReshape(first))
    return reshapeTo(inside, first->getLoc(), operand, tensorType(turns.front()).getShape());
  IRMapping mapping;
  mapping.map(first->getOperand(0), operand);
  return inside.clone(*first, mapping)->getResult(0);
}

/// Numbers that differ from turn to turn, each the same in all of its tensor.
Value LoopBody::getConstant(Turns turns) {
  if (turns.size() != count)
    return Value();
  SmallVector<Attribute> numbers;
  for (Value value : turns) {
    SplatElementsAttr splat;
    if (!matchPattern(value, m_Constant(&splat)))
      return Value();
    numbers.push_back(splat.getSplatValue<Attribute>());
  }
  auto type = tensorType(turns.front());
  auto all = RankedTensorType::get(static_cast<int64_t>(count), type.getElementType());
  Value whole = arith::ConstantOp::create(outside, location, DenseElementsAttr::get(all, numbers));
  Value number = addInput({Kind::Slice, {}, whole, 0, false, {}});
  return type.getRank() == 0
             ? number
             : BroadcastOp::create(inside, location, type, number, ArrayRef<int64_t>()).getResult();
}

/// Slices that step along one dimension of a value from outside.
Value LoopBody::getSlice(Turns turns) {
  auto first = turns.front().getDefiningOp<tensor::ExtractSliceOp>();
  if (!first || turns.size() != count || count < 2)
    return Value();
  auto offsetsOf = [](Value value) {
    return value.getDefiningOp<tensor::ExtractSliceOp>().getStaticOffsets();
  };
  ArrayRef<int64_t> start = offsetsOf(turns[0]), second = offsetsOf(turns[1]);
  SmallVector<int64_t> steps = llvm::map_to_vector(
      llvm::zip(start, second), [](auto pair) { return std::get<1>(pair) - std::get<0>(pair); });
  auto moving = llvm::find_if(steps, [](int64_t step) { return step != 0; });
  if (moving == steps.end() || llvm::count(steps, 0) + 1 != static_cast<int64_t>(steps.size()))
    return Value();
  size_t dim = moving - steps.begin();
  int64_t size = first.getStaticSizes()[dim], step = *moving;
  RankedTensorType type = first.getSourceType();
  if (!first.hasUnitStride() || first.getType().getRank() != type.getRank() ||
      ShapedType::isDynamicShape(start))
    return Value();
  for (auto [turn, value] : llvm::enumerate(turns)) {
    auto slice = value.getDefiningOp<tensor::ExtractSliceOp>();
    SmallVector<int64_t> expected(start);
    expected[dim] += step * static_cast<int64_t>(turn);
    if (slice.getSource() != first.getSource() ||
        slice.getStaticSizes() != first.getStaticSizes() ||
        slice.getStaticStrides() != first.getStaticStrides() ||
        slice.getStaticOffsets() != ArrayRef(expected))
      return Value();
  }
  if ((std::abs(step) != size || start[dim] % size || type.getDimSize(dim) % size) ||
      !moveOutside(first.getSource()))
    return Value();
  Value &whole = sliced[{first.getSource().getAsOpaquePointer(), dim, size}];
  if (!whole) { // [n, size] in the place of the dimension, without a size of 1, and n in front
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] /= size;
    if (size != 1)
      shape.insert(shape.begin() + dim + 1, size);
    SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
    std::rotate(order.begin(), order.begin() + dim, order.begin() + dim + 1);
    whole = reshapeTo(outside, location, first.getSource(), shape);
    whole = transposeTo(outside, location, whole, order);
  }
  SmallVector<int64_t> sizes(type.getShape()), offsets(start);
  sizes[dim] = size;
  offsets[dim] = 0;
  Value slice = reshapeTo(inside, location, addSlices(whole, start[dim] / size, step < 0), sizes);
  ArrayRef<int64_t> result = first.getType().getShape();
  if (ArrayRef(sizes) == result)
    return slice;
  auto asIndices = [&](ArrayRef<int64_t> numbers) { // a part of the other dimensions
    return getAsIndexOpFoldResult(inside.getContext(), numbers);
  };
  return tensor::ExtractSliceOp::create(inside, location, first.getType(), slice,
                                        asIndices(offsets), asIndices(result),
                                        asIndices(SmallVector<int64_t>(sizes.size(), 1)));
}

/// A slice for each turn, `first` in the first one.
Value LoopBody::addSlices(Value whole, int64_t first, bool turnsBack) {
  for (const Input &input : inputs)
    if (input.kind == Kind::Slice && input.whole == whole && input.first == first &&
        input.turnsBack == turnsBack)
      return input.inside;
  return addInput({Kind::Slice, {}, whole, first, turnsBack, {}});
}

/// Slices of what a few loops in front have left, one after the other.
Value LoopBody::getJoined(Turns turns) {
  if (turns.size() != count)
    return Value();
  SmallVector<SliceRun> runs = findSliceRuns(turns);
  constexpr size_t fewest = 4;
  if (runs.size() * fewest > turns.size())
    return Value();
  for (SliceRun &run : runs) {
    if (!moveOutside(run.count == 1 ? run.piece : run.whole))
      return Value();
    run.shape.insert(run.shape.begin(), 1);
  }
  return addSlices(joinRuns(outside, location, runs, 0), 0, false);
}

/// What the turn before left. Its value there is asked for once all of the body is there.
Value LoopBody::getCarried(Turns turns) {
  size_t index = turns.size() - 1;
  std::optional<size_t> turn = index ? findTurn(turns[index]) : std::nullopt;
  if (!turn || *turn >= index || index - *turn > kMostLag || !moveOutside(turns.front()))
    return Value();
  ArrayRef<Value> next = turns.drop_front();
  for (const Input &input : inputs) // the same, asked for with fewer turns
    if (input.kind == Kind::Carried && input.whole == turns.front() &&
        ArrayRef(input.next).take_front(next.size()) == next)
      return input.inside;
  return addInput({Kind::Carried, {}, turns.front(), 0, false, SmallVector<Value>(next)});
}

LogicalResult LoopBody::build() {
  for (size_t place = 0; place < period; ++place) {
    Operation *op = ops[place];
    SmallVector<Value> operands;
    for (unsigned number = 0; number < op->getNumOperands(); ++number) {
      SmallVector<Value> turns;
      for (size_t turn = 0; turn < count; ++turn)
        turns.push_back(getOp(turn, place)->getOperand(number));
      operands.push_back(get(turns));
      if (!operands.back())
        return failure();
    }
    Operation *copy = inside.clone(*op);
    copy->setOperands(operands);
    made.push_back(copy);
  }
  return success();
}
