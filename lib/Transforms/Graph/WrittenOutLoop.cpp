//===- WrittenOutLoop.cpp - a loop whose turns stand one behind the other -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WrittenOutLoop.h"
#include "LoopBody.h"

#include "memopt/Dialect/LoopCuts.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Dialect/ViewBuilders.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
class WrittenOutLoop {
public:
  WrittenOutLoop(ArrayRef<Operation *> ops, size_t period) : body(ops, period) {}

  LogicalResult roll();

private:
  using Kind = LoopBody::Kind;
  using Input = LoopBody::Input;
  /// A product of a slice and a fixed value, which is taken once for all turns of a loop.
  struct Product {
    size_t slice, fixed; ///< inputs
    bool transposesFixed;
    BlockArgument inside;
  };

  bool mayBeWorthIt() const;
  bool isWorthIt() const;
  // What is read of it.
  void collectResults();
  bool isReadOutside(Value value) const;
  LogicalResult finishCarried();
  void takeProductsOut();
  bool leaves(Operation *op) const;
  // The loops.
  void decideDirection();
  void createLoops();
  ScanOp createLoop(int64_t first, int64_t number, ArrayRef<Value> carried);
  SmallVector<Value> createProducts(int64_t first, int64_t number);
  void replaceResults(ScanOp scan, int64_t first, int64_t number);
  void eraseTurns();
  /// The lowest of the slices that `number` turns from `first` on read.
  int64_t findFirst(const Input &input, int64_t first, int64_t number) const {
    return reverse ? input.first - first - number + 1 : input.first + first;
  }

  LoopBody body;
  SmallVector<Product> products;
  bool reverse = false;
  /// Results, by their op's place in a turn and their number, that are read of several turns, and of
  /// the last one alone.
  SmallVector<std::pair<size_t, unsigned>> stacked, last;
  SmallVector<Value> nextValues; ///< of what is carried
};
} // namespace

/// So many turns that read slices are a long kernel.
static constexpr size_t kManyTurns = 64;

static bool hasProducts(ArrayRef<Operation *> ops) {
  return llvm::any_of(ops,
                      [](Operation *op) { return op->hasTrait<OpTrait::ComputedByLibrary>(); });
}

/// Whether `value` is a slice behind ops that move elements.
static bool isSliced(Value value) {
  for (Operation *op = value.getDefiningOp(); op && movesElements(op) && op->getNumOperands();
       op = op->getOperand(0).getDefiningOp())
    if (isa<tensor::ExtractSliceOp>(op))
      return true;
  return false;
}

/// What the first turn's ops alone say of `isWorthIt`: most of what repeats itself is elementwise,
/// and need not be compared turn by turn.
bool WrittenOutLoop::mayBeWorthIt() const {
  ArrayRef<Operation *> turn = body.ops.take_front(body.period);
  return hasProducts(turn) || (body.count >= kManyTurns && llvm::any_of(turn, [](Operation *op) {
                                 return llvm::any_of(op->getOperands(), isSliced);
                               }));
}

/// Elementwise ops one behind the other are one kernel, whose values stay in registers: no loop is
/// as good. One with products is, and one that reads slices in so many turns that the kernel would
/// be long.
bool WrittenOutLoop::isWorthIt() const {
  auto has = [&](Kind kind) {
    return llvm::any_of(body.inputs, [&](const Input &input) {
      return input.kind == kind && !matchPattern(input.whole, m_Constant());
    });
  };
  bool isCarried =
      llvm::any_of(body.inputs, [](const Input &input) { return input.kind == Kind::Carried; });
  return isCarried && (hasProducts(body.made) || (has(Kind::Slice) && body.count >= kManyTurns));
}

//===----------------------------------------------------------------------===//
// What the loop leaves
//===----------------------------------------------------------------------===//

/// Whether something else than the turns reads `value`.
bool WrittenOutLoop::isReadOutside(Value value) const {
  SmallVector<Value> open{value};
  while (!open.empty()) {
    for (Operation *user : open.pop_back_val().getUsers()) {
      if (body.isOfTurn(user))
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
  for (size_t place = 0; place < body.period; ++place)
    for (unsigned number = 0; number < body.ops[place]->getNumResults(); ++number) {
      auto isRead = [&](size_t turn) {
        return isReadOutside(body.getOp(turn, place)->getResult(number));
      };
      bool isReadBefore = llvm::any_of(llvm::seq<size_t>(0, body.count - 1), isRead);
      if (isReadBefore)
        stacked.push_back({place, number});
      else if (isRead(body.count - 1))
        last.push_back({place, number});
    }
}

/// The next values of all that is carried, and a carried value for each that the last turn leaves.
LogicalResult WrittenOutLoop::finishCarried() {
  for (size_t number = 0; number < body.inputs.size(); ++number) { // which may become more
    if (body.inputs[number].kind != Kind::Carried)
      continue;
    Value next = body.get(SmallVector<Value>(body.inputs[number].next));
    if (!next)
      return failure();
    nextValues.push_back(next);
  }
  for (auto [place, number] : last) {
    Value value = body.made[place]->getResult(number);
    if (llvm::is_contained(nextValues, value))
      continue;
    body.addInput({Kind::Carried,
                   {},
                   createSplat(body.outside, body.location, tensorType(value), 0),
                   0,
                   false,
                   {}});
    nextValues.push_back(value);
  }
  return success();
}

/// Whether something outside of a turn is made of what `op` in the body gives.
bool WrittenOutLoop::leaves(Operation *op) const {
  auto isOf = [&](std::pair<size_t, unsigned> result) { return body.made[result.first] == op; };
  return llvm::any_of(nextValues, [&](Value value) { return value.getDefiningOp() == op; }) ||
         llvm::any_of(stacked, isOf) || llvm::any_of(last, isOf);
}

/// Products that do not wait for the turn before, and are read inside alone, are taken once for all
/// turns of a loop.
void WrittenOutLoop::takeProductsOut() {
  auto findInput = [&](Value value, Kind kind) {
    auto input = llvm::find_if(body.inputs, [&](const Input &input) {
      return input.kind == kind && input.inside == value;
    });
    return static_cast<size_t>(input - body.inputs.begin());
  };
  for (auto product : body.block.getOps<MatmulOp>()) {
    if (product.getTransposeA() || leaves(product) || tensorType(product).getRank() != 2)
      continue;
    size_t slice = findInput(product->getOperand(0), Kind::Slice);
    size_t fixed = findInput(product->getOperand(1), Kind::Fixed);
    if (slice == body.inputs.size() || fixed == body.inputs.size())
      continue;
    BlockArgument argument = body.block.addArgument(product.getType(), body.location);
    products.push_back({slice, fixed, product.getTransposeB(), argument});
    product.getResult().replaceAllUsesWith(argument);
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body.block)))
    if (isOpTriviallyDead(&op) && !leaves(&op))
      op.erase();
}

//===----------------------------------------------------------------------===//
// The loops
//===----------------------------------------------------------------------===//

/// A loop goes through all its slices in one direction; what goes the other way is turned around.
void WrittenOutLoop::decideDirection() {
  auto isSlice = [](const Input &input) { return input.kind == Kind::Slice; };
  auto all = llvm::make_filter_range(body.inputs, isSlice);
  reverse = !all.empty() && llvm::all_of(all, [](const Input &input) { return input.turnsBack; });
  for (Input &input : body.inputs) {
    if (!isSlice(input) || input.turnsBack == reverse)
      continue;
    int64_t size = tensorType(input.whole).getDimSize(0);
    input.whole = ReverseOp::create(body.outside, body.location, input.whole.getType(), input.whole,
                                    ArrayRef<int64_t>(0));
    input.first = size - 1 - input.first;
    input.turnsBack = reverse;
  }
}

/// The results of the products for `number` turns from `first` on, as slices.
SmallVector<Value> WrittenOutLoop::createProducts(int64_t first, int64_t number) {
  OpBuilder &builder = body.outside;
  return llvm::map_to_vector(products, [&](const Product &product) {
    const Input &slices = body.inputs[product.slice];
    RankedTensorType from = tensorType(slices.inside), to = tensorType(product.inside);
    Value rows =
        takeLeading(builder, body.location, slices.whole, findFirst(slices, first, number), number);
    rows =
        reshapeTo(builder, body.location, rows, {number * from.getDimSize(0), from.getDimSize(1)});
    Value results = MatmulOp::create(
        builder, body.location, to.clone({number * to.getDimSize(0), to.getDimSize(1)}), rows,
        body.inputs[product.fixed].whole, /*transpose_a=*/false, product.transposesFixed);
    return reshapeTo(builder, body.location, results, {number, to.getDimSize(0), to.getDimSize(1)});
  });
}

/// The loop of `number` turns from `first` on, which begins with `carried`.
ScanOp WrittenOutLoop::createLoop(int64_t first, int64_t number, ArrayRef<Value> carried) {
  SmallVector<Value> operands[3], arguments[3]; // by kind
  SmallVector<int64_t> firsts;
  auto add = [&](Kind kind, Value operand, Value argument) {
    operands[static_cast<int>(kind)].push_back(operand);
    arguments[static_cast<int>(kind)].push_back(argument);
  };
  for (const Input &input : body.inputs) {
    if (input.kind == Kind::Carried) {
      add(Kind::Carried, carried[arguments[static_cast<int>(Kind::Carried)].size()], input.inside);
    } else if (!input.inside.use_empty()) {
      add(input.kind, input.whole, input.inside);
      if (input.kind == Kind::Slice)
        firsts.push_back(findFirst(input, first, number));
    }
  }
  for (auto [product, results] : llvm::zip(products, createProducts(first, number))) {
    add(Kind::Slice, results, product.inside);
    firsts.push_back(0);
  }
  OpBuilder &builder = body.outside;
  auto scan = ScanOp::create(builder, body.location, operands[0], operands[1], firsts, operands[2],
                             number, reverse);
  IRMapping mapping;
  auto own = scan.getBody().args_begin();
  for (ArrayRef<Value> group : arguments)
    for (Value argument : group)
      mapping.map(argument, *own++);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(&scan.getBody().front());
  for (Operation &op : body.block)
    builder.clone(op, mapping);
  return ScanOp::finish(builder, scan);
}

/// Whoever read a result of a turn reads the slice that the loop left of it.
void WrittenOutLoop::replaceResults(ScanOp scan, int64_t first, int64_t number) {
  for (auto [result, key] : llvm::zip(scan.getStacked(), stacked)) {
    auto [place, which] = key;
    for (int64_t turn = 0; turn < number; ++turn) {
      Value value = body.getOp(first + turn, place)->getResult(which);
      if (!isReadOutside(value))
        continue;
      Value slice =
          takeLeading(body.outside, body.location, result, reverse ? number - 1 - turn : turn, 1);
      value.replaceUsesWithIf(
          reshapeTo(body.outside, body.location, slice, tensorType(value).getShape()),
          [&](OpOperand &use) { return !body.isOfTurn(use.getOwner()); });
    }
  }
}

void WrittenOutLoop::createLoops() {
  SmallVector<Value> carried, yielded(nextValues);
  for (const Input &input : body.inputs)
    if (input.kind == Kind::Carried)
      carried.push_back(input.whole);
  for (auto [place, number] : stacked)
    yielded.push_back(body.made[place]->getResult(number));
  YieldOp::create(body.inside, body.location, yielded);
  int64_t first = 0;
  for (int64_t number : cutLoop(static_cast<int64_t>(body.count))) {
    ScanOp scan = createLoop(first, number, carried);
    llvm::copy(scan.getLastValues(), carried.begin());
    replaceResults(scan, first, number);
    first += number;
  }
  for (auto [place, number] : last) {
    size_t which = llvm::find(nextValues, body.made[place]->getResult(number)) - nextValues.begin();
    body.getOp(body.count - 1, place)
        ->getResult(number)
        .replaceUsesWithIf(carried[which],
                           [&](OpOperand &use) { return !body.isOfTurn(use.getOwner()); });
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
  for (Operation *op : llvm::reverse(body.ops)) {
    for (Value result : op->getResults())
      eraseReaders(result);
    op->erase();
  }
}

LogicalResult WrittenOutLoop::roll() {
  if (!mayBeWorthIt())
    return failure();
  Operation *before = body.ops.front()->getPrevNode();
  bool isLoop = succeeded(body.build()) && isWorthIt();
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
  for (Operation *op = body.ops.front()->getPrevNode(); op && op != before;) {
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
