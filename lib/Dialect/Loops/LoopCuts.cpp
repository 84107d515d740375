//===- LoopCuts.cpp - long loops as several -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/LoopCuts.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

/// Of a loop's values all turns' are there while its gradient is taken, about so many times the state
/// that stands between two loops: what the inputs contribute, gates and gradients of an LSTM.
static constexpr double kValuesByState = 7;
/// Below this many turns a loop's own products are thin.
static constexpr int64_t kFewTurns = 8;
/// More loops of one layer, or of all, take seconds to compile; only the longest sequences have them.
static constexpr int64_t kManyLoops = 64, kManyLoopsOfAll = 128;

SmallVector<int64_t> memopt::cutLoop(int64_t count, int64_t layers) {
  auto getRoot = [](double number) { return static_cast<int64_t>(std::sqrt(number)); };
  auto whole = static_cast<double>(count);
  int64_t loops = 1;
  // Of `s` states and the values of count / s turns there are the fewest bytes at the second root.
  if (count > kFewTurns)
    loops = std::max(getRoot(whole), std::min({getRoot(kValuesByState * whole), count / kFewTurns,
                                               kManyLoops, kManyLoopsOfAll / layers}));
  SmallVector<int64_t> counts;
  for (int64_t loop = 0; loop < loops; ++loop)
    counts.push_back(count * (loop + 1) / loops - count * loop / loops);
  return counts;
}
