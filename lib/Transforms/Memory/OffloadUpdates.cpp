//===- OffloadUpdates.cpp - updates of what lies on disk --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OffloadUpdates.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Utils/PlaceOps.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// An update and what is moved with it: the reads and fetches of its windows, the waits for what is
/// sent to it alone, and the stores of what it makes.
class UpdateKernel {
public:
  UpdateKernel(const StepModel &step, Operation *kernel) : step(step), kernel(kernel) {
    for (Value operand : kernel->getOperands())
      addOperand(operand);
    parts.insert(kernel);
    for (Value result : kernel->getResults())
      addStores(result);
    follow(step.getCommit());
  }

  void move();

private:
  void addOperand(Value operand);
  void addWait(TransferWaitOp wait);
  void addStores(Value value);
  void followReaders(Value old);
  /// It stays behind `op`.
  void follow(Operation *op) {
    if (op && op->getBlock() == kernel->getBlock() && (!last || last->isBeforeInBlock(op)))
      last = op;
  }
  bool isUsedHereAlone(Value value) const;

  const StepModel &step;
  Operation *kernel, *last = nullptr;
  llvm::SetVector<Operation *> parts;
};
} // namespace

/// Of a value that a read gives, from the disk.
static bool isFetch(Operation *maker) {
  auto wait = dyn_cast_or_null<TransferWaitOp>(maker);
  if (!wait)
    return false;
  auto start = cast<TransferStartOp>(getStart(wait));
  return start.getResource() == Resource::Disk &&
         getBufferRoot(start.getSource()).getDefiningOp<ReadOp>();
}

/// Reshapes looked through.
bool UpdateKernel::isUsedHereAlone(Value value) const {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    return isReshape(user) ? isUsedHereAlone(user->getResult(0)) : user == kernel;
  });
}

void UpdateKernel::addOperand(Value operand) {
  Operation *maker = operand.getDefiningOp();
  if (isReshape(maker)) {
    addOperand(maker->getOperand(0));
    parts.insert(maker);
  } else if (auto wait = dyn_cast_or_null<TransferWaitOp>(maker)) {
    addWait(wait);
  } else if (isa_and_nonnull<ReadOp>(maker)) {
    parts.insert(maker);
  } else {
    follow(maker);
  }
}

/// What many updates read, such as a rate, is sent where it is first there, and waited for there:
/// it would hold back updates whose gradients come earlier than that of the first.
void UpdateKernel::addWait(TransferWaitOp wait) {
  auto start = cast<TransferStartOp>(getStart(wait));
  if (start->getBlock() != kernel->getBlock())
    return follow(wait);
  if (!isUsedHereAlone(wait.getResult())) {
    if (auto read = start.getSource().getDefiningOp<ReadOp>())
      start->moveAfter(read);
    wait->moveAfter(start);
    return follow(wait);
  }
  if (isFetch(wait)) {
    parts.insert(getBufferRoot(start.getSource()).getDefiningOp());
    parts.insert(start);
  } else {
    follow(start);
  }
  parts.insert(wait);
}

void UpdateKernel::addStores(Value value) {
  for (Operation *user : value.getUsers()) {
    if (auto start = dyn_cast<TransferStartOp>(user); start && start.getTo() == Space::Disk) {
      auto wait = cast<TransferWaitOp>(*start.getToken().user_begin());
      parts.insert(start);
      parts.insert(wait);
      addStores(wait.getResult());
    } else if (isReshape(user)) {
      parts.insert(user);
      addStores(user->getResult(0));
    } else if (auto write = dyn_cast<WriteOp>(user)) {
      for (ReadOp read : step.getReads(write.getVariableAttr().getAttr()))
        followReaders(read.getResult());
    }
  }
}

/// The old value is there until all have it: whoever reads it directly, or has waited for a copy.
void UpdateKernel::followReaders(Value old) {
  for (Operation *user : old.getUsers()) {
    auto start = dyn_cast<TransferStartOp>(user);
    Operation *reader = start ? *start.getToken().user_begin() : user;
    if (isReshape(user))
      followReaders(user->getResult(0));
    else if (!parts.contains(reader))
      follow(reader);
  }
}

/// Parts keep their order; those that are there already stay.
void UpdateKernel::move() {
  SmallVector<Operation *> late;
  for (Operation *part : parts)
    if (last && part->getBlock() == last->getBlock() && last->isBeforeInBlock(part))
      late.push_back(part);
  llvm::sort(late, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *part : late) {
    putAfter(part, last);
    last = part;
  }
}

void mlir::memopt::moveUpdatesToGradients(const StepModel &step,
                                          const OffloadPlacement &placement) {
  auto isWindow = [](Value operand) { return isFetch(getBufferRoot(operand).getDefiningOp()); };
  for (Operation *kernel : placement.getKernels())
    if (isUpdate(kernel) && kernel->getBlock() == &step.getBody() &&
        llvm::any_of(kernel->getOperands(), isWindow))
      UpdateKernel(step, kernel).move();
}
