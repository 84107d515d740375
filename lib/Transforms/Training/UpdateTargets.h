//===- UpdateTargets.h - parameters that are updated together ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_TRAINING_UPDATETARGETS_H
#define MEMOPT_LIB_TRANSFORMS_TRAINING_UPDATETARGETS_H

#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Optimizers/Optimizers.h"

namespace mlir::memopt {

/// Parameters that are updated together: one by itself, or the members of a unit of shards.
struct UpdateTarget {
  struct Member {
    VariableOp parameter;
    ParameterInfo info;
    int64_t first; ///< element of the unit
  };
  SmallVector<Member, 1> members;
  const ParameterUpdate *choice;
  RankedTensorType type; ///< of the parameter or the unit, whole
  Value gradient;
  /// A number that is zero in a step that leaves the parameter and its state as they are; null
  /// where each step updates it. Such a parameter counts its updates, and is in no unit.
  Value uses = {};

  bool isUnit() const { return members.size() > 1; }
  Location getLoc() const { return VariableOp(members.front().parameter).getLoc(); }
};

/// By variable, what reads it in the step.
using ReadsOf = DenseMap<StringAttr, SmallVector<ReadOp, 1>>;

/// What updates are formed from, by parameter.
struct UpdateChoices {
  ArrayRef<std::pair<VariableOp, Value>> parameters; ///< with their gradients
  ArrayRef<ParameterInfo> infos;
  ArrayRef<ParameterUpdate> updates;
  std::optional<OptimizerSettings> average; ///< that updates keep of what they write
};

/// The parameters in their order, each by itself; with `formsUnits` small ones that are updated
/// alike are one unit for `shardRanks` ranks, which stands where the first of them does.
SmallVector<UpdateTarget> formTargets(const UpdateChoices &choices, const ReadsOf &reads,
                                      int64_t shardRanks, bool formsUnits);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_TRAINING_UPDATETARGETS_H
