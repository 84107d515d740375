//===- RankReport.cpp - what a package takes on many ranks ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankReport.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace memopt::planning;

static void printBytes(const RankStep &step, int64_t ranks) {
  if (step.ranks != ranks) {
    llvm::outs() << "the package was compiled for " << step.ranks
                 << " ranks: for the bytes of a whole step compile the model with --ranks=" << ranks
                 << ", which starts none\n";
    return;
  }
  for (const auto &[space, bytes] : step.peaks)
    llvm::outs() << space << " " << bytes << " bytes on each rank\n";
}

/// For 1, 2, 4, ... ranks, and for the number that is asked for.
static void printState(const RankStep &step, int64_t asked) {
  llvm::outs()
      << "bytes of parameters, gradients and optimizer state on each rank, padding included:\n"
      << llvm::format("%8s %18s %18s %18s %18s\n", "ranks", "stage 0", "stage 1", "stage 2",
                      "stage 3");
  auto printRow = [&](int64_t ranks) {
    llvm::outs() << llvm::format("%8lld", (long long)ranks);
    for (int stage = 0; stage <= 3; ++stage)
      llvm::outs() << llvm::format(" %18lld",
                                   (long long)getRankStateBytes(step.tensors, stage, ranks));
    llvm::outs() << "\n";
  };
  for (int64_t ranks = 1; ranks <= mostModeledRanks; ranks *= 2) {
    printRow(ranks);
    if (ranks < asked && asked < 2 * ranks)
      printRow(asked);
  }
}

static void printCollectives(const RankStep &step, const RankNetwork &network, int64_t ranks) {
  static constexpr std::pair<RankOpKind, const char *> kinds[] = {
      {RankOpKind::AllReduce, "all_reduce"},
      {RankOpKind::ReduceScatter, "reduce_scatter"},
      {RankOpKind::AllGather, "all_gather"}};
  for (auto [kind, name] : kinds) {
    uint64_t count = 0, bytes = 0;
    double seconds = 0;
    for (const RankOp &op : step.ops)
      if (op.kind == kind) {
        ++count;
        bytes = llvm::SaturatingAdd(bytes, static_cast<uint64_t>(op.bytes));
        seconds += getCollectiveSeconds(network, ranks, kind, op.bytes);
      }
    if (count)
      llvm::outs() << name << " " << count << " of " << bytes << " bytes, "
                   << llvm::format("%.6f", seconds) << " s\n";
  }
  llvm::outs() << "digest " << step.digest << "\n";
}

void printRankReport(const RankStep &step, const RankNetwork &network, int64_t ranks) {
  printBytes(step, ranks);
  printState(step, ranks);
  printCollectives(step, network, ranks);
  if (auto flights = llvm::count_if(step.ops, [](const RankOp &op) { return op.isInFlight; })) {
    RankStepTime time = simulateRanks(step.ops, network, ranks, asCompiled);
    llvm::outs() << llvm::format("step %.6f s, %.6f s of it computing, as compiled: ", time.total,
                                 time.compute)
                 << flights << " collectives in flight\n";
  }
  for (int64_t ahead : {0, 1, 2, 4}) {
    RankStepTime time = simulateRanks(step.ops, network, ranks, ahead);
    llvm::outs() << llvm::format("step %.6f s, %.6f s of it computing, ", time.total, time.compute);
    if (ahead)
      llvm::outs() << "with " << ahead << " collectives begun early\n";
    else
      llvm::outs() << "without prefetch\n";
  }
}
