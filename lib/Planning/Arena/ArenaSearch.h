//===- ArenaSearch.h - searches beyond one greedy pass ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_ARENA_ARENASEARCH_H
#define MEMOPT_LIB_PLANNING_ARENA_ARENASEARCH_H

#include "ArenaModel.h"

namespace memopt::planning::arena {

enum class ExactResult { Found, Impossible, Unknown };

/// Looks for a layout of height `capacity` at most, until about `budget` units of work are spent.
/// `Impossible` is a proof, for alignments of 1. Unknown as well for items of several pieces or
/// with fixed offsets, which this search does not handle.
ExactResult searchExactly(const Model &model, int64_t capacity, int64_t budget, Layout &layout);

/// Lowers `layout`, a complete one, towards `target`, until about `budget` units of work are spent.
/// Says whether it got lower.
bool searchByEjection(const Model &model, int64_t target, uint64_t seed, int64_t budget,
                      Layout &layout);

} // namespace memopt::planning::arena

#endif // MEMOPT_LIB_PLANNING_ARENA_ARENASEARCH_H
