//===- PlannableStep.cpp - values where they belong -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is written to a variable is made in the variable's bytes, and what an iteration of a scan
// yields in those of the carried value or of its slice. Where that is not safe, a copy is made here;
// so the graph that solvers see is the one that runs.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Memory/OrderProblem.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// A kernel that copies `value`, element by element.
static Value createCopy(OpBuilder &builder, Location location, Value value) {
  auto kernel = KernelOp::create(builder, location, TypeRange{value.getType()}, ValueRange{value});
  RankedTensorType type = inSpace(cast<RankedTensorType>(value.getType()), Space::Device);
  OpBuilder::InsertionGuard guard(builder);
  Block *body = builder.createBlock(&kernel.getBody(), {}, {type}, {location});
  AffineMap identity = builder.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
  Value empty = tensor::EmptyOp::create(builder, location, type.getShape(), type.getElementType());
  auto copy = linalg::GenericOp::create(builder, location, TypeRange{type},
                                        ValueRange{body->getArgument(0)}, ValueRange{empty},
                                        ArrayRef<AffineMap>{identity, identity}, iterators,
                                        [](OpBuilder &inner, Location at, ValueRange arguments) {
                                          linalg::YieldOp::create(inner, at, arguments[0]);
                                        });
  YieldOp::create(builder, location, copy.getResults());
  return kernel.getResult(0);
}

/// The result of a kernel once more, as one more of its results.
static Value createTwin(Value value) {
  auto kernel = cast<KernelOp>(value.getDefiningOp());
  OpBuilder builder(kernel);
  unsigned number = cast<OpResult>(value).getResultNumber();
  Operation *yield = kernel.getYield();
  yield->insertOperands(yield->getNumOperands(), yield->getOperand(number));
  SmallVector<Type> types(kernel.getResultTypes());
  types.push_back(value.getType());
  auto made = KernelOp::create(builder, kernel.getLoc(), types, kernel.getInputs());
  made->setAttrs(kernel->getAttrDictionary());
  made.getBody().takeBody(kernel.getBody());
  kernel.replaceAllUsesWith(made->getResults().drop_back());
  kernel.erase();
  return made->getResults().back();
}

/// A copy of `value` that stands in front of `before`, as a part of its phase.
static Value copyInFrontOf(Operation *before, Value value, Phase phase) {
  OpBuilder builder(before);
  Value copy = createCopy(builder, value.getLoc(), value);
  copy.getDefiningOp<KernelOp>().setPhase(phase);
  return copy;
}

/// Whether an instruction has done all that it does by the time that `scan` runs.
static bool isDoneBefore(Operation *user, ScanOp scan) {
  Operation *op = scan->getBlock()->findAncestorOpInBlock(*user);
  auto isBefore = [&](Operation *other) { return other->isBeforeInBlock(scan); };
  auto isOver = [&](Operation *other) { return getStart(other) != op || isBefore(other); };
  return isInstruction(op) && isBefore(op) && llvm::all_of(op->getUsers(), isOver);
}

/// Whether a scan goes on with a sum of gradients, which it alone reads and its result replaces.
static bool continuesSum(const StepModel &step, ScanOp scan, OpOperand &start) {
  auto read = start.get().getDefiningOp<ReadOp>();
  Value last = scan->getResult(start.getOperandNumber() - scan.getCarried().getBeginOperandIndex());
  auto write = last.hasOneUse() ? dyn_cast<WriteOp>(*last.user_begin()) : WriteOp();
  if (!read || !write || read.getVariableAttr() != write.getVariableAttr())
    return false;
  StringAttr sum = read.getVariableAttr().getAttr();
  auto mayNeedOld = [&](ReadOp other, OpOperand *use) {
    if (other->getBlock() != scan->getBlock()) // it holds another value, but for this loop's body
      return use->getOwner()->isAncestor(scan);
    return other->isBeforeInBlock(write) && use != &start && !isDoneBefore(use->getOwner(), scan);
  };
  return !step.getVariable(sum).isState() && llvm::none_of(step.getReads(sum), [&](ReadOp other) {
    return llvm::any_of(getUsesOfBuffer(other.getResult()),
                        [&](OpOperand *use) { return mayNeedOld(other, use); });
  });
}

/// A scan overwrites what its carried values begin with, so nobody may need it afterwards.
static bool mayOverwrite(const StepModel &step, ScanOp scan, OpOperand &start) {
  if (continuesSum(step, scan, start))
    return true;
  Value root = getBufferRoot(start.get());
  return isInstruction(root.getDefiningOp()) && root.getParentBlock() == scan->getBlock() &&
         llvm::all_of(getUsesOfBuffer(root), [&](OpOperand *use) {
           return use == &start || isDoneBefore(use->getOwner(), scan);
         });
}

static void copyStartsOfScans(const StepModel &step) {
  for (Block *block : getProgramBlocks(step.getFunction().getBody().front()))
    for (auto scan : llvm::to_vector(block->getOps<ScanOp>()))
      for (OpOperand &start : scan.getCarriedMutable())
        if (!mayOverwrite(step, scan, start))
          start.set(copyInFrontOf(scan, start.get(), scan.getPhase()));
}

/// A copy is one more result of the kernel that makes the value, where that stores each element
/// behind the last read of what it replaces; else a kernel at the end of the iteration, which may
/// need one itself where it reads a carried value that another one replaces.
static void copyYields(func::FuncOp function) {
  while (true) {
    KernelGraph graph(function);
    if (graph.getYieldsNeedingCopies().empty())
      return;
    SmallVector<OpOperand *> twins;
    for (OpOperand *yield : graph.getYieldsNeedingCopies()) {
      auto scan = cast<ScanOp>(yield->getOwner()->getParentOp());
      auto value = dyn_cast<OpResult>(yield->get());
      bool isCarried = yield->getOperandNumber() < scan.getCarried().size();
      bool isTwin = value && isa<KernelOp>(value.getOwner()) && findYield(value) != yield &&
                    value.getOwner()->getBlock() == yield->getOwner()->getBlock() &&
                    (!isCarried || graph.canReplaceCarried(value, *yield));
      if (isTwin)
        twins.push_back(yield);
      else
        yield->set(copyInFrontOf(yield->getOwner(), yield->get(), scan.getPhase()));
    }
    for (OpOperand *yield : twins)
      yield->set(createTwin(yield->get()));
  }
}

/// Where the copy for a write stands: at the end of the write's block, by when every reader of the
/// old value has run; but in front of a loop that may read the new one.
static Operation *getPlaceOfCopy(WriteOp write) {
  Operation *place = write;
  while (!place->hasTrait<OpTrait::IsTerminator>()) {
    place = place->getNextNode();
    auto instruction = dyn_cast<InstructionOpInterface>(place);
    if (instruction && !instruction.getBodies().empty())
      break;
  }
  return place;
}

static void insertVariableCopies(func::FuncOp function) {
  KernelGraph graph(function);
  for (WriteOp write : graph.getWritesNeedingCopies()) {
    OpBuilder builder(getPlaceOfCopy(write));
    Value copy = createCopy(builder, write.getLoc(), write.getValue());
    write.getValueMutable().assign(copy);
    write->moveAfter(copy.getDefiningOp());
  }
}

FailureOr<StepModel> mlir::memopt::createPlannableStep(ModuleOp module) {
  FailureOr<StepModel> step = StepModel::create(module);
  if (failed(step) || failed(verifyKernelGraph(*step)))
    return failure();
  copyStartsOfScans(*step);
  copyYields(step->getFunction());
  insertVariableCopies(step->getFunction());
  return step;
}
