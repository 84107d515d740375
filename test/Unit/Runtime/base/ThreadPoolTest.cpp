//===- ThreadPoolTest.cpp - loops and teams on threads --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/threads/ThreadPool.h"
#include "memopt-runtime/threads/TaskThread.h"
#include <atomic>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <pthread.h>
#include <thread>
#include <utility>
#include <vector>

using namespace memopt;

static std::unique_ptr<ThreadPool> makePool(int threads, int team = 0) {
  auto pool = ThreadPool::create(threads, team);
  EXPECT_TRUE(pool.isOk()) << pool.getMessage();
  return *std::move(pool);
}

TEST(ThreadPoolTest, ThreadsComputeWithTheCallersFloatControls) {
  constexpr int64_t count = 64;
  auto pool = makePool(3);
  std::vector<float> numbers(count, 1e-20f);
  auto countZeros = [&] {
    std::atomic<int64_t> zeros{0};
    pool->parallelFor(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        volatile float product = numbers[size_t(i)] * numbers[size_t(i)];
        zeros += product == 0.0f;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1)); // so that others take some, too
    });
    return zeros.load();
  };
  FloatControls before = FloatControls::get();
  EXPECT_EQ(countZeros(), 0);
  before.withoutDenormals().set();
  int64_t flushed = countZeros();
  before.set();
  EXPECT_EQ(flushed, count);
  EXPECT_EQ(countZeros(), 0);
}

TEST(ThreadPoolTest, PiecesCoverTheRangeOnceAndRespectTheGrain) {
  for (int threads : {1, 2, 3, 5}) {
    auto pool = makePool(threads);
    for (int64_t count : {0, 1, 7, 1000})
      for (int64_t grain : {1, 3, 400, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        std::atomic<int64_t> smallest{count};
        pool->parallelFor(count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t before = smallest;
               end - begin < before && !smallest.compare_exchange_weak(before, end - begin);)
            ;
          for (int64_t i = begin; i < end; ++i)
            ++seen[size_t(i)];
        });
        for (const std::atomic<int> &times : seen)
          ASSERT_EQ(times, 1);
        EXPECT_GE(smallest, std::min(grain, count));
      }
  }
}

TEST(ThreadPoolTest, ALoopInsideALoopRunsWhereItIs) {
  auto pool = makePool(2);
  std::atomic<int64_t> sum{0};
  pool->parallelFor(4, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::thread::id outer = std::this_thread::get_id();
      pool->parallelFor(10, 1, [&](int64_t from, int64_t to) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        sum += to - from;
      });
    }
  });
  EXPECT_EQ(sum, 40);
}

// Many short loops in a row, with pauses in which threads fall asleep: none may be lost, and
// nothing of one may reach into the next.
TEST(ThreadPoolTest, LoopsFollowEachOtherWhateverThreadsDo) {
  auto pool = makePool(4);
  std::vector<int64_t> values(64);
  for (int64_t round = 1; round <= 5000; ++round) {
    pool->parallelFor(64, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        values[size_t(i)] += i;
    });
    for (int64_t i = 0; i < 64; ++i)
      ASSERT_EQ(values[size_t(i)], round * i);
    if (round % 1000 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

namespace {
/// A team whose members note that they ran, and may wait for each other.
struct Team {
  explicit Team(int64_t count) : times(size_t(count)) {}

  static void run(void *data, int64_t member) {
    auto *team = static_cast<Team *>(data);
    ++team->times[size_t(member)];
    ++team->arrived;
    while (team->mustMeet && team->arrived < int64_t(team->times.size()))
      std::this_thread::yield();
  }

  std::vector<std::atomic<int>> times;
  std::atomic<int64_t> arrived{0};
  bool mustMeet = false;
};
} // namespace

static void runTeam(ThreadPool &pool, Team &team) {
  pool.beginTeam(int64_t(team.times.size()), &Team::run, &team, team.mustMeet);
  Team::run(&team, 0);
  pool.endTeam();
  for (const std::atomic<int> &times : team.times)
    EXPECT_EQ(times, 1);
}

TEST(ThreadPoolTest, EveryMemberOfATeamRunsOnFewerThreads) {
  for (int threads : {1, 2, 3})
    for (int64_t members : {1, 2, 5, 16}) {
      auto pool = makePool(threads);
      Team team(members);
      runTeam(*pool, team);
    }
}

TEST(ThreadPoolTest, MembersThatWaitForEachOtherAllRunAtOnce) {
  for (int threads : {1, 2, 4}) {
    auto pool = makePool(threads, /*team=*/4);
    for (int round = 0; round < 50; ++round) {
      Team team(4);
      team.mustMeet = true;
      runTeam(*pool, team);
    }
    // Loops keep to their threads.
    std::atomic<int> users{0};
    pool->parallelFor(1000, 1, [&](int64_t, int64_t) {
      static thread_local bool isCounted;
      users += !std::exchange(isCounted, true);
    });
    EXPECT_LE(users, threads);
  }
}

/// Those of the process are for its own threads.
TEST(ThreadPoolTest, ItsThreadsLeaveSignalsToOthers) {
  auto blocks = [](int signal) {
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    return ::sigismember(&mask, signal) == 1;
  };
  std::atomic<int> right{0};
  auto look = [&] {
    right += blocks(SIGINT) && blocks(SIGTERM) && blocks(SIGHUP) && !blocks(SIGSEGV);
  };
  auto pool = ThreadPool::create(3, 3, look);
  ASSERT_TRUE(pool.isOk()) << pool.getMessage();
  TaskThread<int> tasks(1, [&](int) { look(); });
  tasks.push(0);
  tasks.synchronize();
  EXPECT_EQ(right, 3);
  EXPECT_FALSE(blocks(SIGINT));
}
