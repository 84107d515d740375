//===- WrittenOutLoop.cpp - a loop whose turns stand one behind the other -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WrittenOutLoop.h"
#include "JoinedSlices.h"

#include "memopt/Dialect/LoopCuts.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Dialect/ViewBuilders.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

#include <map>

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

namespace {
class WrittenOutLoop {
public:
  WrittenOutLoop(ArrayRef<Operation *> ops, size_t period)
      : ops(ops), period(period), count(ops.size() / period), location(ops.front()->getLoc()),
        outside(ops.front()), inside(ops.front()->getContext()) {
    inside.setInsertionPointToEnd(&body);
    for (auto [place, op] : llvm::enumerate(ops))
      places[op] = place;
  }
  ~WrittenOutLoop() {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
      op.erase();
  }

  LogicalResult roll();

private:
  using Turns = ArrayRef<Value>; ///< a value in each turn
  enum class Kind { Fixed, Slice, Carried };
  /// An argument of the body.
  struct Input {
    Kind kind;
    BlockArgument inside;
    Value whole;       ///< the fixed value, that with the slices [n, ...], or the first carried one
    int64_t first = 0; ///< the slice of the first turn
    bool turnsBack = false;
    SmallVector<Value> next; ///< of a carried value: behind each turn but the last
  };
  /// A product of a slice and a fixed value, which is taken once for all turns of a loop.
  struct Product {
    size_t slice, fixed; ///< inputs
    bool transposesFixed;
    BlockArgument inside;
  };

  // What stands in front of the loop.
  std::optional<size_t> findTurn(Value value) const;
  bool moveOutside(Value value);

  // The body.
  LogicalResult buildBody();
  Value get(Turns turns);
  Value find(Turns turns);
  Value getOfSameTurn(Turns turns);
  Value getFixed(Value value);
  Value getMoved(Turns turns);
  Value getConstant(Turns turns);
  Value getSlice(Turns turns);
  Value getJoined(Turns turns);
  Value getCarried(Turns turns);
  Value addSlices(Value whole, int64_t first, bool turnsBack);
  BlockArgument addInput(Input input);
  bool isWorthIt();

  // What is read of it.
  void collectResults();
  bool isReadOutside(Value value) const;
  LogicalResult finishCarried();
  void takeProductsOut();
  bool leaves(Operation *op) const;

  // The loops.
  void decideDirection();
  void createLoops();
  ScanOp createLoop(int64_t first, int64_t number, MutableArrayRef<Value> carried);
  void replaceResults(ScanOp scan, int64_t first, int64_t number);
  void eraseTurns();

  ArrayRef<Operation *> ops;
  size_t period, count;
  Location location;
  OpBuilder outside;
  Block body;
  OpBuilder inside;
  DenseMap<Operation *, size_t> places;
  std::map<std::vector<const void *>, Value> known;
  SmallVector<Operation *> made; ///< of the body, by place in a turn
  SmallVector<Input> inputs;
  SmallVector<Product> products;
  /// By value, dimension and size of a slice: with the slices in front.
  std::map<std::tuple<const void *, size_t, int64_t>, Value> sliced;
  bool reverse = false;
  /// Results, by their op's place in a turn and their number, that are read of several turns, and of
  /// the last one alone.
  SmallVector<std::pair<size_t, unsigned>> stacked, last;
  SmallVector<Value> nextValues; ///< of what is carried
};
} // namespace

//===----------------------------------------------------------------------===//
// In front of the loop
//===----------------------------------------------------------------------===//

/// The turn that has made `value`, ops that move elements looked through; nothing where none has.
std::optional<size_t> WrittenOutLoop::findTurn(Value value) const {
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
bool WrittenOutLoop::moveOutside(Value value) {
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
    op->moveBefore(ops.front());
  return true;
}

//===----------------------------------------------------------------------===//
// The body
//===----------------------------------------------------------------------===//

BlockArgument WrittenOutLoop::addInput(Input input) {
  Type type = input.whole.getType();
  if (input.kind == Kind::Slice)
    type = cast<RankedTensorType>(type).clone(tensorType(input.whole).getShape().drop_front());
  input.inside = body.addArgument(type, location);
  inputs.push_back(input);
  return input.inside;
}

/// What a value is in the body; null where the turns differ in another way than a loop's.
Value WrittenOutLoop::get(Turns turns) {
  std::vector<const void *> key;
  for (Value value : turns)
    key.push_back(value.getAsOpaquePointer());
  if (auto entry = known.find(key); entry != known.end())
    return entry->second;
  Value found = find(turns);
  known[key] = found;
  return found;
}

Value WrittenOutLoop::find(Turns turns) {
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

Value WrittenOutLoop::getFixed(Value value) {
  return moveOutside(value) ? addInput({Kind::Fixed, {}, value, 0, false, {}}) : Value();
}

/// A result of the body's own op.
Value WrittenOutLoop::getOfSameTurn(Turns turns) {
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
Value WrittenOutLoop::getMoved(Turns turns) {
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
Value WrittenOutLoop::getConstant(Turns turns) {
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
Value WrittenOutLoop::getSlice(Turns turns) {
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
Value WrittenOutLoop::addSlices(Value whole, int64_t first, bool turnsBack) {
  for (const Input &input : inputs)
    if (input.kind == Kind::Slice && input.whole == whole && input.first == first &&
        input.turnsBack == turnsBack)
      return input.inside;
  return addInput({Kind::Slice, {}, whole, first, turnsBack, {}});
}

/// Slices of what a few loops in front have left, one after the other.
Value WrittenOutLoop::getJoined(Turns turns) {
  if (turns.size() != count)
    return Value();
  SmallVector<SliceRun> runs = findSliceRuns(turns);
  constexpr size_t fewest = 4;
  if (runs.size() * fewest > turns.size())
    return Value();
  SmallVector<int64_t> shape{1};
  llvm::append_range(shape, tensorType(turns.front()).getShape());
  for (SliceRun &run : runs)
    for (Value &piece : run.pieces) {
      if (!moveOutside(piece))
        return Value();
      piece = reshapeTo(outside, location, piece, shape);
    }
  return addSlices(joinRuns(outside, location, runs, 0), 0, false);
}

/// What the turn before left. Its value there is asked for once all of the body is there.
Value WrittenOutLoop::getCarried(Turns turns) {
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

LogicalResult WrittenOutLoop::buildBody() {
  for (size_t place = 0; place < period; ++place) {
    Operation *op = ops[place];
    IRMapping mapping;
    SmallVector<Value> operands;
    for (unsigned number = 0; number < op->getNumOperands(); ++number) {
      SmallVector<Value> turns;
      for (size_t turn = 0; turn < count; ++turn)
        turns.push_back(ops[turn * period + place]->getOperand(number));
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

/// Elementwise ops one behind the other are one kernel, whose values stay in registers: no loop is as
/// good. One with products is, and one that reads slices in so many turns that the kernel would be
/// long.
bool WrittenOutLoop::isWorthIt() {
  constexpr size_t many = 32;
  bool hasProducts =
      llvm::any_of(made, [](Operation *op) { return op->hasTrait<OpTrait::ComputedByLibrary>(); });
  auto has = [&](Kind kind) {
    return llvm::any_of(inputs, [&](const Input &input) {
      return input.kind == kind && !matchPattern(input.whole, m_Constant());
    });
  };
  bool isCarried =
      llvm::any_of(inputs, [](const Input &input) { return input.kind == Kind::Carried; });
  return isCarried && (hasProducts || (has(Kind::Slice) && count >= many));
}

//===----------------------------------------------------------------------===//
// What the loop leaves
//===----------------------------------------------------------------------===//

/// Whether something else than the turns reads `value`.
bool WrittenOutLoop::isReadOutside(Value value) const {
  SmallVector<Value> open{value};
  while (!open.empty()) {
    for (Operation *user : open.pop_back_val().getUsers()) {
      if (places.contains(user))
        continue;
      if (!movesElements(user))
        return true;
      open.push_back(user->getResult(0));
    }
  }
  return false;
}

/// Sorts what is read behind the loop into what the last turn leaves, and what each does.
void WrittenOutLoop::collectResults() {
  for (size_t place = 0; place < period; ++place)
    for (unsigned number = 0; number < ops[place]->getNumResults(); ++number) {
      auto isRead = [&](size_t turn) {
        return isReadOutside(ops[turn * period + place]->getResult(number));
      };
      bool isReadBefore = llvm::any_of(llvm::seq<size_t>(0, count - 1), isRead);
      if (isReadBefore)
        stacked.push_back({place, number});
      else if (isRead(count - 1))
        last.push_back({place, number});
    }
}

/// The next values of all that is carried, and a carried value for each that the last turn leaves.
LogicalResult WrittenOutLoop::finishCarried() {
  for (size_t number = 0; number < inputs.size(); ++number) { // which may become more
    if (inputs[number].kind != Kind::Carried)
      continue;
    Value next = get(SmallVector<Value>(inputs[number].next));
    if (!next)
      return failure();
    nextValues.push_back(next);
  }
  for (auto [place, number] : last) {
    Value value = made[place]->getResult(number);
    if (llvm::is_contained(nextValues, value))
      continue;
    addInput(
        {Kind::Carried, {}, createSplat(outside, location, tensorType(value), 0), 0, false, {}});
    nextValues.push_back(value);
  }
  return success();
}

/// Whether something outside of a turn is made of what `op` in the body gives.
bool WrittenOutLoop::leaves(Operation *op) const {
  auto isOf = [&](std::pair<size_t, unsigned> result) { return made[result.first] == op; };
  return llvm::any_of(nextValues, [&](Value value) { return value.getDefiningOp() == op; }) ||
         llvm::any_of(stacked, isOf) || llvm::any_of(last, isOf);
}

/// Products that do not wait for the turn before, and are read inside alone, are taken once for all
/// turns of a loop.
void WrittenOutLoop::takeProductsOut() {
  auto findInput = [&](Value value, Kind kind) {
    auto input = llvm::find_if(
        inputs, [&](const Input &input) { return input.kind == kind && input.inside == value; });
    return static_cast<size_t>(input - inputs.begin());
  };
  for (auto product : body.getOps<MatmulOp>()) {
    if (product.getTransposeA() || leaves(product) || tensorType(product).getRank() != 2)
      continue;
    size_t slice = findInput(product->getOperand(0), Kind::Slice);
    size_t fixed = findInput(product->getOperand(1), Kind::Fixed);
    if (slice == inputs.size() || fixed == inputs.size())
      continue;
    BlockArgument argument = body.addArgument(product.getType(), location);
    products.push_back({slice, fixed, product.getTransposeB(), argument});
    product.getResult().replaceAllUsesWith(argument);
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&op) && !leaves(&op))
      op.erase();
}

//===----------------------------------------------------------------------===//
// The loops
//===----------------------------------------------------------------------===//

/// A loop goes through all its slices in one direction; what goes the other way is turned around.
void WrittenOutLoop::decideDirection() {
  auto isSlice = [](const Input &input) { return input.kind == Kind::Slice; };
  auto all = llvm::make_filter_range(inputs, isSlice);
  reverse = !all.empty() && llvm::all_of(all, [](const Input &input) { return input.turnsBack; });
  for (Input &input : inputs) {
    if (!isSlice(input) || input.turnsBack == reverse)
      continue;
    int64_t size = tensorType(input.whole).getDimSize(0);
    input.whole = ReverseOp::create(outside, location, input.whole.getType(), input.whole,
                                    ArrayRef<int64_t>(0));
    input.first = size - 1 - input.first;
    input.turnsBack = reverse;
  }
}

/// The loop of `number` turns from `first` on. `carried`: what it begins with, then what it leaves.
ScanOp WrittenOutLoop::createLoop(int64_t first, int64_t number, MutableArrayRef<Value> carried) {
  SmallVector<Value> operands[3];
  SmallVector<Value> arguments[3];
  SmallVector<int64_t> firsts;
  auto add = [&](Kind kind, Value operand, Value argument) {
    operands[static_cast<int>(kind)].push_back(operand);
    arguments[static_cast<int>(kind)].push_back(argument);
  };
  // The lowest slice.
  auto findFirst = [&](const Input &input) {
    return reverse ? input.first - first - number + 1 : input.first + first;
  };
  for (const Input &input : inputs) {
    if (input.kind == Kind::Carried) {
      add(Kind::Carried, carried[arguments[2].size()], input.inside);
    } else if (!input.inside.use_empty()) {
      add(input.kind, input.whole, input.inside);
      if (input.kind == Kind::Slice)
        firsts.push_back(findFirst(input));
    }
  }
  for (const Product &product : products) {
    const Input &input = inputs[product.slice];
    auto type = tensorType(product.inside);
    auto from = tensorType(input.inside);
    Value rows = takeLeading(outside, location, input.whole, findFirst(input), number);
    rows = reshapeTo(outside, location, rows, {number * from.getDimSize(0), from.getDimSize(1)});
    auto all = type.clone({number * type.getDimSize(0), type.getDimSize(1)});
    Value results = MatmulOp::create(outside, location, all, rows, inputs[product.fixed].whole,
                                     /*transpose_a=*/false, product.transposesFixed);
    add(Kind::Slice,
        reshapeTo(outside, location, results, {number, type.getDimSize(0), type.getDimSize(1)}),
        product.inside);
    firsts.push_back(0);
  }
  auto scan = ScanOp::create(outside, location, operands[0], operands[1], firsts, operands[2],
                             number, reverse);
  IRMapping mapping;
  SmallVector<Value> old;
  for (ArrayRef<Value> group : arguments)
    llvm::append_range(old, group);
  for (auto [argument, own] : llvm::zip_equal(old, scan.getBody().getArguments()))
    mapping.map(argument, own);
  OpBuilder::InsertionGuard guard(outside);
  outside.setInsertionPointToEnd(&scan.getBody().front());
  for (Operation &op : body)
    outside.clone(op, mapping);
  return ScanOp::finish(outside, scan);
}

/// Whoever read a result of a turn reads the slice that the loop left of it.
void WrittenOutLoop::replaceResults(ScanOp scan, int64_t first, int64_t number) {
  for (auto [result, key] : llvm::zip(scan.getStacked(), stacked)) {
    auto [place, which] = key;
    for (int64_t turn = 0; turn < number; ++turn) {
      Value value = ops[(first + turn) * period + place]->getResult(which);
      if (!isReadOutside(value))
        continue;
      Value slice = takeLeading(outside, location, result, reverse ? number - 1 - turn : turn, 1);
      value.replaceUsesWithIf(reshapeTo(outside, location, slice, tensorType(value).getShape()),
                              [&](OpOperand &use) { return !places.contains(use.getOwner()); });
    }
  }
}

void WrittenOutLoop::createLoops() {
  SmallVector<Value> carried, yielded(nextValues);
  for (const Input &input : inputs)
    if (input.kind == Kind::Carried)
      carried.push_back(input.whole);
  for (auto [place, number] : stacked)
    yielded.push_back(made[place]->getResult(number));
  YieldOp::create(inside, location, yielded);
  int64_t first = 0;
  for (int64_t number : cutLoop(static_cast<int64_t>(count))) {
    ScanOp scan = createLoop(first, number, carried);
    llvm::copy(scan.getLastValues(), carried.begin());
    replaceResults(scan, first, number);
    first += number;
  }
  for (auto [place, number] : last) {
    size_t which = llvm::find(nextValues, made[place]->getResult(number)) - nextValues.begin();
    ops[(count - 1) * period + place]->getResult(number).replaceUsesWithIf(
        carried[which], [&](OpOperand &use) { return !places.contains(use.getOwner()); });
  }
}

/// Erases what only moves elements of `value`, for nobody.
static void eraseReaders(Value value) {
  for (Operation *user : llvm::make_early_inc_range(value.getUsers())) {
    eraseReaders(user->getResult(0));
    user->erase();
  }
}

void WrittenOutLoop::eraseTurns() {
  for (Operation *op : llvm::reverse(ops)) {
    for (Value result : op->getResults())
      eraseReaders(result);
    op->erase();
  }
}

LogicalResult WrittenOutLoop::roll() {
  Operation *before = ops.front()->getPrevNode();
  bool isLoop = succeeded(buildBody()) && isWorthIt();
  if (isLoop) {
    collectResults();
    isLoop = succeeded(finishCarried());
  }
  if (isLoop) {
    takeProductsOut();
    decideDirection();
    createLoops();
    eraseTurns();
    return success();
  }
  // What was made in front for nothing.
  for (Operation *op = ops.front()->getPrevNode(); op && op != before;) {
    Operation *previous = op->getPrevNode();
    if (isOpTriviallyDead(op))
      op->erase();
    op = previous;
  }
  return failure();
}

LogicalResult memopt::rollLoop(ArrayRef<Operation *> turns, size_t period) {
  return WrittenOutLoop(turns, period).roll();
}
