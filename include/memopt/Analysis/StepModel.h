//===- StepModel.h - what the step of a module is ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A module holds variables and one public function, the step. This analysis finds the step's parts
// in every stage from the training graph to the planned program, and is the one place that says
// what a step may look like.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_ANALYSIS_STEPMODEL_H
#define MEMOPT_ANALYSIS_STEPMODEL_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::memopt {

class StepModel {
public:
  /// Fails, with a diagnostic at the culprit, unless the module has exactly one public function
  /// with a body, of one block, on statically shaped tensors. Other functions may be declared
  /// private; they are not looked at.
  static FailureOr<StepModel> create(ModuleOp module);

  ModuleOp getModule() const { return module; }
  func::FuncOp getFunction() const { return function; }
  Block &getBody() const { return const_cast<func::FuncOp &>(function).getBody().front(); }
  Operation *getReturn() const { return getBody().getTerminator(); }

  /// The value returned as the loss: the result whose `memopt.role` is "loss", else the first
  /// floating-point scalar; null where there is none.
  Value getLoss() const;

  /// The variable of that name; null where there is none.
  VariableOp getVariable(StringAttr name) const;

  /// Accesses by variable, in program order, those inside of instructions with bodies included.
  ArrayRef<ReadOp> getReads(StringAttr variable) const { return lookUp(reads, variable); }
  ArrayRef<WriteOp> getWrites(StringAttr variable) const { return lookUp(writes, variable); }
  const llvm::MapVector<StringAttr, SmallVector<WriteOp, 1>> &getAllWrites() const {
    return writes;
  }
  ArrayRef<GradientOp> getGradients() const { return gradients; }

  /// What shows the loss to the runtime; null where nothing does.
  CommitOp getCommit() const { return commit; }
  /// Whether the write changes a variable that is state.
  bool writesState(WriteOp write) const;

  /// Each block writes a variable at most once, and where there is a loss, state is written behind
  /// the step's one commit.
  LogicalResult verifyAccesses() const;

private:
  StepModel(ModuleOp module, func::FuncOp function);
  LogicalResult verifyCommit() const;

  template <typename OpTy> using ByVariable = llvm::MapVector<StringAttr, SmallVector<OpTy, 1>>;
  template <typename OpTy>
  static ArrayRef<OpTy> lookUp(const ByVariable<OpTy> &map, StringAttr variable) {
    auto found = map.find(variable);
    return found == map.end() ? ArrayRef<OpTy>() : ArrayRef<OpTy>(found->second);
  }

  ModuleOp module;
  func::FuncOp function;
  DenseMap<StringAttr, VariableOp> variables; ///< when the model was made
  ByVariable<ReadOp> reads;
  ByVariable<WriteOp> writes;
  SmallVector<GradientOp> gradients;
  CommitOp commit;
};

/// What passes over named ops and linalg ops rely on, with a diagnostic at what breaks it: the
/// function is one block; each value, in bodies too, is a tensor of known size within kMaxElements,
/// of an element type that packages hold, or a scalar; no op but those of linalg and of the dialect
/// holds a region, and none but those of the dialect has effects. A declaration has nothing to
/// verify.
LogicalResult verifyTensorGraph(func::FuncOp function);

/// The path of the module that a location came from, such as "net.layer1.0.conv1"; empty when
/// unknown.
StringRef getModulePath(Location location);
/// The nodes of the exported graph that an op and what it holds came from, as messages list them:
/// "nodes 'relu' at model.py:12, 'log'"; empty when unknown.
std::string describeNodes(Operation *op);
/// The op's module as messages name it, such as " in module 'net.fc1'"; empty when unknown.
std::string describeModule(Operation *op);

} // namespace mlir::memopt

#endif // MEMOPT_ANALYSIS_STEPMODEL_H
