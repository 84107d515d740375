//===- ScalarWeights.cpp - what scalar ops weigh -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Kernels/ScalarWeights.h"

using namespace mlir::memopt;

const ScalarWeights &mlir::memopt::getScalarWeights(ScalarCost cost) {
  static constexpr ScalarWeights none{0, 0, 0};
  static constexpr ScalarWeights simple{0.2, 1, 0};
  static constexpr ScalarWeights division{1, 4, 0.25};
  static constexpr ScalarWeights series{4, 16, 1};
  static constexpr ScalarWeights call{20, 30, 2};
  switch (cost) {
  case ScalarCost::None:
    return none;
  case ScalarCost::Simple:
    return simple;
  case ScalarCost::Division:
    return division;
  case ScalarCost::Series:
    return series;
  case ScalarCost::Call:
    return call;
  }
  llvm_unreachable("all costs are listed");
}
