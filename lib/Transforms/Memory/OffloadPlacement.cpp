//===- OffloadPlacement.cpp - what lies off the device and runs there -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OffloadPlacement.h"
#include "memopt/Analysis/StateForm.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace mlir::memopt;

/// What makes the buffer of `value` in its block; null of what comes from outside.
static Operation *getMaker(Value value) {
  while (isReshape(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value.getDefiningOp();
}

bool mlir::memopt::isUpdate(Operation *op) {
  return isa_and_nonnull<KernelOp>(op) && getPhase(op) == Phase::Optimizer;
}

bool OffloadPlacement::isUpdatedByKernel(VariableOp parameter) const {
  return llvm::any_of(step.getWrites(parameter.getSymNameAttr()),
                      [](WriteOp write) { return isUpdate(getMaker(write.getValue())); });
}

/// Of a parameter; state goes where its parameter goes. Of what ranks cut together the unit goes.
bool OffloadPlacement::isLarge(VariableOp variable) const {
  if (variable.liesInUnit())
    return false;
  if (std::optional<StringRef> of = variable.getOf())
    if (VariableOp parameter = step.getVariable(StringAttr::get(variable.getContext(), *of)))
      variable = parameter;
  return variable.getTensorType().getNumElements() >= leastElements;
}

/// A parameter whose new value comes from elsewhere (gathered from ranks, say) is used on the
/// device first and stays there.
void OffloadPlacement::addUpdates(Space home) {
  for (auto variable : step.getModule().getOps<VariableOp>())
    if (isLarge(variable) &&
        (variable.getRole() == Role::OptimizerState ||
         (variable.getRole() == Role::Parameter && isUpdatedByKernel(variable))))
      add(variable, home);
}

void OffloadPlacement::addJoined() {
  for (auto variable : step.getModule().getOps<VariableOp>())
    if (std::optional<Space> space = getStateSpace(variable)) {
      removeStateSpace(variable);
      add(variable, *space);
    }
}

void OffloadPlacement::addParameters(Space home) {
  for (auto variable : step.getModule().getOps<VariableOp>())
    if (variable.getRole() == Role::Parameter && isLarge(variable))
      add(variable, home);
}

/// What lies on disk comes to the host before anything else can happen to it.
bool OffloadPlacement::isReadOnHost(Value value) const {
  Operation *maker = getMaker(value);
  if (auto read = dyn_cast_or_null<ReadOp>(maker))
    return variables.contains(getVariable(read.getVariableAttr()));
  return has(maker);
}

/// Of what is written to variables that lie elsewhere.
void OffloadPlacement::collectMakers(llvm::SmallPtrSetImpl<Operation *> &makers) const {
  for (const auto &[name, writes] : step.getAllWrites())
    for (WriteOp write : writes)
      if (variables.contains(getVariable(write.getVariableAttr())))
        makers.insert(getMaker(write.getValue()));
}

/// Whether elements of the host are made narrower, one by one, and nothing else.
bool OffloadPlacement::isCast(KernelOp kernel) const {
  int64_t read = 0, made = 0;
  for (Value operand : kernel.getInputs()) {
    if (!isReadOnHost(operand))
      return false;
    read += getTensorBytes(operand.getType());
  }
  for (Type type : kernel.getResultTypes())
    made += getTensorBytes(type);
  return made < read && llvm::all_of(
                            kernel.getBody().getOps<linalg::LinalgOp>(),
                            [](linalg::LinalgOp op) {
                              return op.getNumReductionLoops() == 0 &&
                                     op.hasOnlyProjectedPermutations();
                            });
}

/// In program order: what reads the results of one is looked at behind it.
void OffloadPlacement::addKernels(bool updates) {
  llvm::SmallPtrSet<Operation *, 32> makers;
  collectMakers(makers);
  for (Block *block : getProgramBlocks(step.getBody()))
    for (auto kernel : block->getOps<KernelOp>()) {
      bool reads =
          llvm::any_of(kernel.getInputs(), [&](Value value) { return isReadOnHost(value); });
      if (isUpdate(kernel) ? updates && (reads || makers.contains(kernel)) : isCast(kernel))
        kernels.insert(kernel);
    }
}

std::optional<Space> OffloadPlacement::getSpaceOf(OpOperand &use) const {
  Operation *user = use.getOwner();
  if (isa<GradientOp, TransferStartOp>(user))
    return std::nullopt;
  if (auto write = dyn_cast<WriteOp>(user))
    return getVariable(write.getVariableAttr()).getPlacement();
  return has(user) ? Space::Host : Space::Device;
}
