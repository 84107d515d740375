//===- RankModel.h - bytes and seconds of many ranks ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What can be said of a step on thousands of ranks without starting any: all of them run one list
// of ops, so one list is enough. Model state is counted as ZeRO shares it out (Rajbhandari et al.,
// 2020), padding included; time is that of a network with several levels, such as hosts and what is
// between them, or what these very ranks were seen to take.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_RANKS_RANKMODEL_H
#define MEMOPT_PLANNING_RANKS_RANKMODEL_H

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace memopt::planning {

/// As many as programs are compiled for.
inline constexpr int64_t mostModeledRanks = 4096;

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

/// A parameter and what training keeps for it.
struct RankTensor {
  int64_t elements = 0;
  double parameterBytes = 4, gradientBytes = 4; ///< of an element; a frozen one has no gradient
  double stateBytes = 0;                        ///< of an element, of what is shared out
  int64_t wholeBytes = 0; ///< of state that every rank keeps whole, such as a count of steps
  int64_t unit = 16;      ///< elements that a shard is a multiple of: a vector or a block
  /// Of those that are updated alike, which small ones of are cut together (ShardUnits.h).
  std::optional<int64_t> group = std::nullopt;
};

/// Elements of each rank's shard; the last ones hold padding. One of fewer elements than a vector
/// is not rounded up to it, but for a tensor that is no larger.
int64_t getShardElements(int64_t elements, int64_t ranks, int64_t unit);

/// Bytes of model state on each of `ranks` ranks at a stage of ZeRO, 0 to 3: from stage 1 on
/// optimizer state is shared out, from 2 on gradients, from 3 on parameters too.
int64_t getRankStateBytes(llvm::ArrayRef<RankTensor> tensors, int stage, int64_t ranks);

//===----------------------------------------------------------------------===//
// Seconds
//===----------------------------------------------------------------------===//

struct RankLink {
  double latency = 0;        ///< seconds before the first byte
  double bytesPerSecond = 1; ///< of one rank, in one direction
};

/// What connects members of one kind: the ranks of a host, the hosts of a rack, the racks.
struct RankLevel {
  int64_t members = 1; ///< at most; of the outermost level as many as there are
  RankLink link;
  /// Of scattered sums, where they take something else: a sum in the order of the ranks passes by
  /// all hosts.
  std::optional<RankLink> sums = std::nullopt;
};

enum class RankOpKind { Compute, AllReduce, ReduceScatter, AllGather };

/// One kind of collective, as ranks were seen to make it.
struct MeasuredCollective {
  struct Point {
    double bytes, seconds;
  };
  std::vector<Point> points; ///< at least two, of ever more bytes
  /// Ranks may share processors with what sends for them. While both go on, computing and sending
  /// have these speeds; alone each has 1.
  double computingSpeed = 1, sendingSpeed = 1;

  /// Along a line between points, and on as between the last two.
  double getSeconds(double bytes) const;
};

/// What ranks were seen to take, where they were and as many as there were.
struct MeasuredRanks {
  int64_t ranks = 1;
  MeasuredCollective allReduce, reduceScatter, allGather;

  const MeasuredCollective &get(RankOpKind kind) const;
};

/// From the inside out; the last level has no end.
struct RankNetwork {
  std::vector<RankLevel> levels;
  /// For so many ranks it stands above what follows from the levels.
  std::optional<MeasuredRanks> measured = std::nullopt;

  const MeasuredCollective *findMeasured(int64_t ranks, RankOpKind kind) const;
  /// The members of the first level that `ranks` ranks would fill in part, one of several: such
  /// ranks are not alike. None if there is no such level.
  std::optional<int64_t> findPartialGroup(int64_t ranks) const;
};

struct RankOp {
  RankOpKind kind = RankOpKind::Compute;
  double seconds = 0; ///< of computation
  int64_t bytes = 0;  ///< of a collective's whole tensor
  /// Of a collective, positions in the list: the last op that its operand waits for (-1: none), and
  /// the first that needs its result.
  int64_t readyAfter = -1, neededBy = std::numeric_limits<int64_t>::max();
  bool isInFlight = false; ///< the program goes on beside it until `neededBy`
};

/// A collective as it was measured; else level by level from the inside out, or the other way
/// round, where a sum that all get is a scattered one, gathered again.
double getCollectiveSeconds(const RankNetwork &network, int64_t ranks, RankOpKind kind,
                            int64_t bytes);

struct RankStepTime {
  double total = 0, compute = 0, network = 0; ///< the last two at full speed
  /// Seconds more than computing takes by itself.
  double getExposed() const { return total - compute; }
};

/// As `ahead`: each collective begins where it stands, as the program does it.
inline constexpr int64_t asCompiled = -1;

/// The step of one rank, where all are alike. Collectives begin in the order of the list, one at a
/// time. `asCompiled` waits at once for what is not in flight. With `ahead` 0 each is waited for at
/// once. Otherwise up to `ahead` of them are begun early, as soon as their operands are there,
/// before the one in front has been waited for; each is waited for where it is needed.
RankStepTime simulateRanks(llvm::ArrayRef<RankOp> step, const RankNetwork &network, int64_t ranks,
                           int64_t ahead);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_RANKS_RANKMODEL_H
