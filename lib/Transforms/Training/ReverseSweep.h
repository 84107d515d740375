//===- ReverseSweep.h - from an op's results to its operands ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the backward pass of a step and that of a loop's body have in common: ops are visited from
// the last to the first, each is asked for its rule, and contributions to a value are collected
// until its maker is visited.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_TRAINING_REVERSESWEEP_H
#define MEMOPT_LIB_TRANSFORMS_TRAINING_REVERSESWEEP_H

#include "mlir/IR/Builders.h"

#include <functional>

namespace mlir::memopt {

class ReverseSweep {
public:
  /// Builds at `builder`. Gradients flow to values that `isOnPath`; `explain` adds to the message
  /// about an op that stands on the path and has no gradient.
  ReverseSweep(OpBuilder &builder, std::function<bool(Value)> isOnPath,
               std::function<void(Operation *, InFlightDiagnostic &)> explain)
      : builder(builder), isOnPath(std::move(isOnPath)), explain(std::move(explain)) {}

  void contribute(Value value, Value gradient) { contributions[value].push_back(gradient); }
  /// What was contributed to `value` so far.
  ArrayRef<Value> getContributions(Value value) const {
    auto found = contributions.find(value);
    return found == contributions.end() ? ArrayRef<Value>() : ArrayRef<Value>(found->second);
  }
  /// The gradients of the op's operands from those of its results. A scan is replaced by one that
  /// keeps what its gradient needs.
  LogicalResult visit(Operation *op);

private:
  Value take(Value value, Location location, bool isOfParameter);
  LogicalResult differentiate(Operation *op, ArrayRef<Value> resultGradients);

  OpBuilder &builder;
  std::function<bool(Value)> isOnPath;
  std::function<void(Operation *, InFlightDiagnostic &)> explain;
  DenseMap<Value, SmallVector<Value, 2>> contributions;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_TRAINING_REVERSESWEEP_H
