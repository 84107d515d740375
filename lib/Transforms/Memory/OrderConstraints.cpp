//===- OrderConstraints.cpp - what an order respects beside values -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OrderConstraints.h"

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

Operation *mlir::memopt::getMaker(Operation *op) {
  Operation *start = getStart(op);
  return start ? start : op;
}

/// An instruction, and of a start what waits for it too: until then it reads.
static SmallVector<Operation *> getMoments(Operation *op) {
  SmallVector<Operation *> moments{op};
  for (Operation *user : op->getUsers())
    if (getStart(user) == op)
      moments.push_back(user);
  return moments;
}

/// The instructions that read a value, reshapes looked through.
static SmallVector<Operation *> getReaders(Value value) {
  SmallVector<Operation *> readers;
  SmallVector<Value> values{value};
  for (size_t i = 0; i < values.size(); ++i)
    for (Operation *user : values[i].getUsers()) {
      if (isReshape(user))
        values.push_back(user->getResult(0));
      else if (isInstruction(user))
        readers.append(getMoments(user));
    }
  return readers;
}

/// `op` comes after `earlier`, clones included.
void OrderConstraints::addAfter(Operation *op, Operation *earlier) {
  if (op != earlier && isIn(earlier))
    problem.ops[numbers.lookup(op)].after.push_back(numbers.lookup(earlier));
}

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

/// By variable, in the order of the program. What is read or written in the body of a loop, the
/// loop reads or writes. Without a name: the batch in the step's arguments, which a loop over
/// micro-batches replaces.
OrderConstraints::Accesses OrderConstraints::collectAccesses() const {
  Accesses accesses;
  auto add = [&](StringAttr name, Access access) {
    if (isIn(access.begin))
      accesses[name].push_back(access);
  };
  auto addReaders = [&](StringAttr name, Value value, Access::Kind kind) {
    for (Operation *reader : getReaders(value))
      add(name, {kind, reader, reader});
  };
  for (Operation &op : block) {
    if (auto read = dyn_cast<ReadOp>(op))
      addReaders(read.getVariableAttr().getAttr(), read.getResult(), Access::Reads);
    if (auto write = dyn_cast<WriteOp>(op)) {
      StringAttr name = write.getVariableAttr().getAttr();
      if (Operation *maker = getBufferRoot(write.getValue()).getDefiningOp(); isInstruction(maker))
        add(name, {Access::Writes, getMaker(maker), maker});
      addReaders(name, getBufferRoot(write.getValue()), Access::Keeps);
    }
    auto loop = dyn_cast<RepeatOp>(op);
    if (!loop)
      continue;
    loop.walk(
        [&](ReadOp read) { add(read.getVariableAttr().getAttr(), {Access::Reads, &op, &op}); });
    loop.walk(
        [&](WriteOp write) { add(write.getVariableAttr().getAttr(), {Access::Writes, &op, &op}); });
    if (loop.getNextBatch())
      add({}, {Access::Writes, &op, &op});
  }
  if (accesses.contains({}))
    for (BlockArgument argument : block.getArguments())
      addReaders({}, argument, Access::Reads);
  for (SmallVector<Access> &list : llvm::make_second_range(accesses))
    llvm::stable_sort(list, [&](const Access &a, const Access &b) {
      return std::tuple(numbers.lookup(a.begin), a.kind) <
             std::tuple(numbers.lookup(b.begin), b.kind);
    });
  return accesses;
}

/// A new value destroys the old one: who makes it comes after all who read that, and before all who
/// read the new one. State is written behind the commit.
void OrderConstraints::addAccesses(const StepModel &step) {
  DenseSet<StringAttr> state; // by name: to look each up is linear in their number
  for (auto variable : step.getModule().getOps<VariableOp>())
    if (variable.isState())
      state.insert(variable.getSymNameAttr());
  for (const auto &[name, accesses] : collectAccesses()) {
    const Access *last = nullptr; // that wrote
    SmallVector<Operation *> readers;
    for (const Access &access : accesses) {
      if (last && access.kind != Access::Keeps)
        addAfter(access.begin, last->end);
      if (access.kind != Access::Writes) {
        readers.push_back(access.begin);
        continue;
      }
      for (Operation *reader : readers)
        addAfter(access.begin, reader);
      if (CommitOp commit = step.getCommit(); commit && state.contains(name))
        addAfter(access.begin, commit);
      readers.clear();
      last = &access;
    }
  }
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// What an iteration hands to the next destroys what it had from the one before.
void OrderConstraints::addYields() {
  auto scan = dyn_cast<ScanOp>(block.getParentOp());
  if (!scan)
    return;
  for (auto [carried, next] : llvm::zip_equal(scan.getCarriedArguments(), scan.getNextValues()))
    if (Operation *maker = getBufferRoot(next).getDefiningOp(); isInstruction(maker) && isIn(maker))
      for (Operation *reader : getReaders(carried))
        addAfter(getMaker(maker), reader);
}

/// No more bytes of the device live through a loop over micro-batches than in the program's order:
/// what is searched in the loop takes them for given.
void OrderConstraints::addLoop(RepeatOp loop) {
  int32_t number = numbers.lookup(loop);
  auto isBefore = [&](Operation *op) { return numbers.lookup(op) < number; };
  auto isOnDevice = [](const planning::PlanBuffer &result) {
    return result.bytes > 0 && result.space == static_cast<int32_t>(Space::Device);
  };
  for (Operation &op : block) {
    if (!isInstruction(&op) || &op == loop.getOperation())
      continue;
    if (llvm::all_of(getMoments(&op), isBefore))
      addAfter(loop, &op);
    else if (!isBefore(&op) && llvm::any_of(problem.ops[numbers.lookup(&op)].results, isOnDevice))
      addAfter(&op, loop);
  }
}

void OrderConstraints::add(const StepModel &step) {
  addAccesses(step);
  addYields();
  for (auto loop : block.getOps<RepeatOp>())
    addLoop(loop);
  for (planning::PlanOp &op : problem.ops) {
    llvm::sort(op.after);
    op.after.erase(std::unique(op.after.begin(), op.after.end()), op.after.end());
  }
}
