//===- Neighbours.h - ranks of one host among several -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_NEIGHBOURS_H
#define MEMOPT_RUN_NEIGHBOURS_H

#include "memopt-runtime/ranks/LaunchedRank.h"
#include "memopt-runtime/ranks/SharedRanks.h"
#include <vector>

namespace memopt {

/// How many ranks each host has, from a number for the host of each rank; 0 where they are not as
/// many on each, or not neighbours in number.
int64_t countPlaces(const std::vector<uint64_t> &hosts);

/// Memory for the arenas of the ranks of one host.
struct Neighbours {
  std::unique_ptr<SharedRanks> group; ///< null where ranks send messages to all
  std::string refusal;                ///< why they do so next door, too
};

/// All ranks call it, on `across`, which reaches all. Those of one host meet, and the first of them
/// makes the memory. Too little memory is a failure.
StatusOr<Neighbours> shareMemory(Communicator &across, const LaunchedRank &self, int64_t arenaBytes,
                                 bool isChecked, double seconds);

} // namespace memopt

#endif // MEMOPT_RUN_NEIGHBOURS_H
