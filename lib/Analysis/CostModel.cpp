//===- CostModel.cpp - seconds of an instruction on a machine -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/CostModel.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;

int64_t CostModel::getNanoseconds(Operation *instruction) const {
  return std::max<int64_t>(1, std::llround(getSeconds(instruction) * 1e9));
}
