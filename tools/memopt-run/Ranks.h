//===- Ranks.h - a run of several processes ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_RANKS_H
#define MEMOPT_RUN_RANKS_H

#include "Options.h"
#include "memopt-runtime/SharedRanks.h"
#include <functional>

namespace memopt {

/// Starts a process for each rank, which calls `run` and ends; returns when all have ended. The
/// failure of the rank that left first is that of the run, with its number. A process that dies
/// makes the others leave, with exit code 3, and requests to stop are handed on to all.
Status runRanks(const RunOptions &options, int64_t arenaBytes,
                const std::function<Status(Communicator &, Device &)> &run);

/// Refuses to be one of several processes that something else started as ranks.
Status checkLauncher(const RunOptions &options);

} // namespace memopt

#endif // MEMOPT_RUN_RANKS_H
