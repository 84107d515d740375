//===- LaunchedRanks.h - one process of a launcher's ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_LAUNCHEDRANKS_H
#define MEMOPT_RUN_LAUNCHEDRANKS_H

#include "Options.h"
#include "memopt-runtime/RankMeeting.h"

namespace memopt {

/// Meets the other processes that torchrun, mpirun or srun started, and sets the number of ranks;
/// null where this process is alone.
StatusOr<std::unique_ptr<RankMeeting>> meetOtherRanks(RunOptions &options,
                                                      const std::vector<std::string> &arguments);

/// What the first process prepares for all.
struct PreparedRun {
  std::string package; ///< a folder
  double compileSeconds = 0;
  int64_t arenaBytes = 0;

  std::string write() const;
  static StatusOr<PreparedRun> read(const std::string &text);
};

} // namespace memopt

#endif // MEMOPT_RUN_LAUNCHEDRANKS_H
