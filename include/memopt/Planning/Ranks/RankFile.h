//===- RankFile.h - packages and networks, for many ranks -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What RankModel computes with, read from a package's manifest (docs/Package.md) and from a network
// (docs/Planning.md). Nothing that a file says is trusted.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_RANKS_RANKFILE_H
#define MEMOPT_PLANNING_RANKS_RANKFILE_H

#include "memopt/Planning/Ranks/RankModel.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace memopt::planning {

struct RankStep {
  int64_t ranks = 1;   ///< that the package was compiled for
  int64_t samples = 0; ///< of a rank in one step; 0 if no input has a dimension of them
  std::vector<std::pair<std::string, int64_t>> peaks; ///< of each space, in bytes
  std::vector<RankTensor> tensors;
  std::vector<RankOp> ops; ///< loops written out
  /// Of the sequence of collectives with their types and sizes: programs with the same digest do
  /// the same together.
  std::string digest;
};

/// Reads a package's folder. Errors name the file and the place in it.
llvm::Expected<RankStep> readRankStep(llvm::StringRef package);
/// The same for the manifest's text.
llvm::Expected<RankStep> parseRankStep(llvm::StringRef text, llvm::StringRef path);

/// {"format": "memopt-network", "version": 2, "levels": [{"members": 8, "latency_seconds": 6e-6,
/// "bytes_per_second": 4e11}, {"latency_seconds": 1.2e-5, "bytes_per_second": 4.5e10}]}, from the
/// inside out. A level may have "sums": {"latency_seconds": 6e-6, "bytes_per_second": 2e11}, for
/// scattered sums. A file that ranks wrote also has what these took, as "measured":
/// {"ranks": 2, "all_reduce": COLLECTIVE, "reduce_scatter": COLLECTIVE, "all_gather": COLLECTIVE},
/// with COLLECTIVE = {"bytes": [4096, 65536], "seconds": [1e-4, 3e-3], "computing_speed": 0.9,
/// "sending_speed": 0.8}. Version 1 has two levels: {"format": "memopt-network", "version": 1,
/// "ranks_per_host": 8, "inside": LINK, "between": LINK}.
llvm::Expected<RankNetwork> readRankNetwork(llvm::StringRef path);
llvm::Expected<RankNetwork> parseRankNetwork(llvm::StringRef text, llvm::StringRef path);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_RANKS_RANKFILE_H
