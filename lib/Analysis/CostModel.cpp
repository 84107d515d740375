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

static int64_t toNanoseconds(double seconds) {
  return std::max<int64_t>(1, std::llround(seconds * 1e9));
}

int64_t CostModel::getNanoseconds(Operation *instruction) const {
  return toNanoseconds(getSeconds(instruction));
}

int64_t CostModel::getTransferNanoseconds(int64_t bytes) const {
  Work work;
  work.workClass = WorkClass::Transfer;
  work.bytes = 2 * static_cast<double>(bytes); // read and written
  return toNanoseconds(secondsOf(work));
}
