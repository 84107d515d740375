//===- Arena.h - give every buffer an offset in one arena ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dynamic storage allocation off line: buffers with known bytes and known live ranges get offsets
// in one arena, so that no two that live at the same time share a byte and the arena is as low as
// can be. The problem is NP-hard; the most bytes alive at once (the load) is the lower bound.
//
// solveArena goes through stages and stops at the first that reaches the bound or the wanted
// capacity:
//   1. greedy orders: size, area, lifetime and start, each with first and best fit (TFLite, XLA,
//   TVM);
//   2. a search driven by the high-water mark: what stands too high is forced lower, what it hits
//   is
//      ejected and placed again (guided ejection, after Nagata and Braeysy 2009);
//   3. exact depth-first search over canonical placements (Moffitt, MiniMalloc, ASPLOS 2023).
//
// Work is bounded by counts of steps, never by the clock: same problem and options, same answer.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_ARENA_ARENA_H
#define MEMOPT_PLANNING_ARENA_ARENA_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace memopt {
class Cache;
} // namespace memopt

namespace memopt::planning {

/// One buffer. Times are any integers, such as positions in a schedule.
struct ArenaBuffer {
  int64_t size = 0;         ///< bytes; an empty buffer gets offset 0 and hinders nobody
  int64_t lower = 0;        ///< first time at which it is alive
  int64_t upper = 0;        ///< first time at which it is no longer alive (half-open range)
  int64_t alignment = 1;    ///< its offset is a multiple of this; any positive number
  int64_t fixedOffset = -1; ///< where it must lie, or -1 when it is free
  /// Alive as long as the arena is, whatever its range says, and placed before all that is free: at
  /// the bottom, as far as buffers with fixed offsets leave it.
  bool pinnedAtBottom = false;
  /// Index of a buffer whose bytes this one may take over, or -1. The permission holds when that
  /// buffer's last time is this one's first (its upper - 1 == our lower): then both may lie at the
  /// same offset during that time. Otherwise, and for fixed or pinned buffers, it means nothing.
  int32_t inPlaceOf = -1;
};

/// The times [lower, upper) are run repeatedly. A buffer that is alive at lower because it was made
/// before the loop, and dies within, must survive to upper: the next iteration reads it again.
/// Loops may nest.
struct ArenaLoop {
  int64_t lower = 0;
  int64_t upper = 0;
};

struct ArenaProblem {
  std::vector<ArenaBuffer> buffers;
  std::vector<ArenaLoop> loops;
};

struct ArenaOptions {
  /// Good enough: the search stops once the arena is no higher. Negative: go for the lower bound.
  int64_t capacity = -1;
  /// Units of search work, about a hundred million a second; the exact search, for a few hundred
  /// buffers, may take eight times as many. 0 stops after the greedy orders.
  int64_t iterations = 30000000;
  uint64_t seed = 1;
  Cache *cache = nullptr; ///< where answers are found again, or null; for speed only
};

struct ArenaSolution {
  std::vector<int64_t> offsets; ///< bytes from the start of the arena, by buffer
  int64_t height = 0;           ///< bytes of the arena: the end of the highest buffer
  int64_t lowerBound = 0;       ///< proven: no layout is lower
  std::string method;           ///< the stage that found it, for remarks
  /// Bytes above the bound; 0 proves the layout optimal.
  int64_t gap() const { return height - lowerBound; }
};

/// Fails when a field is out of its range, when fixed buffers collide, or when the sum of all bytes
/// does not fit 62 bits. The message names the buffer by its index.
llvm::Error checkArena(const ArenaProblem &problem);

/// Solves after checkArena, whose error it passes on.
llvm::Expected<ArenaSolution> solveArena(const ArenaProblem &problem,
                                         const ArenaOptions &options = {});

/// Judges a layout from its meaning alone and shares no code with the solver. Fails with the
/// culprits: a wrong number of offsets, misalignment, a moved fixed buffer, two buffers that share
/// a byte, a height that is not the end of the highest buffer, or a bound above the height.
llvm::Error verifyArena(const ArenaProblem &problem, const ArenaSolution &solution);

/// Most bytes alive at once, in-place permissions used wherever they hold.
int64_t arenaLoad(const ArenaProblem &problem);

/// The buffers alive at the first moment of the highest load, largest first: what binds the bound.
std::vector<int32_t> arenaBindingBuffers(const ArenaProblem &problem);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_ARENA_ARENA_H
