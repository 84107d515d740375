//===- ScalarWeights.h - what scalar ops weigh -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_KERNELS_SCALARWEIGHTS_H
#define MEMOPT_DIALECT_KERNELS_SCALARWEIGHTS_H

#include "memopt/Interfaces/MemoptInterfaces.h"

namespace mlir::memopt {

/// What one element of a scalar op weighs, for each question that is asked of it. The class of an op
/// is its own (ScalarOps.def); all numbers of a class stand in one row of ScalarWeights.cpp.
struct ScalarWeights {
  /// In divisions: for fusion, which computes a value again or stores it. What memory hides weighs
  /// little.
  double again;
  /// In plain instructions: for schedules, which choose loops and how many threads share them.
  double instructions;
  /// In exponentials: for predicted times. 0: counted as a plain operation.
  double exponentials;
};

const ScalarWeights &getScalarWeights(ScalarCost cost);

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_KERNELS_SCALARWEIGHTS_H
