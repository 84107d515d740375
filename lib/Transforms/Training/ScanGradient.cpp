//===- ScanGradient.cpp - the gradient of a loop is a loop ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Idea:    an iteration of the backward loop has the values that the forward iteration began with,
//          runs its body again, and goes through it in reverse. Carried values become carried
//          gradients; slices give stacked gradients and stacked results take slices of theirs.
// Kept:    what the forward loop leaves for each iteration, its trail: the carried values, and the
//          products, which are not run again. The rest is elementwise and made from these.
// Weights: an operand that all iterations share has a sum of their contributions as its gradient.
//          Where these are products a^T b or sums over dimensions, a and b are stacked and one
//          product, or sum, is taken behind the loop, over the rows of all iterations in their
//          order. Everything else is added up in a carried value.
//
//===----------------------------------------------------------------------===//

#include "ScanGradient.h"
#include "GradientSums.h"
#include "ReverseSweep.h"

#include "memopt/Dialect/ViewBuilders.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Slices along the leading dimension
//===----------------------------------------------------------------------===//

namespace {
/// `count` slices of `whole` from `first` on.
struct Slices {
  Value whole;
  int64_t first = 0;
};
} // namespace

static Value takeSlices(OpBuilder &builder, Location location, Slices slices, int64_t count) {
  return takeLeading(builder, location, slices.whole, slices.first, count);
}

/// What `value` is a run of slices of; else itself.
static Slices findWhole(Value value) {
  Slices found{value};
  while (auto slice = found.whole.getDefiningOp<tensor::ExtractSliceOp>()) {
    RankedTensorType from = slice.getSourceType(), to = slice.getResultType();
    bool cutsFirst = from.getRank() == to.getRank() && slice.hasUnitStride() &&
                     !ShapedType::isDynamicShape(slice.getStaticOffsets()) &&
                     from.getShape().drop_front() == to.getShape().drop_front();
    if (!cutsFirst)
      break;
    found = {slice.getSource(), found.first + slice.getStaticOffsets().front()};
  }
  return found;
}

/// One slice more in front.
static Value addDimension(OpBuilder &builder, Location location, Value value) {
  SmallVector<int64_t> shape{1};
  llvm::append_range(shape, tensorType(value).getShape());
  return reshapeTo(builder, location, value, shape);
}

/// The two leading dimensions as one.
static Value mergeRows(OpBuilder &builder, Location location, Value value) {
  ArrayRef<int64_t> shape = tensorType(value).getShape();
  SmallVector<int64_t> merged{shape[0] * shape[1]};
  llvm::append_range(merged, shape.drop_front(2));
  return reshapeTo(builder, location, value, merged);
}

//===----------------------------------------------------------------------===//
// The backward loop
//===----------------------------------------------------------------------===//

namespace {
class ScanGradient {
public:
  ScanGradient(OpBuilder &builder, ScanOp scan, ArrayRef<bool> needed)
      : builder(builder), scan(scan), needed(needed), location(scan.getLoc()),
        count(scan.getRepeatCount()), carried(scan.getCarried().size()),
        inner(builder.getContext()) {
    inner.setInsertionPointToEnd(&body);
  }

  FailureOr<ScanOp> build(ArrayRef<Value> resultGradients, MutableArrayRef<Value> operandGradients);

private:
  enum class Kind { Fixed, Slice, Kept, History, Carried };
  /// An argument of the body under construction, and where its values come from.
  struct Input {
    Kind kind;
    BlockArgument inside;
    Slices outside;
    unsigned number = 0; ///< of what is kept: its place among the stacked results of the forward
                         ///< loop; of a history: the carried value
  };
  /// A gradient of a fixed operand that is taken once for all iterations.
  struct Deferred {
    unsigned operand;
    RankedTensorType type;
    RankedTensorType rounded; ///< the operand's, where each iteration rounds its term
    std::optional<SmallVector<int64_t>> dimensions; ///< of a sum; else a product a^T b
    SmallVector<Value, 2> values;                   ///< of one iteration
  };

  void findDependent();
  BlockArgument addInput(Kind kind, Type type, Slices outside, unsigned number = 0);
  void copyBody();
  LogicalResult sweep(ArrayRef<Value> resultGradients);
  void collectGradients();
  void collectFixed(unsigned operand);
  bool defer(unsigned operand, Value term);
  void yieldAll();
  void readBack();
  void eraseDeadOps();
  void keepProducts();
  unsigned keep(Value forward);
  void finishForward();
  Value createHistory(unsigned state);
  void stackOutputs();
  void finishLoop();
  Value getStacked(Value inside);
  Value sumDeferred(const Deferred &deferred);
  void setOperandGradients(MutableArrayRef<Value> operandGradients);

  template <typename VisitFn> void forEachOutput(VisitFn visit);
  bool isNeeded(BlockArgument argument) const { return needed[argument.getArgNumber()]; }

  OpBuilder &builder;
  ScanOp scan;
  ArrayRef<bool> needed;
  Location location;
  int64_t count;
  size_t carried;

  DenseSet<Value> dependent; ///< inside of the forward loop
  Block body;                ///< of the backward loop, until finishLoop
  OpBuilder inner;
  IRMapping copies;                 ///< from the forward body
  DenseMap<Value, Value> originals; ///< by copy
  SmallVector<Input> inputs;
  SmallVector<std::pair<Operation *, Operation *>> products; ///< forward, and its copy
  DenseMap<Value, SmallVector<Value>> gradients;   ///< by argument of the forward body: its terms
  llvm::MapVector<unsigned, Value> nextGradients;  ///< by carried value
  llvm::MapVector<unsigned, Value> accumulated;    ///< by fixed operand: the next sum
  llvm::MapVector<unsigned, Value> sliceGradients; ///< by slice
  SmallVector<Deferred> deferred;
  SmallVector<Value> stacked;     ///< inside, in the order of the loop's stacked results
  DenseMap<Value, Slices> wholes; ///< by argument inside that is a slice
  ScanOp loop;                    ///< the backward loop
};
} // namespace

/// What follows from an operand whose gradient is asked for. A carried value does once an iteration
/// has made it from such.
void ScanGradient::findDependent() {
  for (BlockArgument argument : scan.getBody().getArguments())
    if (isNeeded(argument) && holdsRealNumbers(argument))
      dependent.insert(argument);
  for (bool isNew = true; isNew;) {
    isNew = false;
    for (Operation &op : scan.getBody().front().without_terminator()) {
      auto rule = dyn_cast<DifferentiableOpInterface>(op);
      bool depends = llvm::any_of(op.getOpOperands(), [&](OpOperand &operand) {
        return dependent.contains(operand.get()) &&
               (!rule || rule.passesGradient(operand.getOperandNumber()));
      });
      for (Value result : op.getResults())
        if (depends && holdsRealNumbers(result))
          dependent.insert(result);
    }
    for (auto [argument, next] : llvm::zip(scan.getCarriedArguments(), scan.getNextValues()))
      if (dependent.contains(next))
        isNew |= dependent.insert(argument).second;
  }
}

BlockArgument ScanGradient::addInput(Kind kind, Type type, Slices outside, unsigned number) {
  BlockArgument inside = body.addArgument(type, location);
  inputs.push_back({kind, inside, outside, number});
  return inside;
}

void ScanGradient::copyBody() {
  for (auto [argument, operand] : llvm::zip(scan.getFixedArguments(), scan.getFixed()))
    copies.map(argument, addInput(Kind::Fixed, argument.getType(), {operand}));
  for (auto [argument, operand, first] :
       llvm::zip(scan.getSliceArguments(), scan.getSlices(), scan.getFirsts()))
    copies.map(argument, addInput(Kind::Slice, argument.getType(), {operand, first}));
  for (auto [number, argument] : llvm::enumerate(scan.getCarriedArguments()))
    copies.map(argument, addInput(Kind::History, argument.getType(), {}, number));
  for (Operation &op : scan.getBody().front().without_terminator()) {
    Operation *copy = inner.clone(op, copies);
    for (auto [made, original] : llvm::zip(copy->getResults(), op.getResults()))
      originals[made] = original;
    if (op.hasTrait<OpTrait::ComputedByLibrary>())
      products.push_back({&op, copy});
  }
}

LogicalResult ScanGradient::sweep(ArrayRef<Value> resultGradients) {
  DenseSet<Value> onPath;
  for (Value value : dependent)
    onPath.insert(copies.lookup(value));
  SmallVector<Operation *> forward = llvm::map_to_vector(body, [](Operation &op) { return &op; });
  ReverseSweep sweep(
      inner, [&](Value value) { return onPath.contains(value); },
      [](Operation *, InFlightDiagnostic &diagnostic) {
        diagnostic << " in a loop between trainable parameters and the loss";
      });
  for (auto [number, next] : llvm::enumerate(scan.getNextValues())) {
    if (!dependent.contains(scan.getCarriedArguments()[number]))
      continue;
    Value start = resultGradients[number];
    if (!start)
      start = createSplat(builder, location, tensorType(scan.getCarried()[number]), 0);
    BlockArgument gradient = addInput(Kind::Carried, next.getType(), {start}, number);
    sweep.contribute(copies.lookup(next), gradient);
  }
  for (auto [slice, gradient] :
       llvm::zip(scan.getYieldedSlices(), resultGradients.drop_front(carried)))
    if (dependent.contains(slice) && gradient && !isZeroGradient(gradient))
      sweep.contribute(copies.lookup(slice),
                       addInput(Kind::Slice, slice.getType(), findWhole(gradient)));
  for (Operation *op : llvm::reverse(forward))
    if (failed(sweep.visit(op)))
      return failure();
  for (BlockArgument argument : scan.getBody().getArguments())
    gradients[argument] = SmallVector<Value>(sweep.getContributions(copies.lookup(argument)));
  return success();
}

//===----------------------------------------------------------------------===//
// Sums of the operands' gradients
//===----------------------------------------------------------------------===//

/// Whether a term can be taken once for all iterations. What each iteration would round is then
/// rounded once, behind the sum.
bool ScanGradient::defer(unsigned operand, Value term) {
  Deferred made{operand, {}, tensorType(term), std::nullopt, {}};
  if (auto rounding = term.getDefiningOp<arith::TruncFOp>())
    term = rounding.getIn();
  made.type = tensorType(term);
  Operation *op = term.getDefiningOp();
  if (auto product = dyn_cast_or_null<MatmulOp>(op)) {
    if (!product.getTransposeA() || product.getTransposeB() || tensorType(term).getRank() != 2)
      return false;
  } else if (auto sum = dyn_cast_or_null<ReduceOp>(op); sum && sum.getKind() == ReduceKind::Add) {
    made.dimensions = SmallVector<int64_t>{0};
    for (int64_t dim : sum.getDimensions())
      made.dimensions->push_back(dim + 1);
  } else {
    return false;
  }
  llvm::append_range(made.values, op->getOperands());
  deferred.push_back(std::move(made));
  return true;
}

void ScanGradient::collectFixed(unsigned operand) {
  BlockArgument argument = scan.getBody().getArgument(operand);
  SmallVector<Value> rest;
  for (Value term : gradients[argument])
    if (!isZeroGradient(term) && !defer(operand, term))
      rest.push_back(term);
  if (rest.empty())
    return;
  Value zero = createSplat(builder, location, tensorType(argument), 0);
  BlockArgument sum = addInput(Kind::Carried, argument.getType(), {zero});
  Value terms = addUp(inner, location, argument.getType(), rest);
  accumulated[operand] = AccumulateOp::create(inner, location, argument.getType(), sum, terms);
}

void ScanGradient::collectGradients() {
  for (auto [number, argument] : llvm::enumerate(scan.getCarriedArguments())) {
    if (!dependent.contains(argument))
      continue;
    Value sum = addUp(inner, location, argument.getType(), gradients[argument]);
    nextGradients[number] = sum ? sum : createSplat(inner, location, tensorType(argument), 0);
  }
  for (auto [number, argument] : llvm::enumerate(scan.getSliceArguments()))
    if (isNeeded(argument) && !gradients[argument].empty())
      sliceGradients[number] = addUp(inner, location, argument.getType(), gradients[argument]);
  for (unsigned operand = 0; operand < scan.getFixed().size(); ++operand)
    if (needed[operand])
      collectFixed(operand);
}

//===----------------------------------------------------------------------===//
// What the backward loop needs of the forward loop
//===----------------------------------------------------------------------===//

/// All values of an iteration that something outside of the body is made of, in one order.
template <typename VisitFn> void ScanGradient::forEachOutput(VisitFn visit) {
  for (auto *group : {&nextGradients, &accumulated, &sliceGradients})
    for (auto &entry : *group)
      visit(entry.second);
  for (Deferred &term : deferred)
    for (Value &value : term.values)
      visit(value);
}

void ScanGradient::yieldAll() {
  SmallVector<Value> outputs;
  forEachOutput([&](Value value) { outputs.push_back(value); });
  YieldOp::create(inner, location, outputs);
}

/// What is yielded may have been replaced since.
void ScanGradient::readBack() {
  size_t next = 0;
  Operation *yield = body.getTerminator();
  forEachOutput([&](Value &value) { value = yield->getOperand(next++); });
}

void ScanGradient::eraseDeadOps() {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

/// Has the forward loop stack `value`; the place of that among its stacked results.
unsigned ScanGradient::keep(Value value) {
  for (auto [place, slice] : llvm::enumerate(scan.getYieldedSlices()))
    if (slice == value)
      return place;
  YieldOp yield = scan.getYield();
  yield->insertOperands(yield->getNumOperands(), value);
  return yield->getNumOperands() - carried - 1;
}

/// A product that the backward loop reads is a slice of what the forward loop kept. Where one op of
/// the same size is all that reads it, that op's result is kept instead, and need not be made again.
void ScanGradient::keepProducts() {
  DenseSet<Operation *> left; // the others are gone
  for (Operation &op : body)
    left.insert(&op);
  for (auto [forward, copy] : products) {
    if (!left.contains(copy))
      continue;
    for (auto [original, result] : llvm::zip(forward->getResults(), copy->getResults())) {
      Value value = original, made = result;
      while (made.hasOneUse()) {
        Operation *reader = *made.user_begin();
        Value next = reader->getNumResults() == 1 ? reader->getResult(0) : Value();
        Value nextOriginal = next ? originals.lookup(next) : Value();
        if (!nextOriginal || next.getType() != made.getType())
          break;
        made = next;
        value = nextOriginal;
      }
      if (!made.use_empty())
        made.replaceAllUsesWith(addInput(Kind::Kept, made.getType(), {}, keep(value)));
    }
  }
}

/// What each iteration began with: the start, then what the iteration before yielded.
Value ScanGradient::createHistory(unsigned state) {
  Value start = addDimension(builder, location, scan.getCarried()[state]);
  if (count == 1)
    return start;
  Value next = scan.getStacked()[keep(scan.getNextValues()[state])];
  bool isReverse = scan.getReverse();
  Slices others{next, isReverse ? 1 : 0};
  SmallVector<Value> parts{start, takeSlices(builder, location, others, count - 1)};
  if (isReverse)
    std::swap(parts[0], parts[1]);
  return tensor::ConcatOp::create(builder, location, 0, parts);
}

/// Builds the forward loop anew with all that it keeps, and says where that is.
void ScanGradient::finishForward() {
  auto isHistory = [](const Input &input) {
    return input.kind == Kind::History && !input.inside.use_empty();
  };
  for (const Input &input : inputs)
    if (isHistory(input) && count > 1)
      keep(scan.getNextValues()[input.number]);
  OpBuilder::InsertionGuard guard(builder);
  scan = ScanOp::finish(builder, scan);
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

/// Chooses what iterations leave behind, once each.
void ScanGradient::stackOutputs() {
  auto add = [&](Value value) {
    if (!wholes.contains(value) && !llvm::is_contained(stacked, value))
      stacked.push_back(value);
  };
  for (auto &[number, value] : sliceGradients)
    add(value);
  for (const Deferred &term : deferred)
    llvm::for_each(term.values, add);
  SmallVector<Value> outputs;
  for (auto *group : {&nextGradients, &accumulated})
    for (auto &entry : *group)
      outputs.push_back(entry.second);
  llvm::append_range(outputs, stacked);
  body.getTerminator()->setOperands(outputs);
}

/// Builds the loop with the arguments that its body uses.
void ScanGradient::finishLoop() {
  for (Input &input : inputs) {
    if (input.kind == Kind::Kept)
      input.outside = {scan.getStacked()[input.number]};
    if (input.kind == Kind::History && !input.inside.use_empty())
      input.outside = {createHistory(input.number)};
    if (input.kind != Kind::Fixed && input.kind != Kind::Carried)
      wholes[input.inside] = input.outside;
  }
  stackOutputs();
  SmallVector<Value> fixed, slices, starts, arguments[3];
  SmallVector<int64_t> firsts;
  for (const Input &input : inputs) {
    if (input.kind == Kind::Carried) {
      starts.push_back(input.outside.whole);
      arguments[2].push_back(input.inside);
    } else if (input.inside.use_empty()) {
      continue;
    } else if (input.kind == Kind::Fixed) {
      fixed.push_back(input.outside.whole);
      arguments[0].push_back(input.inside);
    } else {
      slices.push_back(input.outside.whole);
      firsts.push_back(input.outside.first);
      arguments[1].push_back(input.inside);
    }
  }
  loop =
      ScanOp::create(builder, location, fixed, slices, firsts, starts, count, !scan.getReverse());
  SmallVector<Value> old;
  for (ArrayRef<Value> group : arguments)
    llvm::append_range(old, group);
  Block &made = loop.getBody().front();
  for (auto [from, to] : llvm::zip_equal(old, made.getArguments()))
    from.replaceAllUsesWith(to);
  made.getOperations().splice(made.end(), body.getOperations());
  OpBuilder::InsertionGuard guard(builder);
  loop = ScanOp::finish(builder, loop);
}

/// All iterations' instances of a value inside of the backward loop.
Value ScanGradient::getStacked(Value inside) {
  if (auto found = wholes.find(inside); found != wholes.end())
    return takeSlices(builder, location, found->second, count);
  return loop.getStacked()[llvm::find(stacked, inside) - stacked.begin()];
}

Value ScanGradient::sumDeferred(const Deferred &terms) {
  SmallVector<Value> values =
      llvm::map_to_vector(terms.values, [&](Value value) { return getStacked(value); });
  Value sum;
  if (terms.dimensions)
    sum = ReduceOp::create(builder, location, terms.type, values[0], ReduceKind::Add,
                           builder.getDenseI64ArrayAttr(*terms.dimensions));
  else
    sum = MatmulOp::create(builder, location, terms.type, mergeRows(builder, location, values[0]),
                           mergeRows(builder, location, values[1]), /*transpose_a=*/true,
                           /*transpose_b=*/false);
  if (terms.type == terms.rounded)
    return sum;
  return arith::TruncFOp::create(builder, location, terms.rounded, sum);
}

void ScanGradient::setOperandGradients(MutableArrayRef<Value> operandGradients) {
  size_t fixed = scan.getFixed().size(), slices = scan.getSlices().size(), result = 0;
  for (auto &[number, next] : nextGradients)
    operandGradients[fixed + slices + number] = loop->getResult(result++);
  DenseMap<unsigned, SmallVector<Value>> terms;
  for (auto &[operand, sum] : accumulated)
    terms[operand].push_back(loop->getResult(result++));
  for (const Deferred &term : deferred)
    terms[term.operand].push_back(sumDeferred(term));
  for (unsigned operand = 0; operand < fixed; ++operand)
    if (auto found = terms.find(operand); found != terms.end())
      operandGradients[operand] =
          addUp(builder, location, scan.getFixed()[operand].getType(), found->second);
  for (auto &[number, value] : sliceGradients) {
    Value part = getStacked(value);
    RankedTensorType whole = tensorType(scan.getSlices()[number]);
    int64_t first = scan.getFirsts()[number], rest = whole.getDimSize(0) - first - count;
    if (first || rest) {
      SmallVector<int64_t> low(whole.getRank(), 0), high(whole.getRank(), 0);
      low[0] = first;
      high[0] = rest;
      part = PadOp::create(builder, location, whole, part, builder.getDenseI64ArrayAttr(low),
                           builder.getDenseI64ArrayAttr(high));
    }
    operandGradients[fixed + number] = part;
  }
}

FailureOr<ScanOp> ScanGradient::build(ArrayRef<Value> resultGradients,
                                      MutableArrayRef<Value> operandGradients) {
  findDependent();
  copyBody();
  if (failed(sweep(resultGradients)))
    return failure();
  collectGradients();
  yieldAll();
  eraseDeadOps();
  keepProducts();
  eraseDeadOps();
  readBack();
  finishForward();
  finishLoop();
  setOperandGradients(operandGradients);
  return scan;
}

FailureOr<ScanOp> mlir::memopt::differentiateScan(OpBuilder &builder, ScanOp scan,
                                                  ArrayRef<Value> resultGradients,
                                                  ArrayRef<bool> needed,
                                                  MutableArrayRef<Value> operandGradients) {
  return ScanGradient(builder, scan, needed).build(resultGradients, operandGradients);
}
