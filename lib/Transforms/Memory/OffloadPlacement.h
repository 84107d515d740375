//===- OffloadPlacement.h - what lies off the device and runs there -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of the kernels of the optimizer's phase those run on the host that write a variable of the host
// or the disk, or read a value of the host; and casts of such parameters. Library calls,
// collectives and loops stay on the device. A parameter below a number of elements stays there with
// its state: what is smaller takes longer to start than to send, and form-kernels puts such updates
// into one kernel.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_MEMORY_OFFLOADPLACEMENT_H
#define MEMOPT_LIB_TRANSFORMS_MEMORY_OFFLOADPLACEMENT_H

#include "memopt/Analysis/StepModel.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::memopt {

/// Whether the op is a kernel that updates state.
bool isUpdate(Operation *op);

/// What lies on the host or on disk, and what runs on the host.
class OffloadPlacement {
public:
  OffloadPlacement(const StepModel &step, int64_t leastElements)
      : step(step), leastElements(leastElements) {}

  /// What updates touch lies in `home`; what has a home keeps it.
  void addUpdates(Space home);
  void addParameters(Space home);
  /// What the state that the program joins has elsewhere than on the device.
  void addJoined();
  /// Casts, and updates where `updates` says so.
  void addKernels(bool updates);

  /// With the space in which each lies.
  const llvm::MapVector<Operation *, Space> &getVariables() const { return variables; }
  const llvm::SetVector<Operation *> &getKernels() const { return kernels; }
  bool has(Operation *op) const { return kernels.contains(op); }
  /// The space in which `use` needs its value; nothing where any will do.
  std::optional<Space> getSpaceOf(OpOperand &use) const;

private:
  bool isReadOnHost(Value value) const;
  void add(VariableOp variable, Space home) { variables.insert({variable, home}); }
  void collectMakers(llvm::SmallPtrSetImpl<Operation *> &makers) const;
  bool isLarge(VariableOp variable) const;
  bool isUpdatedByKernel(VariableOp parameter) const;
  bool isCast(KernelOp kernel) const;
  VariableOp getVariable(FlatSymbolRefAttr name) const { return step.getVariable(name.getAttr()); }

  const StepModel &step;
  int64_t leastElements;
  llvm::MapVector<Operation *, Space> variables;
  llvm::SetVector<Operation *> kernels;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_MEMORY_OFFLOADPLACEMENT_H
