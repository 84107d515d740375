//===- Watched.cpp - words that are to be what they were ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/CInterface.h"
#include <algorithm>

static bool isUnchanged(const memopt_watched &part) {
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
