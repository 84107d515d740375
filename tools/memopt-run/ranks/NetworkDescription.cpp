//===- NetworkDescription.cpp - what ranks take to send --------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/ranks/NetworkDescription.h"

#include "memopt-run/ranks/Ranks.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/Files.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

using namespace memopt;

/// What latency decides, and what the rate does: more than networks let through at once.
static constexpr int64_t smallBytes = 4 << 10, largeBytes = 8 << 20;

int64_t memopt::getNetworkArenaBytes() { return 2 * largeBytes; }

NetworkLink memopt::fitLink(const TimedCollective &small, const TimedCollective &large,
                            int64_t ranks) {
  double sent = double(ranks - 1) / double(ranks);
  // Noise may say that more bytes take less.
  double seconds = std::max(large.seconds - small.seconds, 1e-9);
  double rate = double(large.bytes - small.bytes) * sent / seconds;
  return {std::max(small.seconds - double(small.bytes) * sent / rate, 0.0), rate};
}

namespace {
class Measurement {
public:
  Measurement(Communicator &communicator, char *arena, ThreadPool &pool)
      : communicator(communicator), from(arena), to(arena + largeBytes), pool(pool) {}

  /// The median of all kinds of collective, one after the other: a network that rests lets more through at first.
  StatusOr<TimedCollective> measure(int64_t bytes) {
    constexpr double seconds = 0.3;
    constexpr int64_t fewest = 4, most = 200;
    MEMOPT_RETURN_IF_ERROR(run(bytes).takeStatus()); // pages and connections
    MEMOPT_ASSIGN_OR_RETURN(double first, run(bytes));
    MEMOPT_ASSIGN_OR_RETURN(
        int64_t count,
        hearFirst(std::clamp(int64_t(seconds / std::max(first, 1e-6)), fewest, most)));
    std::vector<double> taken;
    for (int64_t i = 0; i < count; ++i) {
      MEMOPT_ASSIGN_OR_RETURN(double one, run(bytes));
      taken.push_back(one);
    }
    std::nth_element(taken.begin(), taken.begin() + count / 2, taken.end());
    return TimedCollective{bytes, taken[size_t(count / 2)]};
  }

private:
  /// Seconds of a gathered tensor, a scattered sum and a sum, which stands for one of each. Between
  /// hosts of several ranks they are not alike.
  StatusOr<double> run(int64_t bytes) {
    int64_t elements = bytes / int64_t(sizeof(float)), ranks = communicator.getRanks(),
            shard = (elements + ranks - 1) / ranks;
    int64_t begin = getTime();
    MEMOPT_RETURN_IF_ERROR(communicator.reduceScatter(DType::F32, from, elements, to, shard, pool));
    MEMOPT_RETURN_IF_ERROR(
        communicator.allGather(to, shard * int64_t(sizeof(float)), from, bytes, pool));
    MEMOPT_RETURN_IF_ERROR(communicator.allReduce(DType::F32, from, from, elements, pool));
    return double(getTime() - begin) * 0.25e-9;
  }

  /// The number of the first rank, for all.
  StatusOr<int64_t> hearFirst(int64_t number) {
    std::vector<int64_t> all(size_t(communicator.getRanks()));
    MEMOPT_RETURN_IF_ERROR(communicator.exchange(&number, sizeof number, all.data()));
    return all.front();
  }

  Communicator &communicator;
  char *from, *to;
  ThreadPool &pool;
};
} // namespace

Status memopt::measureNetwork(Communicator &communicator, Device &device, const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(Sharers sharers, countSharers(communicator));
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool,
                          ThreadPool::create(getAllowedThreads(sharers), 1));
  MEMOPT_ASSIGN_OR_RETURN(
      std::unique_ptr<Arena> arena,
      device.allocate(MEMOPT_SPACE_DEVICE, getNetworkArenaBytes(), /*isChecked=*/false));
  MEMOPT_RETURN_IF_ERROR(arena->reset());
  Measurement measurement(communicator, arena->base(), *pool);
  MEMOPT_ASSIGN_OR_RETURN(TimedCollective small, measurement.measure(smallBytes));
  MEMOPT_ASSIGN_OR_RETURN(TimedCollective large, measurement.measure(largeBytes));
  if (communicator.getRank() != 0)
    return Status::ok();
  NetworkLink link = fitLink(small, large, communicator.getRanks());
  nlohmann::ordered_json level = {
      {"name", "measured, of " + std::to_string(communicator.getRanks()) + " ranks"},
      {"latency_seconds", link.latency},
      {"bytes_per_second", link.bytesPerSecond}};
  nlohmann::ordered_json network = {
      {"format", "memopt-network"}, {"version", 2}, {"levels", {level}}};
  return writeFileAtomically(path, network.dump(2) + "\n").withContext("--describe-network");
}
