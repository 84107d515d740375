//===- LoopCuts.cpp - long loops as several -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/LoopCuts.h"

#include <cmath>

using namespace mlir;

SmallVector<int64_t> memopt::cutLoop(int64_t count) {
  constexpr int64_t few = 8;
  auto loops = count <= few ? 1 : static_cast<int64_t>(std::sqrt(static_cast<double>(count)));
  SmallVector<int64_t> counts;
  for (int64_t loop = 0; loop < loops; ++loop)
    counts.push_back(count * (loop + 1) / loops - count * loop / loops);
  return counts;
}
