//===- TwoLevelRanksTest.cpp - ranks of several hosts ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Hosts are memories of their own, between which threads send messages.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/TwoLevelRanks.h"
#include "CommunicatorConformance.h"
#include "TestSupport.h"
#include "ThreadMessages.h"
#include "memopt-runtime/device/RankDevice.h"

using namespace memopt;
using namespace memopt::testing;

namespace {
/// Ranks on hosts, of which `ofRanks` has the number of each.
struct Hosts {
  static StatusOr<std::unique_ptr<Hosts>> create(const std::vector<uint64_t> &ofRanks,
                                                 int64_t bytes, double seconds,
                                                 Network::Unkindness unkindness = {}) {
    auto made = std::make_unique<Hosts>(ofRanks);
    auto ranks = int64_t(ofRanks.size());
    made->bytes = bytes;
    made->network = std::make_shared<Network>(ranks, unkindness);
    for (int64_t host = 0; host < made->placement.countHosts(); ++host) {
      MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<SharedRanks> memory,
                              SharedRanks::create(int64_t(made->placement.getRanks(host).size()),
                                                  bytes, false, seconds));
      made->memories.push_back(std::move(memory));
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<MessageCommunicator> across,
                              MessageCommunicator::create(
                                  std::make_unique<ThreadMessages>(made->network, rank), seconds));
      made->across.push_back(std::move(across));
    }
    return made;
  }

  explicit Hosts(const std::vector<uint64_t> &ofRanks) : placement(ofRanks) {}
  SharedRanks &getMemory(int64_t rank) { return *memories[size_t(placement.getHost(rank))]; }
  std::unique_ptr<TwoLevelCommunicator> joinHosts(int64_t rank) {
    return std::make_unique<TwoLevelCommunicator>(*across[size_t(rank)], getMemory(rank),
                                                  placement);
  }
  std::unique_ptr<Communicator> join(int64_t rank) { return joinHosts(rank); }
  std::unique_ptr<Arena> allocate(int64_t rank) {
    return *openRankDevice(getMemory(rank), placement.getPlace(rank))
                ->allocate(MEMOPT_SPACE_DEVICE, bytes, false);
  }

  const Placement placement;
  int64_t bytes = 0;
  std::shared_ptr<Network> network;
  std::vector<std::unique_ptr<SharedRanks>> memories;
  std::vector<std::unique_ptr<MessageCommunicator>> across;
};
} // namespace

/// Hosts of so many ranks each, but for the last one.
static std::vector<uint64_t> placeInTurn(int64_t ranks, int64_t places) {
  std::vector<uint64_t> ofRanks;
  for (int64_t rank = 0; rank < ranks; ++rank)
    ofRanks.push_back(uint64_t(rank / places));
  return ofRanks;
}

namespace memopt::testing {
/// So many ranks on a host; what is left is the last one's.
template <int mostPlaces, int mostMicroseconds> struct HostsGroup {
  static StatusOr<std::unique_ptr<Hosts>> create(int64_t ranks, int64_t bytes, double seconds) {
    return Hosts::create(placeInTurn(ranks, mostPlaces), bytes, seconds, {mostMicroseconds, -1, 0});
  }
};
using PairsGroup = HostsGroup<2, 0>;
using DelayedPairsGroup = HostsGroup<2, 300>;
using TriplesGroup = HostsGroup<3, 0>;
/// Hosts whose ranks do not follow each other.
struct ScatteredGroup {
  static StatusOr<std::unique_ptr<Hosts>> create(int64_t ranks, int64_t bytes, double seconds) {
    std::vector<uint64_t> ofRanks;
    for (int64_t rank = 0; rank < ranks; ++rank)
      ofRanks.push_back(uint64_t(rank * rank % 3));
    return Hosts::create(ofRanks, bytes, seconds);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Pairs, CommunicatorConformance, PairsGroup);
INSTANTIATE_TYPED_TEST_SUITE_P(DelayedPairs, CommunicatorConformance, DelayedPairsGroup);
INSTANTIATE_TYPED_TEST_SUITE_P(Triples, CommunicatorConformance, TriplesGroup);
INSTANTIATE_TYPED_TEST_SUITE_P(Scattered, CommunicatorConformance, ScatteredGroup);
} // namespace memopt::testing

static void runRanks(int64_t ranks, const std::function<void(int64_t)> &work) {
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { work(rank); });
  for (std::thread &thread : threads)
    thread.join();
}

static float getTerm(int64_t rank, int64_t i) {
  return 1.0f / float(1 + (i * 7 + rank * 13) % 1001) * (i % 5 ? 1.0f : -1e4f);
}

/// What each rank has of a sum, its shards and the gathered shards, one after the other.
static std::vector<std::vector<float>> addUp(const std::vector<uint64_t> &placed, int64_t count) {
  int64_t ranks = int64_t(placed.size()), shard = (count / ranks / 16 + 1) * 16;
  auto made = *Hosts::create(placed, (3 * count + 4 * shard) * 4, 60, {30, -1, 0});
  std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
  runRanks(ranks, [&](int64_t rank) {
    auto arena = made->allocate(rank);
    auto communicator = made->join(rank);
    auto pool = *ThreadPool::create(1, 1);
    auto *terms = reinterpret_cast<float *>(arena->base()), *sum = terms + count,
         *own = sum + count, *all = own + shard;
    for (int64_t i = 0; i < count; ++i)
      terms[i] = getTerm(rank, i);
    auto bytes = [](float *place) { return reinterpret_cast<char *>(place); };
    EXPECT_TRUE(communicator->allReduce(DType::F32, bytes(terms), bytes(sum), count, *pool).isOk());
    EXPECT_TRUE(
        communicator->reduceScatter(DType::F32, bytes(terms), count, bytes(own), shard, *pool)
            .isOk());
    EXPECT_TRUE(
        communicator->allGather(bytes(own), shard * 4, bytes(all), count * 4, *pool).isOk());
    std::vector<float> &result = results[size_t(rank)];
    result.assign(sum, sum + count);
    result.insert(result.end(), all, all + count);
    // In place, as gradients are added up.
    EXPECT_TRUE(
        communicator->allReduce(DType::F32, bytes(terms), bytes(terms), count, *pool).isOk());
    result.insert(result.end(), terms, terms + count);
    EXPECT_TRUE(communicator->barrier().isOk());
  });
  return results;
}

/// On one host, on two, on as many as ranks, on hosts of different sizes, and in no order; over chunks
/// that are not full.
TEST(TwoLevelRanksTest, BitsDoNotDependOnHowRanksArePlaced) {
  const std::vector<std::vector<uint64_t>> placements = {
      {0, 0, 0, 0},       {0, 0, 1, 1},       {0, 1, 2, 3},       {0, 0, 0, 1},
      {0, 1, 1, 1},       {0, 1, 0, 1},       {0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 2, 2},
      {0, 1, 1, 1, 2, 2}, {0, 0, 1, 2, 2, 2}, {0, 0, 0, 0, 1, 1}, {0, 1, 1, 2, 0, 2}};
  for (const std::vector<uint64_t> &placed : placements)
    for (int64_t count : {1, 1000, 20'011, 600'037}) {
      std::vector<float> expected(static_cast<size_t>(count), 0);
      for (size_t rank = 0; rank < placed.size(); ++rank)
        for (int64_t i = 0; i < count; ++i)
          expected[size_t(i)] += getTerm(int64_t(rank), i);
      const std::vector<float> sum = expected;
      for (int i = 0; i < 2; ++i)
        expected.insert(expected.end(), sum.begin(), sum.end());
      for (const std::vector<float> &result : addUp(placed, count))
        ASSERT_EQ(result, expected) << ::testing::PrintToString(placed) << ", " << count;
    }
}

/// A vector leaves each host as often as with one rank there: the terms of its ranks are added
/// before, and as many carry the sum as the smallest host has.
TEST(TwoLevelRanksTest, WhatAHostSendsDoesNotGrowWithItsRanks) {
  const Placement placement({7, 7, 7, 3, 3});
  EXPECT_EQ(placement.countHosts(), 2);
  EXPECT_EQ(placement.countFewest(), 2);
  EXPECT_EQ(placement.countMost(), 3);
  EXPECT_EQ(placement.getRanks(1), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(placement.getPlace(4), 1);
  EXPECT_TRUE(placement.isInOrder());
  EXPECT_FALSE(Placement({1, 2, 1}).isInOrder());
  constexpr int64_t count = 1 << 18;
  auto measure = [&](const std::vector<uint64_t> &placed) {
    auto made = *Hosts::create(placed, 4 * count, 60);
    runRanks(int64_t(placed.size()), [&](int64_t rank) {
      auto arena = made->allocate(rank);
      auto communicator = made->join(rank);
      auto pool = *ThreadPool::create(1, 1);
      EXPECT_TRUE(
          communicator->allReduce(DType::F32, arena->base(), arena->base(), count, *pool).isOk());
    });
    return made->network->bytesOfData;
  };
  EXPECT_EQ(measure({0, 1}), 2 * 4 * count);
  EXPECT_EQ(measure({0, 0, 0, 1, 1}), 2 * 4 * count);
  EXPECT_EQ(measure({0, 1, 1, 1, 1}), 2 * 4 * count);
}

/// Those of its host know it; who waits for one of them, or for its partner elsewhere, is patient.
TEST(TwoLevelRanksTest, ARankThatIsLateIsNamedByThoseOfItsHost) {
  auto made = *Hosts::create({0, 0, 1, 1}, 4096, 0.3);
  std::vector<std::string> texts(4);
  runRanks(4, [&](int64_t rank) {
    auto communicator = made->joinHosts(rank);
    EXPECT_TRUE(communicator->barrier().isOk());
    if (rank == 3)
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    Status status = communicator->barrier();
    EXPECT_EQ(status.getCode(), StatusCode::Environment);
    texts[size_t(rank)] = made->across[size_t(rank)]->conclude(status).getMessage();
  });
  expectMessage(texts[2], {"rank 2: waited 0 s for rank 3"});
  EXPECT_EQ(texts[0] + texts[1] + texts[3], "");
}

TEST(TwoLevelRanksTest, AllHearWhoLeavesWhereverTheyWait) {
  auto made = *Hosts::create({0, 0, 1, 1}, 4096, 60);
  std::vector<std::string> texts(4);
  runRanks(4, [&](int64_t rank) {
    auto communicator = made->joinHosts(rank);
    Status status = communicator->barrier(); // behind which some may hear already who leaves
    if (rank == 2)                           // rank 3 waits in memory, 0 and 1 for messages
      status = badInput("its data is damaged");
    else if (status.isOk())
      status = communicator->barrier();
    EXPECT_EQ(status.getCode(), StatusCode::BadInput);
    texts[size_t(rank)] = made->across[size_t(rank)]->conclude(status).getMessage();
  });
  EXPECT_EQ(texts, (std::vector<std::string>{"", "", "rank 2: its data is damaged", ""}));
}
