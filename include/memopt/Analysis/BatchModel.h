//===- BatchModel.h - where the samples of a batch are ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Follows the samples of the step's inputs through a graph of named ops, forwards and backwards, by
// the ops' iteration spaces: which dimension of each value counts samples, and which values are
// made of all of them. Serves compiling for another batch size, accumulation and ranks.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_ANALYSIS_BATCHMODEL_H
#define MEMOPT_ANALYSIS_BATCHMODEL_H

#include "memopt/Analysis/StepModel.h"

#include <optional>

namespace mlir::memopt {

/// Index `i` along dimension `dim` belongs to sample `i / inner % size` of `size`. `inner` is 1
/// unless the batch was merged with dimensions behind it, as in [batch * sequence, features], and
/// `outer`, which follows from the rest, unless with dimensions in front of it, as in [sequence *
/// batch, features].
struct BatchDimension {
  int64_t dim, inner, outer = 1;
  bool operator==(const BatchDimension &other) const {
    return dim == other.dim && inner == other.inner;
  }
};

/// How a value depends on the samples.
enum class Reach {
  Shared,    ///< not at all: parameters and what is made of them
  Sample,    ///< it has a dimension that counts them
  Sum,       ///< a sum over them, or made of such sums
  Statistic, ///< made of the whole batch in a way that is valid for any part of it (batch norm)
};

class BatchModel {
public:
  /// Begins with the arguments that carry `memopt.batch_dim`; where none does, with the first
  /// leading dimension of an argument from which the samples reach the loss without being mixed.
  /// Fails with a diagnostic at the op that mixes samples.
  static FailureOr<BatchModel> create(const StepModel &step);

  int64_t getBatchSize() const { return size; }
  /// Nothing for a value without samples.
  std::optional<BatchDimension> getDimension(Value value) const;
  Reach getReach(Value value) const {
    return dimensions.contains(value) ? Reach::Sample : reaches.lookup(value);
  }

  /// Whether the op computes one thing for each sample, or sums over them.
  bool touchesSamples(Operation *op) const;
  /// The type of a value with another number of samples.
  Type getResized(Value value, int64_t newSize) const;

private:
  friend class BatchInference;

  int64_t size = 0;
  DenseMap<Value, BatchDimension> dimensions;
  DenseMap<Value, Reach> reaches;
};

} // namespace mlir::memopt

#endif // MEMOPT_ANALYSIS_BATCHMODEL_H
