//===- StateForm.h - how state that is there keeps a tensor -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An evaluation reads a training's variables where they are. Where the training keeps one in parts
// of ranks, in codes (FrozenForm) or off the device, the evaluation's own declaration says so in an
// attribute, until memopt-shard-parameters, memopt-narrow-frozen or memopt-offload has done the
// same.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_ANALYSIS_STATEFORM_H
#define MEMOPT_ANALYSIS_STATEFORM_H

#include "memopt/Dialect/Memopt.h"

#include <optional>
#include <string>

namespace mlir::memopt {

/// The name of the variable of tensors that ranks have parts of together, of which `first` begins
/// it.
std::string getUnitName(StringRef first);

/// Declares the variable of a unit, in front of the first of its tensors and in its place.
VariableOp createJoined(VariableOp first, StringRef name, RankedTensorType piece);

/// The part that a rank has of a variable of the state: attribute `memopt.state_shard`.
struct StateShard {
  RankedTensorType type; ///< of the part
  ShardAttr shard;
  std::string unit; ///< that it lies in; empty where it is cut by itself

  /// What the declaration of a program that joins the state says.
  static std::optional<StateShard> get(VariableOp variable);
  void attachTo(VariableOp variable) const;
  static void removeFrom(VariableOp variable);
};

/// The space in which the state has the variable, where that is not the device: attribute
/// `memopt.state_space`.
std::optional<Space> getStateSpace(VariableOp variable);
void setStateSpace(VariableOp variable, Space space);
void removeStateSpace(VariableOp variable);

} // namespace mlir::memopt

#endif // MEMOPT_ANALYSIS_STATEFORM_H
