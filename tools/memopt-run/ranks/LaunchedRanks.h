//===- LaunchedRanks.h - one process of a launcher's ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_LAUNCHEDRANKS_H
#define MEMOPT_RUN_LAUNCHEDRANKS_H

#include "memopt-run/options/Options.h"
#include "memopt-runtime/package/Package.h"
#include "memopt-runtime/ranks/RankMeeting.h"

namespace memopt {

/// Which of the processes that torchrun, mpirun or srun started this one is; sets the number of
/// ranks. Nothing where this process is alone.
StatusOr<std::optional<LaunchedRank>> findRank(RunOptions &options);

/// Whether a rank reaches others by messages (MessageRank.h), and not all by shared memory.
StatusOr<bool> usesMessages(const RunOptions &options, const std::optional<LaunchedRank> &self);

/// Refuses a model that one host alone would have compiled.
Status checkShared(const RunOptions &options, const LaunchedRank &self);

/// What a rank was asked to do. `describe` says what tells one file from another.
RankTask describeTask(const RunOptions &options, const std::vector<std::string> &arguments,
                      std::string (*describe)(const std::string &path));

/// Meets the others on this host; null where this process is alone.
StatusOr<std::unique_ptr<RankMeeting>> meetOtherRanks(const RunOptions &options,
                                                      const std::optional<LaunchedRank> &self,
                                                      const std::vector<std::string> &arguments);

/// A package that the first process has loaded, as it tells the others of it.
struct PreparedPackage {
  std::string path, digest;

  /// Of the package that is loaded, or of none.
  static PreparedPackage describe(const std::string &path, const Package *loaded);
  /// Another process's turn: null where there is none. Fails where the path leads to another one.
  StatusOr<std::shared_ptr<const Package>> load(int64_t rank) const;
};

/// What the first process prepares for all.
struct PreparedRun {
  PreparedPackage package, evaluation; ///< the second of no path without evaluations
  double compileSeconds = 0;
  int64_t arenaBytes = 0;

  std::string write() const;
  static StatusOr<PreparedRun> read(const std::string &text);
};

} // namespace memopt

#endif // MEMOPT_RUN_LAUNCHEDRANKS_H
