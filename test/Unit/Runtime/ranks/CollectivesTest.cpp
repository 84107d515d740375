//===- CollectivesTest.cpp - collectives beside a program -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/Collectives.h"
#include "memopt-runtime/device/RankDevice.h"
#include "memopt-runtime/ranks/SharedRanks.h"
#include <functional>
#include <gtest/gtest.h>
#include <thread>

using namespace memopt;

namespace {

constexpr int64_t elements = 4096, bytes = elements * int64_t(sizeof(float));

/// The first two fly, in place and apart; the last one does not.
Manifest makeManifest(int64_t ranks) {
  Manifest manifest;
  manifest.ranks = ranks;
  manifest.arenaBytes = {};
  manifest.arenaBytes[MEMOPT_SPACE_DEVICE] = 4 * bytes;
  manifest.collectives = {
      {CollectiveKind::AllReduce, DType::F32, 0, 0, elements, elements, true},
      {CollectiveKind::AllGather, DType::F32, bytes, 2 * bytes, elements / ranks, elements, true},
      {CollectiveKind::AllReduce, DType::F32, 3 * bytes, 3 * bytes, elements, elements, false}};
  return manifest;
}

struct Rank {
  int64_t number;
  Collectives &collectives;
  Communicator &communicator;
  float *memory;
  ThreadPool &pool;
};

/// Ranks are threads of the test.
void runRanks(int64_t ranks, const std::function<void(Rank)> &work) {
  Manifest manifest = makeManifest(ranks);
  auto group = SharedRanks::create(ranks, 4 * bytes, /*isChecked=*/false, /*seconds=*/60);
  ASSERT_TRUE(group.isOk()) << group.getMessage();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::unique_ptr<Device> device = openRankDevice(**group, rank);
      auto arenas = Arenas::allocate(*device, manifest, {}, /*isChecked=*/false, "");
      ASSERT_TRUE(arenas.isOk()) << arenas.getMessage();
      std::unique_ptr<Communicator> communicator = (*group)->join(rank);
      auto pool = ThreadPool::create(2, 1);
      {
        Collectives collectives(manifest, *arenas, communicator.get());
        ASSERT_TRUE(collectives.prepare({}).isOk());
        auto *memory = reinterpret_cast<float *>((*arenas)[MEMOPT_SPACE_DEVICE].base());
        work({rank, collectives, *communicator, memory, **pool});
      }
      (void)communicator->barrier(); // arenas live until all are done
    });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace

TEST(CollectivesTest, WhatIsInFlightAndWhatIsNotGoInTurn) {
  runRanks(3, [](Rank rank) {
    for (int step = 0; step < 20; ++step) {
      auto own = float(rank.number + step);
      std::fill_n(rank.memory, elements, own);
      ASSERT_TRUE(rank.collectives.start(0).isOk());
      std::fill_n(rank.memory + elements, elements / 3, own);
      ASSERT_TRUE(rank.collectives.start(1).isOk());
      std::fill_n(rank.memory + 3 * elements, elements, 1.0f); // beside both
      ASSERT_TRUE(rank.collectives.run(2, rank.pool).isOk());
      EXPECT_EQ(rank.memory[4 * elements - 1], 3.0f);
      ASSERT_TRUE(rank.collectives.wait(0).isOk());
      EXPECT_EQ(rank.memory[elements - 1], float(3 * step + 3));
      ASSERT_TRUE(rank.collectives.wait(1).isOk());
      for (int64_t other = 0; other < 3; ++other)
        EXPECT_EQ(rank.memory[2 * elements + other * (elements / 3)], float(other + step));
      Collectives::Times times = rank.collectives.getTimes(1);
      EXPECT_LE(rank.collectives.getTimes(0).end, times.begin);
      EXPECT_LE(times.begin, times.end);
    }
  });
}

TEST(CollectivesTest, OthersUseTheCommunicatorWhenNothingIsInFlight) {
  runRanks(2, [](Rank rank) {
    std::fill_n(rank.memory, elements, 1.0f);
    ASSERT_TRUE(rank.collectives.start(0).isOk());
    rank.collectives.land();
    int64_t mine = rank.number, all[2];
    ASSERT_TRUE(rank.communicator.exchange(&mine, sizeof mine, all).isOk());
    EXPECT_EQ(all[1], 1);
    EXPECT_EQ(rank.memory[0], 2.0f);
    ASSERT_TRUE(rank.collectives.wait(0).isOk());
  });
}

TEST(CollectivesTest, AStepThatIsLeftMayBeginAgain) {
  runRanks(2, [](Rank rank) {
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(rank.collectives.start(0).isOk());
      rank.collectives.abandon();
    }
  });
}

TEST(CollectivesTest, AWaitTellsWhyItFailed) {
  runRanks(2, [](Rank rank) {
    if (rank.number == 1)
      return rank.communicator.leave(badInput("no more data"));
    ASSERT_TRUE(rank.collectives.start(0).isOk());
    Status status = rank.collectives.wait(0);
    EXPECT_EQ(status.getMessage(), "rank 1: no more data");
  });
}

TEST(CollectivesTest, ProgramsThatDoNotFitTheirManifestAreRefused) {
  runRanks(1, [](Rank rank) {
    EXPECT_EQ(rank.collectives.start(3).getMessage(), "the program names collective 3 of 3");
    EXPECT_EQ(rank.collectives.start(2).getMessage(),
              "the program starts collective 2, which is not one that starts and is waited for");
    EXPECT_EQ(rank.collectives.wait(1).getMessage(),
              "the program waits for collective 1, which it did not start");
    ASSERT_TRUE(rank.collectives.start(0).isOk());
    EXPECT_EQ(rank.collectives.start(0).getMessage(),
              "the program starts collective 0 again before its wait");
    ASSERT_TRUE(rank.collectives.wait(0).isOk());
  });
}
