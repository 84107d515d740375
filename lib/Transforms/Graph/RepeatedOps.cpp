//===- RepeatedOps.cpp - sequences that repeat themselves ------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RepeatedOps.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::memopt;

/// How many places with the first name are tried as the beginning of the second turn: a turn has
/// the same op a few times.
static constexpr unsigned kMostPeriods = 64;

RepetitionFinder::RepetitionFinder(ArrayRef<unsigned> names, size_t least)
    : names(names), least(least), next(names.size(), names.size()) {
  DenseMap<unsigned, size_t> seen;
  for (size_t place = names.size(); place-- > 0;) {
    auto [entry, isNew] = seen.try_emplace(names[place], place);
    if (!isNew)
      next[place] = std::exchange(entry->second, place);
  }
}

/// Up to where each name from `first` on is that of `period` places later.
size_t RepetitionFinder::findEnd(size_t first, size_t period) {
  size_t &end = runEnds[period];
  if (end <= first)
    for (end = first; end + period < names.size() && names[end] == names[end + period];)
      ++end;
  return end;
}

SmallVector<Repetition> RepetitionFinder::findAt(size_t first) {
  SmallVector<Repetition> found;
  size_t place = next[first];
  for (unsigned tried = 0; tried < kMostPeriods && place < names.size(); ++tried) {
    size_t period = place - first;
    place = next[place];
    if (period > (names.size() - first) / least)
      break;
    size_t end = findEnd(first, period);
    size_t count = (end - first) / period + 1;
    if (count >= least)
      found.push_back({period, count});
  }
  llvm::stable_sort(found, [](Repetition a, Repetition b) { return a.size() > b.size(); });
  return found;
}
