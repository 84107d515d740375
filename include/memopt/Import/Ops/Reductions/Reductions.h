//===- Reductions.h - what reducing operators share -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_OPS_REDUCTIONS_REDUCTIONS_H
#define MEMOPT_IMPORT_OPS_REDUCTIONS_REDUCTIONS_H

#include "memopt/Import/Graph/Formula.h"

namespace memopt::pt2 {

/// What is reduced: a tensor, and the dimensions that vanish or, with `keep`, become 1.
struct Reduction {
  mlir::Value value;
  Shape dimensions;
  bool keep = false;

  llvm::ArrayRef<int64_t> sizes() const {
    return mlir::cast<mlir::RankedTensorType>(value.getType()).getShape();
  }
};

/// The reduction that an operator asks for, of its parameter `self` in the type `type`. Without a
/// name for the parameter of dimensions, everything.
llvm::Expected<Reduction> getReduction(OpContext &op, llvm::StringRef dimensions, DType type);

/// Reduces `value`, which has the sizes of the reduction's.
mlir::Value reduce(OpContext &op, const Reduction &reduction, mlir::Value value,
                   mlir::memopt::ReduceKind kind);
/// The same, with reduced dimensions of size 1 whatever `keep` says.
mlir::Value reduceKeeping(OpContext &op, const Reduction &reduction, mlir::Value value,
                          mlir::memopt::ReduceKind kind);
/// A result of reduceKeeping, repeated over what was reduced.
Element spread(OpContext &op, const Reduction &reduction, mlir::Value kept);
/// A result of reduceKeeping, as the operator wants it.
mlir::Value dropKept(OpContext &op, const Reduction &reduction, mlir::Value kept);
/// The mean of `value` over the dimensions.
mlir::Value meanOf(OpContext &op, const Reduction &reduction, mlir::Value value);
/// How many elements make one of the result, as a tensor like `like`.
mlir::Value countOf(OpContext &op, const Reduction &reduction, mlir::Value like);

/// Extremes of what falls together, and the number of the element that each is, counted row-major
/// over the reduced dimensions: the first of equal ones, the first NaN. Both keep dimensions, of
/// size 1. The value is picked by its number, so that its gradient goes there; integers have none.
struct Extremes {
  mlir::Value values, numbers;
};
Extremes findExtremes(OpContext &op, const Reduction &reduction, mlir::memopt::ReduceKind kind);

/// sqrt, whose slope at 0 is 0: distances and deviations have none there in PyTorch.
Element distanceRoot(Element squares);
/// The norm of order `order` of `reduction`, whose elements are real numbers.
mlir::Value normOf(OpContext &op, const Reduction &reduction, double order);
/// The norm of vectors as the operator's result.
llvm::Error setVectorNorm(OpContext &op, llvm::StringRef dimensions, double order);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_OPS_REDUCTIONS_REDUCTIONS_H
