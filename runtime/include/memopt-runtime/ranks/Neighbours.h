//===- Neighbours.h - ranks of one host among several -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_NEIGHBOURS_H
#define MEMOPT_RUNTIME_RANKS_NEIGHBOURS_H

#include "memopt-runtime/ranks/LaunchedRank.h"
#include "memopt-runtime/ranks/Placement.h"
#include "memopt-runtime/ranks/RankMeeting.h"
#include "memopt-runtime/ranks/SharedRanks.h"

namespace memopt {

/// The hosts of all ranks, all of which call it.
StatusOr<Placement> findPlacement(Communicator &across);

/// Memory for the arenas of the ranks of one host.
struct Neighbours {
  std::unique_ptr<SharedRanks> group; ///< null where ranks send messages to all
  std::string refusal;                ///< why they do so next door, too
};

/// All ranks call it, on `across`, which reaches all. Those of one host meet, and the first of them
/// makes the memory. Too little memory is a failure.
StatusOr<Neighbours> shareMemory(Communicator &across, const Placement &placement,
                                 const LaunchedRank &self, int64_t arenaBytes, bool isChecked,
                                 RankMeeting::Patience patience);

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_NEIGHBOURS_H
