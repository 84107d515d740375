//===- Watched.cpp - words that are to be what they were ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/CInterface.h"
#include <algorithm>

/// Words that nothing is looked up for. Some at a time, as nearly always all are what they were.
static bool areWordsUnchanged(const memopt_watched &part) {
  constexpr int64_t kBlock = 16;
  for (int64_t begin = 0; begin < part.count; begin += kBlock) {
    uintptr_t differing = 0;
    for (int64_t i = begin; i < std::min(begin + kBlock, part.count); ++i)
      differing |= *static_cast<const uintptr_t *>(part.tables[i]) ^ part.values[i];
    if (differing & part.mask)
      return false;
  }
  return true;
}

static bool isUnchanged(const memopt_watched &part) {
  if (!part.look_up && !part.is_table_pointed)
    return areWordsUnchanged(part);
  for (int64_t i = 0; i < part.count; ++i) {
    void *table = part.tables[i];
    if (part.is_table_pointed)
      table = *static_cast<void **>(table);
    void *word = part.look_up ? part.look_up(table, part.keys ? part.keys[i] : nullptr)
                              : *static_cast<void **>(table);
    if ((reinterpret_cast<uintptr_t>(word) & part.mask) != part.values[i])
      return false;
  }
  return true;
}

int32_t memopt_are_unchanged(const memopt_watched *parts, int64_t count) {
  return std::all_of(parts, parts + count, isUnchanged);
}
