//===- NetworkDescription.cpp - what ranks take to send --------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/ranks/NetworkDescription.h"

#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/ranks/Placement.h"
#include "memopt-runtime/threads/TaskThread.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <vector>

using namespace memopt;

/// What latency decides, what the rate does, and chunks and their pipelines between the two.
static constexpr int64_t measuredBytes[] = {4 << 10, 32 << 10, 256 << 10, 1 << 20,
                                            8 << 20, 32 << 20, 64 << 20};
static constexpr int64_t largestBytes = *std::rbegin(measuredBytes);
/// Of a tensor that is sent beside computing: a matrix of a model.
static constexpr int64_t besideBytes = 4 << 20;
/// Larger tensors are not measured where one of these took so long.
static constexpr double patience = 1.5;

int64_t memopt::getNetworkArenaBytes() { return 2 * largestBytes; }

NetworkLink memopt::fitLink(const TimedCollective &small, const TimedCollective &large,
                            int64_t ranks) {
  double sent = double(ranks - 1) / double(ranks);
  // Noise may say that more bytes take less.
  double seconds = std::max(large.seconds - small.seconds, 1e-9);
  double rate = double(large.bytes - small.bytes) * sent / seconds;
  return {std::max(small.seconds - double(small.bytes) * sent / rate, 0.0), rate};
}

/// As the planner does, which takes a latency for each round of doubling between hosts, and a part
/// of the tensor for each rank of a host.
NetworkLink memopt::fitOuterLink(const TimedPair &whole, const TimedPair &inside, int64_t ranks,
                                 int64_t places) {
  auto takeOut = [&](const TimedCollective &all, const TimedCollective &here) -> TimedCollective {
    return {all.bytes / places, std::max(all.seconds - here.seconds, 0.0)};
  };
  NetworkLink link = fitLink(takeOut(whole.small, inside.small), takeOut(whole.large, inside.large),
                             ranks / places);
  link.latency /= std::ceil(std::log2(double(ranks / places)));
  return link;
}

namespace {
enum class Kind { AllReduce, ReduceScatter, AllGather };
constexpr std::pair<Kind, const char *> kinds[] = {{Kind::AllReduce, "all_reduce"},
                                                   {Kind::ReduceScatter, "reduce_scatter"},
                                                   {Kind::AllGather, "all_gather"}};

/// What one kind takes, by bytes; and which parts of their speeds computing and sending have while
/// both go on.
struct Curve {
  std::vector<TimedCollective> points;
  double computing = 1, sending = 1;
};

class Measurement {
public:
  Measurement(Communicator &communicator, char *arena, ThreadPool &pool, ThreadPool &ofSending)
      : communicator(communicator), from(arena), to(arena + largestBytes), pool(pool),
        ofSending(ofSending), numbers(size_t(pool.getThreadCount() * numbersOfThread), 1) {}

  StatusOr<Curve> measure(Kind kind, bool isBesideComputing) {
    Curve curve;
    for (int64_t bytes : measuredBytes) {
      MEMOPT_ASSIGN_OR_RETURN(double seconds, time(kind, bytes));
      // Noise may say that more bytes take less.
      if (!curve.points.empty())
        seconds = std::max(seconds, curve.points.back().seconds);
      curve.points.push_back({bytes, seconds});
      MEMOPT_ASSIGN_OR_RETURN(double ofAll, average(seconds));
      if (ofAll > patience)
        break;
    }
    if (isBesideComputing)
      MEMOPT_RETURN_IF_ERROR(measureBeside(kind, curve));
    return curve;
  }

private:
  /// The median of several, one after the other: a network that rests lets more through at first.
  StatusOr<double> time(Kind kind, int64_t bytes) {
    MEMOPT_RETURN_IF_ERROR(run(kind, bytes, pool)); // pages and connections
    MEMOPT_ASSIGN_OR_RETURN(double first, timeOnce(kind, bytes));
    MEMOPT_ASSIGN_OR_RETURN(int64_t count, chooseCount(first, 0.3));
    std::vector<double> taken;
    for (int64_t i = 0; i < count; ++i) {
      MEMOPT_ASSIGN_OR_RETURN(double one, timeOnce(kind, bytes));
      taken.push_back(one);
    }
    std::nth_element(taken.begin(), taken.begin() + count / 2, taken.end());
    return taken[size_t(count / 2)];
  }

  StatusOr<double> timeOnce(Kind kind, int64_t bytes) {
    int64_t begin = getTime();
    MEMOPT_RETURN_IF_ERROR(run(kind, bytes, pool));
    return getSecondsSince(begin);
  }

  Status run(Kind kind, int64_t bytes, ThreadPool &workers) {
    int64_t elements = bytes / int64_t(sizeof(float)), ranks = communicator.getRanks(),
            shard = (elements + ranks - 1) / ranks;
    switch (kind) {
    case Kind::AllReduce:
      return communicator.allReduce(DType::F32, from, from, elements, workers);
    case Kind::ReduceScatter:
      return communicator.reduceScatter(DType::F32, from, elements, to, shard, workers);
    case Kind::AllGather:
      break;
    }
    return communicator.allGather(to, shard * int64_t(sizeof(float)), from, bytes, workers);
  }

  /// All ranks compute, first by themselves and then while a thread sends, as in a step. What is
  /// computed stays in the first caches: sending over a network takes little of the memory's time.
  Status measureBeside(Kind kind, Curve &curve) {
    MEMOPT_ASSIGN_OR_RETURN(double alone, time(kind, besideBytes));
    MEMOPT_ASSIGN_OR_RETURN(int64_t count, chooseCount(alone, 1));
    MEMOPT_RETURN_IF_ERROR(communicator.barrier());
    int64_t begin = getTime();
    double rate = compute([&] { return getSecondsSince(begin) > 0.3; }) / getSecondsSince(begin);
    MEMOPT_RETURN_IF_ERROR(communicator.barrier());
    std::atomic<bool> isSent = false;
    double sendingSeconds = 0;
    Status status = Status::ok();
    try {
      TaskThread<int> sender(1, [&](int) {
        for (int64_t i = 0; i < count && status.isOk(); ++i)
          status = run(kind, besideBytes, ofSending);
        sendingSeconds = getSecondsSince(begin);
        isSent = true;
      });
      begin = getTime();
      sender.push(0);
      rate = compute([&] { return isSent.load(); }) / getSecondsSince(begin) / rate;
      sender.synchronize();
    } catch (const std::system_error &error) {
      return environmentError(std::string("a thread cannot be started: ") + error.what());
    }
    MEMOPT_RETURN_IF_ERROR(std::move(status));
    MEMOPT_ASSIGN_OR_RETURN(curve.computing, average(std::min(1.0, rate)));
    MEMOPT_ASSIGN_OR_RETURN(curve.sending,
                            average(std::min(1.0, alone * double(count) / sendingSeconds)));
    return Status::ok();
  }

  /// On all threads until `isOver`, in pieces of some ten microseconds: so many.
  template <typename IsOver> double compute(const IsOver &isOver) {
    double pieces = 0;
    for (; !isOver(); ++pieces)
      pool.parallelFor(pool.getThreadCount(), 1, [this](int64_t begin, int64_t end) {
        for (float *number = numbers.data() + begin * numbersOfThread,
                   *last = numbers.data() + end * numbersOfThread;
             number < last; ++number)
          for (int turn = 0; turn < 32; ++turn)
            *number = *number * 0.5f + 0.5f;
      });
    return pieces;
  }

  static double getSecondsSince(int64_t begin) { return double(getTime() - begin) * 1e-9; }

  /// How often to do what took so long, for about `seconds`.
  StatusOr<int64_t> chooseCount(double once, double seconds) {
    constexpr int64_t fewest = 3, most = 200;
    MEMOPT_ASSIGN_OR_RETURN(double ofFirst, hear(once, 0, 1));
    return std::clamp(int64_t(seconds / std::max(ofFirst, 1e-6)), fewest, most);
  }

  StatusOr<double> average(double number) {
    return hear(number / double(communicator.getRanks()), 0, communicator.getRanks());
  }

  /// The sum of the numbers of some ranks, for all.
  StatusOr<double> hear(double number, int64_t begin, int64_t end) {
    std::vector<double> all(size_t(communicator.getRanks()));
    MEMOPT_RETURN_IF_ERROR(communicator.exchange(&number, sizeof number, all.data()));
    return std::accumulate(all.begin() + begin, all.begin() + end, 0.0);
  }

  static constexpr int64_t numbersOfThread = 4096;
  Communicator &communicator;
  char *from, *to;
  ThreadPool &pool, &ofSending; ///< of a step, and of what it sends meanwhile
  std::vector<float> numbers;
};
} // namespace

/// A small collective and the largest one that was measured in both.
static TimedPair getEnds(const Curve &curve, const Curve &other) {
  size_t count = std::min(curve.points.size(), other.points.size());
  return {curve.points.front(), curve.points[count - 1]};
}

namespace {
/// Scattered sums and gathers.
struct Parts {
  Curve sums, gathers;
};
} // namespace

static NetworkLink fitWhole(const Curve &curve, int64_t ranks) {
  TimedPair ends = getEnds(curve, curve);
  return fitLink(ends.small, ends.large, ranks);
}

/// From the inside out; `inside` is of hosts of `places` ranks, or of nothing.
static std::vector<NetworkLevel> fitLevels(const Parts &all, const Parts &inside, int64_t ranks,
                                           int64_t places) {
  if (places == ranks)
    return {{ranks, fitWhole(all.gathers, ranks), fitWhole(all.sums, ranks)}};
  auto fitOuter = [&](const Curve &whole, const Curve &here) {
    return fitOuterLink(getEnds(whole, here), getEnds(here, whole), ranks, places);
  };
  return {{places, fitWhole(inside.gathers, places), fitWhole(inside.sums, places)},
          {ranks / places, fitOuter(all.gathers, inside.gathers), fitOuter(all.sums, inside.sums)}};
}

static nlohmann::ordered_json describe(const std::vector<NetworkLevel> &levels, int64_t ranks) {
  nlohmann::ordered_json described;
  for (const NetworkLevel &level : levels) {
    bool isLast = &level == &levels.back();
    std::string of = levels.size() == 1 ? std::to_string(ranks) + " ranks"
                     : isLast           ? std::to_string(level.members) + " hosts"
                                        : std::to_string(level.members) + " ranks of a host";
    nlohmann::ordered_json json = {{"name", "measured, of " + of}};
    if (!isLast)
      json["members"] = level.members;
    json["latency_seconds"] = level.gathers.latency;
    json["bytes_per_second"] = level.gathers.bytesPerSecond;
    json["sums"] = {{"latency_seconds", level.sums.latency},
                    {"bytes_per_second", level.sums.bytesPerSecond}};
    described.push_back(std::move(json));
  }
  return described;
}

static nlohmann::ordered_json describe(const Curve &curve) {
  nlohmann::ordered_json bytes, seconds;
  for (const TimedCollective &point : curve.points) {
    bytes.push_back(point.bytes);
    seconds.push_back(point.seconds);
  }
  return {{"bytes", std::move(bytes)},
          {"seconds", std::move(seconds)},
          {"computing_speed", curve.computing},
          {"sending_speed", curve.sending}};
}

Status memopt::measureNetwork(Communicator &communicator, Device &device, const std::string &path) {
  MEMOPT_ASSIGN_OR_RETURN(Sharers sharers, countSharers(communicator));
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool,
                          ThreadPool::create(getAllowedThreads(sharers), 1));
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> ofSending, ThreadPool::create(1, 1));
  MEMOPT_ASSIGN_OR_RETURN(
      std::unique_ptr<Arena> arena,
      device.allocate(MEMOPT_SPACE_DEVICE, getNetworkArenaBytes(), /*isChecked=*/false));
  MEMOPT_RETURN_IF_ERROR(arena->reset());
  Measurement measurement(communicator, arena->base(), *pool, *ofSending);
  int64_t ranks = communicator.getRanks();
  Parts all, inside;
  nlohmann::ordered_json measured = {{"ranks", ranks}};
  for (auto [kind, name] : kinds) {
    MEMOPT_ASSIGN_OR_RETURN(Curve curve, measurement.measure(kind, /*isBesideComputing=*/true));
    measured[name] = describe(curve);
    if (kind != Kind::AllReduce) // a sum that is gathered again
      (kind == Kind::AllGather ? all.gathers : all.sums) = std::move(curve);
  }
  int64_t places = ranks;
  if (Communicator *here = communicator.getInside()) {
    places = here->getRanks();
    Measurement ofHost(*here, arena->base(), *pool, *ofSending);
    MEMOPT_ASSIGN_OR_RETURN(inside.sums, ofHost.measure(Kind::ReduceScatter, false));
    MEMOPT_ASSIGN_OR_RETURN(inside.gathers, ofHost.measure(Kind::AllGather, false));
  }
  MEMOPT_RETURN_IF_ERROR(communicator.barrier());
  if (communicator.getRank() != 0)
    return Status::ok();
  nlohmann::ordered_json network = {
      {"format", "memopt-network"},
      {"version", 2},
      {"levels", describe(fitLevels(all, inside, ranks, places), ranks)},
      {"measured", std::move(measured)}};
  return writeFileAtomically(path, network.dump(2) + "\n").withContext("--describe-network");
}
