//===- RankModel.cpp - bytes and seconds of many ranks -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Ranks/RankModel.h"
#include "memopt/Planning/Ranks/ShardUnits.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace memopt::planning;

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

int64_t memopt::planning::getShardElements(int64_t elements, int64_t ranks, int64_t unit) {
  if (ranks == 1)
    return elements;
  constexpr int64_t vector = 16; // what is larger is cut into shards that may be smaller
  int64_t least = (elements + ranks - 1) / ranks;
  if (unit == vector && least < vector && elements > vector)
    return least;
  return (least + unit - 1) / unit * unit;
}

int64_t memopt::planning::getRankStateBytes(llvm::ArrayRef<RankTensor> tensors, int stage,
                                            int64_t ranks) {
  double total = 0;
  auto add = [&](const RankTensor &tensor, int64_t elements, int64_t shard) {
    auto elementsFrom = [&](int from) {
      return static_cast<double>(stage >= from ? shard : elements);
    };
    // A parameter that sharing out would not make smaller stays whole.
    double parameters = static_cast<double>(std::min(shard, elements));
    total += tensor.stateBytes * elementsFrom(1) + tensor.gradientBytes * elementsFrom(2) +
             tensor.parameterBytes * (stage >= 3 ? parameters : elementsFrom(3)) +
             static_cast<double>(tensor.wholeBytes);
  };
  std::vector<ShardTensor> cut;
  for (const RankTensor &tensor : tensors)
    cut.push_back(
        {tensor.elements, std::llround(tensor.parameterBytes), tensor.unit, tensor.group});
  std::vector<bool> isMember(tensors.size());
  for (const ShardUnit &unit : formShardUnits(cut, ranks)) {
    int64_t elements = 0;
    for (size_t member : unit.members) {
      isMember[member] = true;
      elements += tensors[member].elements;
    }
    const RankTensor &first = tensors[unit.members.front()];
    add(first, elements, getShardElements(unit.elements, ranks, first.unit));
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!isMember[i])
      add(tensors[i], tensors[i].elements,
          getShardElements(tensors[i].elements, ranks, tensors[i].unit));
  return std::llround(std::min(total, 9e18)); // what no file says in earnest
}

//===----------------------------------------------------------------------===//
// Seconds
//===----------------------------------------------------------------------===//

std::optional<int64_t> RankNetwork::findPartialGroup(int64_t ranks) const {
  int64_t group = 1;
  for (const RankLevel &level : llvm::ArrayRef(levels).drop_back()) {
    if (level.members >= (ranks + group - 1) / group)
      return std::nullopt;
    group *= level.members;
    if (ranks % group)
      return group;
  }
  return std::nullopt;
}

double MeasuredCollective::getSeconds(double bytes) const {
  auto end = points.begin() + 1;
  while (end + 1 != points.end() && end->bytes < bytes)
    ++end;
  Point low = *(end - 1), high = *end;
  double slope = (high.seconds - low.seconds) / (high.bytes - low.bytes);
  // Fewer bytes than were measured take as long as the fewest.
  return low.seconds + std::max(0.0, bytes - low.bytes) * slope;
}

const MeasuredCollective &MeasuredRanks::get(RankOpKind kind) const {
  switch (kind) {
  case RankOpKind::AllReduce:
    return allReduce;
  case RankOpKind::ReduceScatter:
    return reduceScatter;
  case RankOpKind::AllGather:
  case RankOpKind::Compute: // which nobody asks for
    break;
  }
  return allGather;
}

const MeasuredCollective *RankNetwork::findMeasured(int64_t ranks, RankOpKind kind) const {
  return measured && measured->ranks == ranks ? &measured->get(kind) : nullptr;
}

double memopt::planning::getCollectiveSeconds(const RankNetwork &network, int64_t ranks,
                                              RankOpKind kind, int64_t bytes) {
  if (const MeasuredCollective *measured = network.findMeasured(ranks, kind))
    return measured->getSeconds(static_cast<double>(bytes));
  if (kind == RankOpKind::AllReduce)
    return getCollectiveSeconds(network, ranks, RankOpKind::ReduceScatter, bytes) +
           getCollectiveSeconds(network, ranks, RankOpKind::AllGather, bytes);
  double seconds = 0, left = static_cast<double>(ranks), size = static_cast<double>(bytes);
  for (const RankLevel &level : network.levels) {
    bool isLast = &level == &network.levels.back(), isFirst = &level == &network.levels.front();
    double members = isLast ? left : std::min(left, static_cast<double>(level.members));
    const RankLink &link =
        kind == RankOpKind::ReduceScatter && level.sums ? *level.sums : level.link;
    if (members > 1) {
      // Beyond a host each rank sends its part alone, in as many rounds as doubling takes.
      double rounds = isFirst ? 1 : std::ceil(std::log2(members));
      seconds += link.latency * rounds + size * (members - 1) / members / link.bytesPerSecond;
      size /= members;
    }
    left /= members;
  }
  return seconds;
}

namespace {
/// Follows one rank through its step.
class RankClock {
public:
  RankClock(llvm::ArrayRef<RankOp> step, const RankNetwork &network, int64_t ranks, int64_t ahead)
      : step(step), network(network), ranks(ranks), ahead(ahead) {
    for (size_t at = 0; at < step.size(); ++at)
      if (step[at].kind != RankOpKind::Compute)
        collectives.push_back(static_cast<int64_t>(at));
    left.resize(collectives.size());
  }

  RankStepTime run() {
    for (size_t at = 0; at < step.size(); ++at) {
      auto position = static_cast<int64_t>(at);
      if (ahead > 0)
        startEarly(position);
      if (step[at].kind == RankOpKind::Compute)
        compute(position);
      else if (started < collectives.size() && collectives[started] == position)
        startInTurn();
    }
    while (waited < started)
      waitForOne();
    time.total = now;
    return time;
  }

private:
  void start() {
    const RankOp &op = step[collectives[started]];
    double seconds = getCollectiveSeconds(network, ranks, op.kind, op.bytes);
    time.network += seconds;
    left[started++] = seconds;
  }

  /// All whose operands are there, as many as may be ahead.
  void startEarly(int64_t position) {
    while (started < collectives.size() && static_cast<int64_t>(started - waited) <= ahead &&
           step[collectives[started]].readyAfter < position)
      start();
  }

  void startInTurn() {
    bool flies = ahead > 0 || (ahead == asCompiled && step[collectives[started]].isInFlight);
    while (ahead >= 0 && static_cast<int64_t>(started - waited) > ahead)
      waitForOne();
    start();
    while (!flies && waited < started)
      waitForOne();
  }

  /// One queue: what ends earlier has been there earlier.
  void waitForOne() {
    while (ended <= waited) {
      now += left[ended];
      ++ended;
    }
    ++waited;
  }

  void compute(int64_t position) {
    for (size_t next = waited; next < started; ++next)
      if (step[collectives[next]].neededBy <= position)
        while (waited <= next)
          waitForOne();
    if (ahead > 0)
      startEarly(position);
    time.compute += step[position].seconds;
    computeBesideSending(step[position].seconds);
  }

  /// Collectives that are under way go on meanwhile, one after the other.
  void computeBesideSending(double seconds) {
    for (; ended < started; ++ended) {
      const MeasuredCollective *measured =
          network.findMeasured(ranks, step[collectives[ended]].kind);
      double computing = measured ? measured->computingSpeed : 1,
             sending = measured ? measured->sendingSpeed : 1, toCompute = seconds / computing,
             toSend = left[ended] / sending;
      if (toCompute < toSend) {
        now += toCompute;
        left[ended] -= toCompute * sending;
        return;
      }
      now += toSend;
      seconds -= toSend * computing;
    }
    now += std::max(0.0, seconds);
  }

  llvm::ArrayRef<RankOp> step;
  const RankNetwork &network;
  int64_t ranks, ahead;
  std::vector<int64_t> collectives; ///< their positions
  std::vector<double> left;         ///< seconds of those that were started, at full speed
  size_t started = 0, ended = 0, waited = 0;
  double now = 0;
  RankStepTime time;
};
} // namespace

RankStepTime memopt::planning::simulateRanks(llvm::ArrayRef<RankOp> step,
                                             const RankNetwork &network, int64_t ranks,
                                             int64_t ahead) {
  return RankClock(step, network, ranks, ahead).run();
}
