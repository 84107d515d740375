//===- ArenaPattern.h - what stands in a checked arena ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_MEMORY_ARENAPATTERN_H
#define MEMOPT_RUNTIME_MEMORY_ARENAPATTERN_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>

namespace memopt {

/// The byte that stands at an offset until somebody writes there: 0x51 to 0x7e, so that neither
/// zeros, small integers nor the upper byte of a float of ordinary size is mistaken for it.
inline unsigned char getPattern(int64_t offset) {
  auto position = uint64_t(offset);
  return static_cast<unsigned char>(
      0x51 + (position * 7 + (position >> 6) * 13 + (position >> 12) * 29) % 46);
}

inline int64_t roundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// A byte of the slack before or behind an arena was written.
Status describeSlack(const char *where, int64_t bytes, int64_t offset);

} // namespace memopt

#endif // MEMOPT_RUNTIME_MEMORY_ARENAPATTERN_H
