//===- LaunchedRank.h - what a launcher says of a process -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// torchrun, mpirun and srun start a program many times and say to each process, by variables of its
// environment, which of them it is.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_LAUNCHEDRANK_H
#define MEMOPT_RUNTIME_RANKS_LAUNCHEDRANK_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>
#include <functional>

namespace memopt {

struct LaunchedRank {
  std::string launcher; ///< as its users call it
  int64_t rank = 0, ranks = 1;
  /// What all processes of this start have in common, and no other start on this host has while
  /// they live.
  std::string start;
  /// How the launcher says that its processes are on several hosts; empty where they are on one.
  std::string spread = {};
  bool startsMpi = false; ///< whether its processes can be those of an MPI
};

/// Reads a variable, null where it is not set; std::getenv but for tests.
using EnvironmentReader = std::function<const char *(const char *)>;

/// Nothing when this process is the only one that was started. A number that is none is a BadInput,
/// and so is a launcher that does not say how many of its processes are on this host, unless the
/// user says `isOneHost`.
StatusOr<std::optional<LaunchedRank>> findLaunchedRank(const EnvironmentReader &read,
                                                       bool isOneHost = false);

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_LAUNCHEDRANK_H
