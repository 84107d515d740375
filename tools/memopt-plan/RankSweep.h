//===- RankSweep.h - ways to train on a cluster, side by side ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_PLAN_RANKSWEEP_H
#define MEMOPT_TOOLS_PLAN_RANKSWEEP_H

#include "memopt/Planning/Ranks/RankModel.h"

#include <string>
#include <vector>

/// What is tried: each number of ranks in each stage of ZeRO with each number of micro-batches.
struct RankSweepOptions {
  std::string model;        ///< that memopt-compile reads
  std::string deviceMemory; ///< of a rank, as --device-memory of memopt-compile; empty: no budget
  int64_t samples = 0;      ///< of a step, over all ranks; 0: each rank takes the model's batch
  std::vector<int64_t> ranks, stages = {0, 1, 2, 3}, microBatches = {1, 2, 4};
  std::vector<std::string> compileOptions; ///< given to memopt-compile as they are
};

/// Compiles the model in each way, prints a line for each as soon as it is known, and in the end the
/// one with the most samples a second. No rank is started. Of ways within 1 % of each other the one
/// with fewer bytes is preferred. Returns the exit code: 2 if no way fits.
int runRankSweep(const char *program, const RankSweepOptions &options,
                 const memopt::planning::RankNetwork &network);

#endif // MEMOPT_TOOLS_PLAN_RANKSWEEP_H
