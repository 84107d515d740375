//===- Placement.h - where ranks are ----------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which ranks share a host, as far as they can say themselves: its memory, processors and time.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_PLACEMENT_H
#define MEMOPT_RUNTIME_RANKS_PLACEMENT_H

#include "memopt-runtime/ranks/Communicator.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <cstdint>
#include <vector>

namespace memopt {

/// The hosts of ranks, in the order of their first ranks.
class Placement {
public:
  /// From something that tells the host of each rank from others.
  explicit Placement(const std::vector<uint64_t> &ofRanks);

  int64_t countRanks() const { return int64_t(places.size()); }
  int64_t countHosts() const { return int64_t(hosts.size()); }
  /// The ranks of a host, ascending.
  const std::vector<int64_t> &getRanks(int64_t host) const { return hosts[size_t(host)]; }
  int64_t getHost(int64_t rank) const { return places[size_t(rank)].host; }
  /// Which of the ranks of its host a rank is.
  int64_t getPlace(int64_t rank) const { return places[size_t(rank)].place; }

  int64_t countFewest() const { return fewest; } ///< ranks of a host
  int64_t countMost() const { return most; }
  /// Whether the ranks of each host follow each other in number.
  bool isInOrder() const { return inOrder; }

private:
  struct Place {
    int64_t host, place;
  };
  std::vector<std::vector<int64_t>> hosts;
  std::vector<Place> places;
  int64_t fewest = 0, most = 0;
  bool inOrder = true;
};

/// Tells this host from others: by its machine as it was started, its network and its name.
uint64_t identifyHost();

/// Ranks that this one shares processors and their time with, itself among them.
StatusOr<Sharers> countSharers(Communicator &communicator);

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_PLACEMENT_H
