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
/// `hosts` hosts of `places` ranks.
struct Hosts {
  static StatusOr<std::unique_ptr<Hosts>> create(int64_t hosts, int64_t places, int64_t bytes,
                                                 double seconds,
                                                 Network::Unkindness unkindness = {}) {
    auto made = std::make_unique<Hosts>();
    made->places = places;
    made->bytes = bytes;
    made->network = std::make_shared<Network>(hosts * places, unkindness);
    for (int64_t host = 0; host < hosts; ++host) {
      MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<SharedRanks> memory,
                              SharedRanks::create(places, bytes, false, seconds));
      made->memories.push_back(std::move(memory));
    }
    for (int64_t rank = 0; rank < hosts * places; ++rank) {
      MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<MessageCommunicator> across,
                              MessageCommunicator::create(
                                  std::make_unique<ThreadMessages>(made->network, rank), seconds));
      made->across.push_back(std::move(across));
    }
    return made;
  }

  SharedRanks &getMemory(int64_t rank) { return *memories[size_t(rank / places)]; }
  std::unique_ptr<TwoLevelCommunicator> joinHosts(int64_t rank) {
    return std::make_unique<TwoLevelCommunicator>(*across[size_t(rank)], getMemory(rank));
  }
  std::unique_ptr<Communicator> join(int64_t rank) { return joinHosts(rank); }
  std::unique_ptr<Arena> allocate(int64_t rank) {
    return *openRankDevice(getMemory(rank), rank % places)
                ->allocate(MEMOPT_SPACE_DEVICE, bytes, false);
  }

  int64_t places = 1, bytes = 0;
  std::shared_ptr<Network> network;
  std::vector<std::unique_ptr<SharedRanks>> memories;
  std::vector<std::unique_ptr<MessageCommunicator>> across;
};
} // namespace

namespace memopt::testing {
/// As many ranks on a host as divide them, up to a number.
template <int mostPlaces, int mostMicroseconds> struct HostsGroup {
  static StatusOr<std::unique_ptr<Hosts>> create(int64_t ranks, int64_t bytes, double seconds) {
    int64_t places = mostPlaces;
    while (ranks % places)
      --places;
    return Hosts::create(ranks / places, places, bytes, seconds, {mostMicroseconds, -1, 0});
  }
};
using PairsGroup = HostsGroup<2, 0>;
using DelayedPairsGroup = HostsGroup<2, 300>;
using TriplesGroup = HostsGroup<3, 0>;
INSTANTIATE_TYPED_TEST_SUITE_P(Pairs, CommunicatorConformance, PairsGroup);
INSTANTIATE_TYPED_TEST_SUITE_P(DelayedPairs, CommunicatorConformance, DelayedPairsGroup);
INSTANTIATE_TYPED_TEST_SUITE_P(Triples, CommunicatorConformance, TriplesGroup);
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
static std::vector<std::vector<float>> addUp(int64_t hosts, int64_t places, int64_t count) {
  int64_t ranks = hosts * places, shard = (count / ranks / 16 + 1) * 16;
  auto made = *Hosts::create(hosts, places, (3 * count + 4 * shard) * 4, 60, {30, -1, 0});
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

/// Four ranks on one host, on two, on four; and more of each, over chunks that are not full.
TEST(TwoLevelRanksTest, BitsDoNotDependOnHowRanksArePlaced) {
  for (int64_t ranks : {4, 6})
    for (int64_t count : {1, 1000, 20'011, 600'037}) {
      std::vector<float> expected(static_cast<size_t>(count), 0);
      for (int64_t rank = 0; rank < ranks; ++rank)
        for (int64_t i = 0; i < count; ++i)
          expected[size_t(i)] += getTerm(rank, i);
      const std::vector<float> sum = expected;
      for (int i = 0; i < 2; ++i)
        expected.insert(expected.end(), sum.begin(), sum.end());
      for (int64_t hosts : {1, 2, 3, 4, 6}) {
        if (ranks % hosts)
          continue;
        for (const std::vector<float> &result : addUp(hosts, ranks / hosts, count))
          ASSERT_EQ(result, expected) << ranks << " ranks on " << hosts << " hosts, " << count;
      }
    }
}

/// Those of its host know it; who waits for one of them, or for its partner elsewhere, is patient.
TEST(TwoLevelRanksTest, ARankThatIsLateIsNamedByThoseOfItsHost) {
  auto made = *Hosts::create(2, 2, 4096, 0.3);
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
  auto made = *Hosts::create(2, 2, 4096, 60);
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
