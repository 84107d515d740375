//===- SharedReads.cpp - elements that lanes have in common *- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SharedReads.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace mlir::memopt;

std::optional<SharedReads> mlir::memopt::shareReads(ArrayRef<int64_t> laneOffsets) {
  SharedReads reads;
  auto lanes = static_cast<int64_t>(laneOffsets.size());
  int64_t low = *llvm::min_element(laneOffsets), high = *llvm::max_element(laneOffsets);
  if (high - low < lanes) {
    reads.offsets = llvm::to_vector(llvm::seq_inclusive(low, high));
  } else {
    reads.offsets.assign(laneOffsets.begin(), laneOffsets.end());
    llvm::sort(reads.offsets);
    reads.offsets.erase(llvm::unique(reads.offsets), reads.offsets.end());
    if (static_cast<int64_t>(reads.offsets.size()) > lanes / 2)
      return std::nullopt;
  }
  for (int64_t offset : laneOffsets)
    reads.choice.push_back(llvm::lower_bound(reads.offsets, offset) - reads.offsets.begin());
  return reads;
}
