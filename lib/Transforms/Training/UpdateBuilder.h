//===- UpdateBuilder.h - the instructions of an update ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_TRAINING_UPDATEBUILDER_H
#define MEMOPT_LIB_TRANSFORMS_TRAINING_UPDATEBUILDER_H

#include "UpdateTargets.h"

#include "memopt/Transforms/Optimizers/Update.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/SymbolTable.h"

namespace mlir::memopt {

/// Puts updates in front of a step's return, and declares what they read and write.
class UpdateBuilder {
public:
  /// `shardRanks`: those that updates are shared out among, 1 when they are not.
  UpdateBuilder(ModuleOp module, SymbolTable &symbols, Operation *terminator, int64_t shardRanks);

  /// This rank's part of the gradients; their marks, one for each member, go to it.
  Value takeShard(const UpdateTarget &target, SmallVector<GradientOp> marks);

  /// Reads the learning rate and the step's number, declaring them if nobody has.
  LogicalResult readHyperparameters(Location loc, double rate);
  /// Tells the runtime the global norm of all gradients, and gives it.
  FailureOr<Value> reportNorm(Location loc, ValueRange gradients);
  /// The limit of clipping, in the type of the norm.
  FailureOr<Value> getLimit(Location loc, double limit, bool isInput, Value norm);
  /// Scales gradients whose global norm is above the limit.
  void clip(Location loc, Value limit, Value norm, SmallVectorImpl<Value> &gradients);
  LogicalResult update(const UpdateTarget &target);
  /// Updates keep an average of what they write.
  void keepAverage(const OptimizerSettings &settings) { average = settings; }

private:
  LogicalResult updateAverage(const UpdateTarget &target, Value updated, Value rate);
  /// The members as one vector; what is no unit is its only member.
  Value pack(const UpdateTarget &target, ValueRange values);
  /// What all ranks have updated, to each of the parameters.
  FailureOr<Value> writeParameters(const UpdateTarget &target, Value updated);
  Value convert(Value value, Type elementType);
  /// The norm of what all ranks have, from those of their parts.
  Value joinNorms(Value norm);
  /// What is written to a parameter that is narrower than its update.
  FailureOr<Value> round(VariableOp parameter, Value updated);
  FailureOr<Value> readHyperparameter(Location loc, StringRef name, Type elementType,
                                      double initial);
  FailureOr<Value> readRate(Location loc, std::optional<double> own);
  /// A hyperparameter that the runtime writes; `rate` tells the parameters' group.
  FailureOr<Value> readInput(Location loc, const HyperparameterInput &input, Value rate);
  /// Declares one tensor of the optimizer's state and reads it.
  FailureOr<ReadOp> declareState(VariableOp parameter, const StateTensor &tensor,
                                 RankedTensorType whole);
  /// The same of what the update of a target reads and writes.
  LogicalResult readState(const UpdateTarget &target,
                          function_ref<SmallVector<StateTensor>(const ParameterInfo &)> getTensors,
                          RankedTensorType piece);
  /// With a condition the state stays as it was where that does not hold.
  void writeState(OptimizerStepOp step, Value condition = {});
  /// Whether a step updates a target; null where each does.
  Value findCondition(const UpdateTarget &target);
  /// What an update makes where the condition holds, if there is one, and else the old value.
  Value choose(Value condition, Value updated, Value old);
  /// The number of a parameter's update, from 1.
  FailureOr<Value> countUpdate(VariableOp parameter, const ParameterUpdate &choice,
                               Value condition);
  RankedTensorType getShardType(RankedTensorType whole, const ParameterUpdate &choice) const;
  ReadOp read(VariableOp variable, Location loc);
  /// What an update begins with: what forward has written to the parameter, whose write goes, or
  /// else what the parameter holds.
  Value takeOld(VariableOp parameter);
  void write(Value value, StringRef variable, Location loc);
  template <typename OpTy, typename... Args> OpTy create(Location loc, Args &&...args);

  ModuleOp module;
  SymbolTable &symbols;
  OpBuilder builder;
  int64_t shardRanks;
  Value learningRate, stepNumber;
  Value seed; ///< of rounding, once it is needed
  std::optional<OptimizerSettings> average;
  int64_t roundings = 0;
  /// Rates of groups, in the order in which they came up.
  SmallVector<std::pair<double, Value>> rates;
  /// Hyperparameters that are inputs: the rate beside them, name and first value.
  SmallVector<std::pair<std::tuple<Value, std::string, double>, Value>> inputs;
  /// What forward writes to variables.
  DenseMap<StringAttr, WriteOp> forwardWrites;
  /// By count of uses, whether there is one.
  DenseMap<Value, Value> conditions;
  /// Of the parameter at hand.
  SmallVector<Value> state;
  SmallVector<StringRef> slots;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_TRAINING_UPDATEBUILDER_H
