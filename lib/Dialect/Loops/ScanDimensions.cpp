//===- ScanDimensions.cpp - iteration spaces of scans -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A scan is as good as its body: two dimensions of its operands and results are one loop when ops of
// the body read and write them with one loop, in whatever iterations. So the dimensions of all
// values inside are put into classes (union-find), and each class that reaches an operand or result
// is a loop of the scan.
//
// A class is parallel where every op treats it so. It is a sum where ops add it up and what they
// make is only added to afterwards, as the accumulator of a gradient is; what uses such a sum
// otherwise mixes the class.
//
//===----------------------------------------------------------------------===//

#include "IterationBuilder.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/IntEqClasses.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::memopt;

static ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

namespace {
/// The classes of the dimensions of everything in and around a scan.
class ScanDimensions {
public:
  explicit ScanDimensions(ScanOp scan);

  /// The class of dimension `dim`, from 0 to getNumClasses() - 1. The leading dimension of what is
  /// sliced or stacked has none.
  unsigned getClass(Value value, int64_t dim) const {
    return classes[numbers.lookup(value) + static_cast<unsigned>(dim)];
  }
  unsigned getNumClasses() const { return classes.getNumClasses(); }
  LoopKind getKind(unsigned number) const { return kinds[number]; }

  /// Whether an operand (or result) of the scan has a leading dimension of slices.
  static bool isOperandSliced(ScanOp scan, unsigned number) {
    return scan.isSlice(scan.getBody().getArgument(number));
  }
  /// What stands inside for an operand or result: a block argument, or what is yielded.
  static Value getInner(ScanOp scan, unsigned operand) {
    return scan.getBody().getArgument(operand);
  }
  static Value getInner(ScanOp scan, OpResult result) {
    return scan.getYield().getValues()[result.getResultNumber()];
  }

private:
  void number(Value value);
  void join(Value a, Value b);
  void visit(Operation *op);
  void visitReshape(Operation *op);
  void mix(Operation *op);
  void mix(Value value, int64_t dim) { mixed.insert(numbers.lookup(value) + dim); }
  bool hasClass(Value value, unsigned number) const {
    return llvm::any_of(llvm::seq<int64_t>(0, static_cast<int64_t>(getShape(value).size())),
                        [&](int64_t dim) { return getClass(value, dim) == number; });
  }
  bool followSums(Operation *op);
  void chooseKinds();

  ScanOp scan;
  Block &body;
  llvm::IntEqClasses classes;
  DenseMap<Value, unsigned> numbers; ///< of the first dimension
  unsigned next = 0;
  llvm::SetVector<unsigned> mixed, summed;                 ///< dimensions, by number
  DenseMap<Value, llvm::SmallSetVector<unsigned, 2>> sums; ///< classes that a value is a sum over
  SmallVector<LoopKind> kinds;
};
} // namespace

ScanDimensions::ScanDimensions(ScanOp scan) : scan(scan), body(scan.getBody().front()) {
  for (Value argument : body.getArguments())
    number(argument);
  for (Operation &op : body)
    for (Value result : op.getResults())
      number(result);
  classes.grow(next);
  for (Operation &op : body.without_terminator())
    visit(&op);
  for (auto [argument, value] : llvm::zip(scan.getCarriedArguments(), scan.getNextValues()))
    join(argument, value);
  classes.compress();
  chooseKinds();
}

void ScanDimensions::number(Value value) {
  numbers[value] = next;
  if (auto type = dyn_cast<RankedTensorType>(value.getType()))
    next += type.getRank();
}

void ScanDimensions::join(Value a, Value b) {
  for (size_t dim = 0; dim < getShape(a).size(); ++dim)
    classes.join(numbers.lookup(a) + dim, numbers.lookup(b) + dim);
}

static SmallVector<Value> getValues(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  return values;
}

void ScanDimensions::mix(Operation *op) {
  for (Value value : getValues(op))
    if (isa<RankedTensorType>(value.getType()))
      for (size_t dim = 0; dim < getShape(value).size(); ++dim)
        mix(value, dim);
}

/// A dimension that stays as it is beside others of size 1 is one loop; what is merged or taken
/// apart is none that could have another size.
void ScanDimensions::visitReshape(Operation *op) {
  bool expands = isa<tensor::ExpandShapeOp>(op);
  Value fine = expands ? op->getResult(0) : op->getOperand(0);
  Value coarse = expands ? op->getOperand(0) : op->getResult(0);
  auto groups = expands ? cast<tensor::ExpandShapeOp>(op).getReassociationIndices()
                        : cast<tensor::CollapseShapeOp>(op).getReassociationIndices();
  for (auto [at, group] : llvm::enumerate(groups)) {
    auto large =
        llvm::make_filter_range(group, [&](int64_t dim) { return getShape(fine)[dim] != 1; });
    if (llvm::range_size(large) == 1) {
      classes.join(numbers.lookup(fine) + *large.begin(), numbers.lookup(coarse) + at);
      continue;
    }
    mix(coarse, at);
    for (int64_t dim : group)
      mix(fine, dim);
  }
}

void ScanDimensions::visit(Operation *op) {
  if (isReshape(op))
    return visitReshape(op);
  auto iteration = dyn_cast<IterationOpInterface>(op);
  if (!iteration)
    return mix(op);
  IterationSpace space = iteration.getIterationSpace();
  SmallVector<std::optional<unsigned>> known(space.getNumLoops());
  for (auto [value, map] : llvm::zip_equal(getValues(op), space.maps)) {
    if (!map)
      continue;
    for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
      unsigned place = numbers.lookup(value) + dim;
      auto plain = dyn_cast<AffineDimExpr>(expr);
      if (!plain) {
        // What is read in another way than one by one belongs together.
        mixed.insert(place);
        expr.walk([&](AffineExpr part) {
          if (auto loop = dyn_cast<AffineDimExpr>(part))
            space.kinds[loop.getPosition()] = LoopKind::Mix;
        });
        continue;
      }
      std::optional<unsigned> &first = known[plain.getPosition()];
      if (first)
        classes.join(*first, place);
      first = place;
    }
  }
  for (auto [place, kind] : llvm::zip_equal(known, space.kinds)) {
    if (place && kind == LoopKind::Sum)
      summed.insert(*place);
    if (place && (kind == LoopKind::Mix || kind == LoopKind::Statistic))
      mixed.insert(*place);
  }
}

/// Says what the results of `op` are sums over; false where nothing new was found. Only what adds
/// terms keeps a sum one. A result that has the dimension is none over it.
bool ScanDimensions::followSums(Operation *op) {
  llvm::SmallSetVector<unsigned, 2> found;
  for (Value operand : op->getOperands())
    for (unsigned number : sums.lookup(operand))
      found.insert(number);
  bool addsUp = isa<arith::AddFOp, arith::AddIOp, AccumulateOp, YieldOp>(op) || isReshape(op);
  bool isNew = false;
  for (unsigned number : found)
    if (!addsUp && kinds[number] != LoopKind::Mix) {
      kinds[number] = LoopKind::Mix;
      isNew = true;
    }
  if (auto iteration = dyn_cast<IterationOpInterface>(op); iteration && !isReshape(op)) {
    IterationSpace space = iteration.getIterationSpace();
    for (auto [value, map] : llvm::zip(op->getOperands(), space.maps))
      if (map)
        for (auto [dim, expr] : llvm::enumerate(map.getResults()))
          if (auto loop = dyn_cast<AffineDimExpr>(expr);
              loop && space.kinds[loop.getPosition()] == LoopKind::Sum)
            found.insert(getClass(value, dim));
  }
  for (Value result : op->getResults())
    for (unsigned number : found)
      if (!hasClass(result, number))
        isNew |= sums[result].insert(number);
  return isNew;
}

void ScanDimensions::chooseKinds() {
  kinds.assign(classes.getNumClasses(), LoopKind::Parallel);
  for (unsigned place : summed)
    kinds[classes[place]] = LoopKind::Sum;
  for (unsigned place : mixed)
    kinds[classes[place]] = LoopKind::Mix;
  for (bool isNew = true; isNew;) {
    isNew = false;
    for (Operation &op : body)
      isNew |= followSums(&op);
    for (auto [argument, value] : llvm::zip(scan.getCarriedArguments(), scan.getNextValues()))
      for (unsigned number : llvm::to_vector(sums.lookup(value)))
        isNew |= sums[argument].insert(number);
  }
}

//===----------------------------------------------------------------------===//
// The scan as loops
//===----------------------------------------------------------------------===//

IterationSpace ScanOp::getIterationSpace() {
  ScanDimensions dimensions(*this);
  IterationBuilder b(*this);
  AffineExpr time = b.addLoop(getRepeatCount(), LoopKind::Mix);
  AffineExpr one = getAffineConstantExpr(1, getContext());
  DenseMap<unsigned, AffineExpr> loops;
  auto getLoops = [&](Value inner) {
    Exprs exprs;
    for (auto [dim, size] : llvm::enumerate(getShape(inner))) {
      unsigned number = dimensions.getClass(inner, dim);
      auto [entry, isNew] = loops.try_emplace(number);
      if (isNew)
        entry->second = b.addLoop(size, dimensions.getKind(number));
      exprs.push_back(entry->second);
    }
    return exprs;
  };
  for (OpOperand &operand : (*this)->getOpOperands()) {
    unsigned number = operand.getOperandNumber();
    Exprs exprs = getLoops(ScanDimensions::getInner(*this, number));
    if (ScanDimensions::isOperandSliced(*this, number)) {
      bool isWhole = getShape(operand.get()).front() == getRepeatCount();
      exprs.insert(exprs.begin(),
                   isWhole ? time : time + one * getFirsts()[number - getFixed().size()]);
    }
    b.setOperand(number, exprs);
  }
  for (OpResult result : getResults()) {
    Exprs exprs = getLoops(ScanDimensions::getInner(*this, result));
    if (result.getResultNumber() >= getCarried().size())
      exprs.insert(exprs.begin(), time);
    b.setResult(result.getResultNumber(), exprs);
  }
  return b.take();
}

/// The body follows: each class of its dimensions has the size that operands and results have.
void ScanOp::resize(TypeRange types) {
  ScanDimensions dimensions(*this);
  DenseMap<unsigned, int64_t> sizes;
  auto learn = [&](Value inner, Type outer, bool isSliced) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(outer).getShape();
    for (auto [dim, size] : llvm::enumerate(isSliced ? shape.drop_front() : shape))
      sizes[dimensions.getClass(inner, dim)] = size;
  };
  for (OpOperand &operand : (*this)->getOpOperands())
    learn(ScanDimensions::getInner(*this, operand.getOperandNumber()), operand.get().getType(),
          ScanDimensions::isOperandSliced(*this, operand.getOperandNumber()));
  for (auto [result, type] : llvm::zip_equal(getResults(), types)) {
    learn(ScanDimensions::getInner(*this, result), type,
          result.getResultNumber() >= getCarried().size());
    result.setType(type);
  }
  auto getResized = [&](Value value) -> Type {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    for (auto [dim, size] : llvm::enumerate(shape)) {
      auto found = sizes.find(dimensions.getClass(value, dim));
      size = found == sizes.end() ? size : found->second;
    }
    return type.clone(shape);
  };
  // Before anything changes: classes are found by the values' ranks alone.
  SmallVector<std::pair<Operation *, SmallVector<Type>>> resized;
  for (Operation &op : getBody().front().without_terminator())
    resized.push_back({&op, llvm::map_to_vector(op.getResults(), getResized)});
  for (BlockArgument argument : getBody().getArguments())
    argument.setType(getResized(argument));
  for (auto &[op, results] : resized)
    if (TypeRange(results) != TypeRange(op->getResultTypes()))
      cast<IterationOpInterface>(op).resize(results);
}
