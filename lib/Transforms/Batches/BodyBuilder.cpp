//===- BodyBuilder.cpp - what runs for each micro-batch, as a loop -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BodyBuilder.h"
#include "SyncBatchNorm.h"
#include "memopt/Dialect/Program.h"
#include "memopt/Transforms/Ranks/RankUpdates.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mlir::memopt;

Value mlir::memopt::createCount(OpBuilder &builder, const BatchModel &batch, CountOp op,
                                int64_t batches) {
  auto type = cast<RankedTensorType>(op.getType());
  bool countsSamples = batch.getReach(op.getResult()) != Reach::Shared;
  return createSplat(builder, op.getLoc(), type,
                     static_cast<double>(op.getCount() * (countsSamples ? batches : 1)));
}

/// Of what stands behind `before` in a body.
static void setPhaseOfRest(Operation *before, Phase phase) {
  for (Operation *made = before->getNextNode(); !made->hasTrait<OpTrait::IsTerminator>();
       made = made->getNextNode())
    setPhase(made, phase);
}

void BodyBuilder::add(Operation *op) {
  for (Value operand : op->getOperands())
    if (!plan.readsTotal(op, operand))
      provide(operand, op);
  Operation *copy = builder.clone(*op, mapping);
  for (auto [use, operand] : llvm::zip_equal(copy->getOpOperands(), op->getOperands()))
    if (plan.readsTotal(op, operand))
      use.set(provideTotal(operand));
  redirect(copy);
  if (cut.syncsBatchNorm && isSynchronized(op, batch))
    synchronize(copy, op);
  else if (auto draw = dyn_cast<DrawOpInterface>(copy); draw && draw.drawsNumbers())
    placeDraw(draw, op->getResult(0));
}

/// What all ranks make of their samples together takes the place of what one makes of its own.
void BodyBuilder::synchronize(Operation *copy, Operation *original) {
  for (auto [result, value] : llvm::zip_equal(
           original->getResults(),
           cast<BatchStatisticsOpInterface>(copy).buildSynchronized(builder, cut.ranks)))
    mapping.map(result, value);
  setPhaseOfRest(copy, getPhase(original));
  copy->erase();
}

/// The number of the first sample of an iteration among all samples of the step, which the runtime
/// writes with each batch.
Value BodyBuilder::readFirstSample(Location location, Phase phase) {
  constexpr StringLiteral name = "sample_offset";
  auto module = repeat->getParentOfType<ModuleOp>();
  VariableOp variable = findHyperparameter(module, name);
  auto type = RankedTensorType::get({}, builder.getI64Type());
  if (!variable) {
    OpBuilder atStart(repeat->getParentOfType<func::FuncOp>());
    variable = VariableOp::create(atStart, location, name, type, Role::Hyperparameter);
    variable.setNamesAttr(builder.getStrArrayAttr({name}));
  }
  return LoopVariables::read(builder, location, variable, phase);
}

/// A draw for the samples of one iteration is that part of the draw for all of them.
void BodyBuilder::placeDraw(DrawOpInterface draw, Value original) {
  std::optional<BatchDimension> samples = batch.getDimension(original);
  if (!samples)
    return;
  SmallVector<int64_t> shape = draw.getDrawShape();
  unsigned dim = *draw.getDrawDimension(samples->dim); // as MicroBatches has checked
  shape[dim] *= cut.getParts();
  SmallVector<int64_t> strides = computeStrides(shape);
  draw.setFirst(createFirstElement(draw, samples->inner * strides[dim]), strides);
}

/// The number of the first element that `draw` draws for the samples of an iteration.
Value BodyBuilder::createFirstElement(Operation *draw, int64_t perSample) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(draw);
  Phase phase = getPhase(draw);
  Value sample = readFirstSample(draw->getLoc(), phase);
  Value factor = createSplat(builder, draw->getLoc(), cast<RankedTensorType>(sample.getType()),
                             static_cast<double>(perSample));
  auto first = arith::MulIOp::create(builder, draw->getLoc(), sample, factor);
  setPhase(first, phase);
  return first;
}

/// Makes an operand of `user` known in the body: what depends on no sample is computed there, and
/// what follows from totals comes from outside.
void BodyBuilder::provide(Value value, Operation *user) {
  Operation *op = value.getDefiningOp();
  if (!plan.isRepeated(op) && isCounted(value)) {
    // For each user anew, for another may count otherwise; what is alike folds into one.
    mapping.map(value, createCounted(value, countBatchesFor(user)));
    return;
  }
  if (mapping.contains(value))
    return;
  if (batch.getReach(value) == Reach::Shared && op) {
    for (Value operand : op->getOperands())
      provide(operand, op);
    redirect(builder.clone(*op, mapping));
    return;
  }
  mapping.map(value, bringInside(value));
}

Value BodyBuilder::bringInside(Value value) {
  repeat.getInputsMutable().append(value);
  return repeat.getBody().addArgument(value.getType(), value.getLoc());
}

/// The sum over all micro-batches of what the body makes of one.
Value BodyBuilder::provideTotal(Value value) {
  Value &inside = totalsInside[value];
  if (!inside)
    inside = bringInside(totals.lookup(value));
  return inside;
}

/// Whose samples an op that counts them is about.
int64_t BodyBuilder::countBatchesFor(Operation *user) const {
  if (!plan.isLocal(user))
    return cut.getParts();
  return cut.syncsBatchNorm && plan.isUpdate(user) ? cut.ranks : 1;
}

/// A value that isCounted, for the samples of so many batches.
Value BodyBuilder::createCounted(Value value, int64_t batches) {
  IRMapping made;
  SmallVector<Operation *> todo{value.getDefiningOp()};
  while (!todo.empty()) {
    Operation *op = todo.back();
    if (auto count = dyn_cast<CountOp>(op)) {
      made.map(count.getResult(), createCount(builder, batch, count, batches));
      todo.pop_back();
      continue;
    }
    auto missing =
        llvm::find_if_not(op->getOperands(), [&](Value operand) { return made.contains(operand); });
    if (missing != op->operand_end()) {
      todo.push_back((*missing).getDefiningOp());
      continue;
    }
    builder.clone(*op, made);
    todo.pop_back();
  }
  return made.lookup(value);
}

/// State that the body changes is a variable of the loop there.
void BodyBuilder::redirect(Operation *copy) {
  if (auto read = dyn_cast<ReadOp>(copy)) {
    if (VariableOp shadow = shadows.lookup(read.getVariableAttr().getAttr()))
      read.setVariable(shadow.getSymName());
  } else if (auto write = dyn_cast<WriteOp>(copy)) {
    if (VariableOp shadow = shadows.lookup(write.getVariableAttr().getAttr()))
      write.setVariable(shadow.getSymName());
  }
}

void BodyBuilder::addUpdatesOfRanks(ArrayRef<Operation *> updates) {
  if (cut.syncsBatchNorm) { // one move, by what is the same on all ranks
    for (Operation *op : updates)
      add(op);
    return;
  }
  RankUpdates chain(updates, cut.ranks, builder);
  for (Operation *op : updates)
    for (Value operand : op->getOperands())
      if (chain.isMadeOutside(operand)) {
        Operation *maker = operand.getDefiningOp();
        if (!plan.isRepeated(maker)) {
          provide(operand, op);
          chain.setShared(operand, mapping.lookup(operand));
        } else {
          chain.setOfRank(operand, mapping.lookup(operand));
        }
      }
  chain.build([&](Operation *copy) { redirect(copy); });
}

/// The sum is taken in the wider of the two types, and rounded where the accumulator is narrower.
void BodyBuilder::accumulate(const LoopSum &accumulator) {
  Location location = accumulator.value.getLoc();
  Phase phase = getPhase(accumulator.value.getDefiningOp());
  Value value = mapping.lookup(accumulator.value);
  VariableOp sum = accumulator.sum;
  Operation *before = builder.getInsertionBlock()->getTerminator()->getPrevNode();
  if (PackOp pack = accumulator.pack)
    value = PackOp::create(
        builder, location, pack.getResult().getType(),
        llvm::map_to_vector(pack.getInputs(), [&](Value of) { return mapping.lookup(of); }),
        pack.getFirsts());
  if (accumulator.shard)
    value = CollectiveOp::create(builder, location, accumulator.shard,
                                 CollectiveKind::ReduceScatter, value, cut.ranks);
  auto type = cast<RankedTensorType>(value.getType()), stored = sum.getTensorType();
  RankedTensorType wide =
      type.getElementTypeBitWidth() > stored.getElementTypeBitWidth() ? type : stored;
  Value old = LoopVariables::read(builder, location, sum, phase);
  Value terms[] = {convertFloats(builder, location, old, wide.getElementType()),
                   convertFloats(builder, location, value, wide.getElementType())};
  Value next = isa<FloatType>(type.getElementType())
                   ? AccumulateOp::create(builder, location, wide, terms[0], terms[1]).getResult()
                   : arith::AddIOp::create(builder, location, terms[0], terms[1]).getResult();
  next = convertFloats(builder, location, next, stored.getElementType());
  LoopVariables::write(builder, location, next, sum, phase);
  setPhaseOfRest(before, phase);
}
