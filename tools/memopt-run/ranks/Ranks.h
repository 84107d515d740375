//===- Ranks.h - a run of several processes ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_RANKS_H
#define MEMOPT_RUN_RANKS_H

#include "memopt-run/options/Options.h"
#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/ranks/RankMeeting.h"
#include "memopt-runtime/ranks/SharedRanks.h"

namespace memopt {

/// The life of a rank, in a process of its own.
using RankWork = std::function<Status(Communicator &, Device &)>;

/// Starts a process for each rank, which does `work` and ends; returns when all have ended. The
/// failure of the rank that left first is that of the run, with its number. A process that dies
/// makes the others leave, with exit code 3, and requests to stop are handed on to all.
Status runRanks(const RunOptions &options, int64_t arenaBytes, const RankWork &work);

/// The same for one rank of a meeting, each of whose members calls it with the memory of all. One
/// of them returns the run's failure with its text, the others with an empty one.
Status runOneRank(const RunOptions &options, SharedRanks &group, RankMeeting &meeting,
                  const RankWork &work);

} // namespace memopt

#endif // MEMOPT_RUN_RANKS_H
