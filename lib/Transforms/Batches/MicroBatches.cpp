//===- MicroBatches.cpp - what runs for each micro-batch --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MicroBatches.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;

FailureOr<MicroBatches> MicroBatches::create(const StepModel &step, const BatchModel &batch) {
  MicroBatches plan(step, batch);
  plan.collectBufferUpdates();
  plan.chooseSums();
  plan.classify();
  plan.collectUpdates();
  if (failed(plan.collectTotals()))
    return failure();
  plan.chooseLoops();
  plan.collectEarlyTotals();
  plan.placeRest();
  return plan;
}

//===----------------------------------------------------------------------===//
// What is repeated
//===----------------------------------------------------------------------===//

template <typename OpType> static Role getRole(const StepModel &step, OpType op) {
  return step.getVariable(op.getVariableAttr().getAttr()).getRole();
}

/// Running statistics move with each micro-batch: writes of buffers, and what serves only them.
void MicroBatches::collectBufferUpdates() {
  for (Operation &op : llvm::reverse(step.getBody())) {
    auto write = dyn_cast<WriteOp>(op);
    bool servesThem =
        isPure(&op) && !op.use_empty() &&
        llvm::all_of(op.getUsers(), [&](Operation *user) { return bufferUpdates.contains(user); });
    if ((write && getRole(step, write) == Role::Buffer) || servesThem)
      bufferUpdates.insert(&op);
  }
}

bool mlir::memopt::isCounted(Value value) {
  SmallVector<Value> todo{value};
  DenseSet<Operation *> seen;
  while (!todo.empty()) {
    Operation *op = todo.pop_back_val().getDefiningOp();
    if (!op)
      return false;
    if (isa<CountOp>(op) || !seen.insert(op).second)
      continue;
    auto counted = llvm::make_filter_range(
        op->getOperands(), [](Value operand) { return !matchPattern(operand, m_Constant()); });
    if (counted.empty() || !isPure(op))
      return false;
    llvm::append_range(todo, counted);
  }
  return true;
}

void MicroBatches::classify() {
  for (Operation &op : step.getBody())
    classify(&op);
}

void MicroBatches::classify(Operation *op) {
  bool updatesBuffer = bufferUpdates.contains(op);
  if (getPhase(op) == Phase::Optimizer && !updatesBuffer)
    return;
  // A count reads no sample, and is a number in either place.
  if (op->hasTrait<OpTrait::ReadsShapeOnly>() || op->hasTrait<OpTrait::IsTerminator>())
    return;
  // What is marked is the sum of all, even where one sample's gradient looks like a sample.
  if (isa<GradientOp>(op))
    return;
  bool touchesSamples = batch.touchesSamples(op), isLocalHere = readsStatistic(op);
  if (!touchesSamples && !isLocalHere && !updatesBuffer)
    return;
  ops.insert(op);
  if (updatesBuffer)
    locals.insert(op);
  if (isLocalHere && !touchesSamples) {
    locals.insert(op);
    statistics.insert(op->result_begin(), op->result_end());
    return;
  }
  for (Value result : op->getResults()) {
    Reach reach = batch.getReach(result);
    if (reach != Reach::Statistic && !(reach == Reach::Sum && isLocalSum(result)))
      continue;
    statistics.insert(result);
    if (makers.empty() || makers.back() != op)
      makers.push_back(op);
  }
}

/// What updates serve is served by updates alone, so the last of a chain decide.
void MicroBatches::collectUpdates() {
  SmallVector<Operation *> found;
  DenseSet<Operation *> chosen;
  for (Operation *op : llvm::reverse(ops)) {
    bool isFree =
        bufferUpdates.contains(op) && !batch.touchesSamples(op) &&
        llvm::all_of(op->getUsers(), [&](Operation *user) { return chosen.contains(user); });
    if (isFree && chosen.insert(op).second)
      found.push_back(op);
  }
  for (Operation *op : llvm::reverse(found))
    updates.insert(op);
}

/// Whether a value is made from a variable that is asked for.
static bool followsFrom(Value value, function_ref<bool(ReadOp)> isAskedFor) {
  SmallVector<Value> open{value};
  DenseSet<Value> seen;
  while (!open.empty()) {
    Operation *op = open.pop_back_val().getDefiningOp();
    if (!op || op->hasTrait<OpTrait::ReadsShapeOnly>())
      continue;
    if (auto read = dyn_cast<ReadOp>(op); read && isAskedFor(read))
      return true;
    for (Value operand : op->getOperands())
      if (seen.insert(operand).second)
        open.push_back(operand);
  }
  return false;
}

LogicalResult MicroBatches::verifyRanks() const {
  DenseSet<StringAttr> written;
  for (Operation *op : updates)
    if (auto write = dyn_cast<WriteOp>(op))
      written.insert(write.getVariableAttr().getAttr());
  auto isMoved = [&](ReadOp read) { return written.contains(read.getVariableAttr().getAttr()); };
  for (Operation *op : updates)
    for (Value operand : op->getOperands())
      if (!isRepeated(operand.getDefiningOp()) && !operand.getDefiningOp<ReadOp>() &&
          followsFrom(operand, isMoved))
        return op->emitError("moves a buffer by what the model makes of the same buffers, which "
                             "ranks cannot do one after the other");
  for (BlockArgument argument : step.getBody().getArguments())
    for (Operation *user : argument.getUsers())
      if ((!ops.contains(user) || updates.contains(user)) &&
          !user->hasTrait<OpTrait::ReadsShapeOnly>())
        return user->emitError() << "input " << argument.getArgNumber()
                                 << " is used once for all samples of a step, which on several "
                                    "ranks may differ: give it a batch dimension";
  return success();
}

bool MicroBatches::readsStatistic(Operation *op) const {
  return llvm::any_of(op->getOperands(), [&](Value value) { return statistics.contains(value); });
}

/// In the pass that made it.
bool MicroBatches::feedsSamples(Value sum) const {
  Phase phase = getPhase(sum.getDefiningOp());
  SmallVector<Value> open{sum};
  DenseSet<Operation *> seen;
  while (!open.empty())
    for (Operation *user : open.pop_back_val().getUsers()) {
      if (getPhase(user) != phase || !seen.insert(user).second)
        continue;
      if (batch.touchesSamples(user))
        return true;
      llvm::append_range(open, user->getResults());
    }
  return false;
}

/// A sum over activations that goes back to samples is a normalization written out: like
/// batch_norm's, it is that of the micro-batch. What follows from the data alone (the number of
/// valid targets, weights of classes) is a total: taking it costs nothing.
bool MicroBatches::isLocalSum(Value sum) const {
  auto isParameter = [&](ReadOp read) { return getRole(step, read) == Role::Parameter; };
  return !sumsAreTotals && feedsSamples(sum) && followsFrom(sum, isParameter);
}

/// Whether all that the forward pass does to a sum, or to a view of it, is to divide it by a number
/// of elements.
static bool isMean(Value sum) {
  SmallVector<Value> todo{sum};
  while (!todo.empty()) {
    Value value = todo.pop_back_val();
    for (Operation *user : value.getUsers()) {
      if (user->hasTrait<OpTrait::ReadsShapeOnly>() || getPhase(user) != Phase::Forward)
        continue;
      auto division = dyn_cast<arith::DivFOp>(user);
      if (isa<BroadcastOp>(user) || isReshape(user))
        todo.push_back(user->getResult(0));
      else if (!division || division.getLhs() != value || !isCounted(division.getRhs()))
        return false;
    }
  }
  return true;
}

/// A mean of a micro-batch stands for that of all. A sum does not, such as one that weights of
/// samples are divided by: with the sums of micro-batches the loss would be as many times too
/// large. Where there is one, all that is summed is a total, and taken by loops in front.
void MicroBatches::chooseSums() {
  for (Operation &op : step.getBody()) {
    if (getPhase(&op) != Phase::Forward || !batch.touchesSamples(&op))
      continue;
    for (Value result : op.getResults())
      sumsAreTotals |=
          batch.getReach(result) == Reach::Sum && isLocalSum(result) && !isMean(result);
  }
}

//===----------------------------------------------------------------------===//
// What leaves the loop
//===----------------------------------------------------------------------===//

LogicalResult MicroBatches::checkEscape(Value value, Operation *user) const {
  Operation *op = value.getDefiningOp();
  std::string where = describeModule(op);
  bool isGradient = isa<GradientOp>(user) || getPhase(user) == Phase::Optimizer;
  if (batch.getReach(value) == Reach::Sample && !(batch.getBatchSize() == 1 && isGradient))
    return op->emitError() << "a value for each sample" << where
                           << " leaves the step, which is cut into micro-batches: return sums";
  if (statistics.contains(value) && !isGradient)
    return op->emitError() << "the loss depends on statistics of a whole batch" << where
                           << ", which has no equal in micro-batches";
  return success();
}

/// Elements of a draw are numbered by strides, one for each dimension.
LogicalResult MicroBatches::checkDraws(Operation *op) const {
  auto draw = dyn_cast<DrawOpInterface>(op);
  std::optional<BatchDimension> samples =
      draw && draw.drawsNumbers() ? batch.getDimension(op->getResult(0)) : std::nullopt;
  if (!samples)
    return success();
  if (samples->outer != 1)
    return op->emitOpError() << "draws" << describeModule(op)
                             << " for samples that were merged with a dimension in front of them, "
                                "which micro-batches could not number: draw in front of the "
                                "reshape, compile with --dropout=off, or without micro-batches";
  if (!draw.getDrawDimension(samples->dim))
    return op->emitOpError() << "draws" << describeModule(op)
                             << " for samples that lie along dimension " << samples->dim
                             << ", which micro-batches could not number: compile with "
                                "--dropout=off, or without micro-batches";
  return success();
}

LogicalResult MicroBatches::collectTotals() {
  for (Operation *op : ops)
    if (failed(checkDraws(op)))
      return failure();
  for (Operation *op : ops)
    for (Value result : op->getResults())
      for (Operation *user : result.getUsers()) {
        bool isInside = ops.contains(user) && !readsTotal(user, result);
        if (isInside || user->hasTrait<OpTrait::ReadsShapeOnly>())
          continue;
        if (failed(checkEscape(result, user)))
          return failure();
        totals.insert(result);
      }
  return success();
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

unsigned MicroBatches::getStageOfOperands(Operation *op) const {
  unsigned stage = 0;
  for (Value operand : op->getOperands())
    if (Operation *maker = operand.getDefiningOp()) {
      bool isTotal = ops.contains(maker) && (!ops.contains(op) || readsTotal(op, operand));
      stage = std::max(stage, stages.lookup(maker) + (isTotal ? 1 : 0));
    }
  return stage;
}

/// An op stands behind as many loops as it needs totals of totals.
void MicroBatches::chooseLoops() {
  for (Operation &op : step.getBody()) {
    bool readsShape = op.hasTrait<OpTrait::ReadsShapeOnly>();
    stages[&op] = readsShape ? 0 : getStageOfOperands(&op);
    if (ops.contains(&op))
      lastStage = std::max(lastStage, stages[&op]);
  }
}

void MicroBatches::collectEarlyTotals() {
  SmallVector<Value> open;
  DenseSet<Value> seen;
  auto visit = [&](Operation *op) {
    for (Value operand : op->getOperands())
      if (seen.insert(operand).second)
        open.push_back(operand);
  };
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if ((!isRepeated(operand.getDefiningOp()) || readsTotal(op, operand)) &&
          seen.insert(operand).second)
        open.push_back(operand);
  while (!open.empty()) {
    Value value = open.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (isRepeated(op))
      earlyTotals.insert(value);
    else if (op && !op->hasTrait<OpTrait::ReadsShapeOnly>())
      visit(op);
  }
}

/// Constants are shared by all phases.
static bool changesSomething(Operation *op) {
  if (op->hasTrait<OpTrait::ConstantLike>())
    return false;
  return getPhase(op) == Phase::Optimizer || (!isMemoryEffectFree(op) && !isa<ReadOp>(op));
}

/// What no loop waits for stands behind all of them, in its order: most totals are known only
/// there.
void MicroBatches::placeRest() {
  for (Operation &op : step.getBody()) {
    if (ops.contains(&op))
      continue;
    bool waits = llvm::any_of(op.getOperands(), [&](Value operand) {
      Operation *maker = operand.getDefiningOp();
      bool isLate = isRepeated(maker) ? !earlyTotals.contains(operand)
                                      : maker && stages.lookup(maker) > lastStage;
      return isLate && !op.hasTrait<OpTrait::ReadsShapeOnly>();
    });
    if (waits || changesSomething(&op))
      stages[&op] = lastStage + 1;
  }
}

SmallVector<Value> MicroBatches::getTotals(unsigned stage) const {
  return llvm::filter_to_vector(totals, [&](Value total) {
    return earlyTotals.contains(total) ? stages.lookup(total.getDefiningOp()) == stage
                                       : stage == lastStage;
  });
}

SmallVector<Operation *> MicroBatches::getOps(unsigned stage) const {
  if (stage == lastStage)
    return llvm::to_vector(ops);
  DenseSet<Operation *> needed;
  for (Value total : getTotals(stage))
    needed.insert(total.getDefiningOp());
  for (Operation *op : llvm::reverse(ops))
    if (needed.contains(op))
      for (Value operand : op->getOperands())
        if (isRepeated(operand.getDefiningOp()) && !readsTotal(op, operand))
          needed.insert(operand.getDefiningOp());
  return llvm::filter_to_vector(ops, [&](Operation *op) { return needed.contains(op); });
}
