//===- CommunicatorConformance.h - what every transport must pass -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A transport joins with a type that makes a group of ranks, each with an arena,
//
//   struct SharedGroup {
//     static StatusOr<std::unique_ptr<SharedGroup>> create(int64_t ranks, int64_t bytes,
//                                                          double seconds);
//     std::unique_ptr<Communicator> join(int64_t rank);
//     std::unique_ptr<Arena> allocate(int64_t rank);
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Shared, CommunicatorConformance, SharedGroup);
//
// and where it is not there, and says so by an Environment error, its tests are skipped. Ranks are
// threads of the test.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_RUNTIME_COMMUNICATORCONFORMANCE_H
#define MEMOPT_TEST_RUNTIME_COMMUNICATORCONFORMANCE_H

#include "memopt-runtime/memory/Arena.h"
#include "memopt-runtime/ranks/Communicator.h"
#include "memopt-runtime/ranks/KeepAlive.h"
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace memopt::testing {

/// What one rank of a test works with.
struct RankAtWork {
  Communicator &communicator;
  char *memory;
  ThreadPool &pool;
};

template <typename Group> class CommunicatorConformance : public ::testing::Test {
protected:
  static constexpr int64_t bytes = 1 << 20;

  /// Runs `work` on all ranks and gives what each of them answered.
  std::vector<Status> run(int64_t ranks, const std::function<Status(RankAtWork)> &work,
                          double seconds = 60) {
    std::vector<Status> answers(static_cast<size_t>(ranks));
    auto group = Group::create(ranks, bytes, seconds);
    EXPECT_TRUE(group.isOk()) << group.getMessage();
    if (!group.isOk())
      return answers;
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        std::unique_ptr<Arena> arena = (*group)->allocate(rank);
        std::unique_ptr<Communicator> communicator = (*group)->join(rank);
        auto pool = ThreadPool::create(2, 1);
        answers[size_t(rank)] = work({*communicator, arena->base(), **pool});
        (void)communicator->barrier(); // arenas live until all are done
      });
    for (std::thread &thread : threads)
      thread.join();
    return answers;
  }

  void expectOk(int64_t ranks, const std::function<Status(RankAtWork)> &work) {
    for (const Status &status : run(ranks, work))
      EXPECT_TRUE(status.isOk()) << status.getMessage();
  }

  /// A number that no order of additions leaves alone.
  template <typename T> static T getTerm(int64_t rank, int64_t index) {
    return T(1.0 / double(3 + rank * 7 + index % 101) * (index % 5 == 0 ? -1e6 : 1.0));
  }
  template <typename T> static T getSum(int64_t ranks, int64_t index) {
    T sum = 0;
    for (int64_t rank = 0; rank < ranks; ++rank)
      sum += getTerm<T>(rank, index);
    return sum;
  }
};
TYPED_TEST_SUITE_P(CommunicatorConformance);

/// Around the sizes at which vectors, lines and blocks of sums end.
inline const std::vector<int64_t> testedCounts = {1, 2, 15, 16, 17, 1000, 1024, 4097, 70001};

TYPED_TEST_P(CommunicatorConformance, SumsAreTakenInTheOrderOfRanks) {
  for (int64_t ranks : {1, 2, 3, 5})
    this->expectOk(ranks, [&](RankAtWork rank) -> Status {
      for (int64_t count : testedCounts) {
        auto *from = reinterpret_cast<float *>(rank.memory), *to = from + count;
        for (int64_t i = 0; i < count; ++i)
          from[i] = this->template getTerm<float>(rank.communicator.getRank(), i);
        MEMOPT_RETURN_IF_ERROR(rank.communicator.allReduce(
            DType::F32, rank.memory, reinterpret_cast<char *>(to), count, rank.pool));
        // And in place.
        MEMOPT_RETURN_IF_ERROR(
            rank.communicator.allReduce(DType::F32, rank.memory, rank.memory, count, rank.pool));
        for (int64_t i = 0; i < count; ++i)
          if (float sum = this->template getSum<float>(ranks, i); to[i] != sum || from[i] != sum)
            return badInput("element " + std::to_string(i) + " of " + std::to_string(count));
      }
      return Status::ok();
    });
}

TYPED_TEST_P(CommunicatorConformance, IntegersAndDoublesAreAddedAndZeroIsPositive) {
  this->expectOk(3, [&](RankAtWork rank) -> Status {
    auto *integers = reinterpret_cast<int64_t *>(rank.memory);
    auto *doubles = reinterpret_cast<double *>(rank.memory + 64);
    integers[0] = rank.communicator.getRank() ? INT64_MAX : 2;
    doubles[0] = this->template getTerm<double>(rank.communicator.getRank(), 0);
    doubles[1] = -0.0;
    MEMOPT_RETURN_IF_ERROR(
        rank.communicator.allReduce(DType::I64, rank.memory, rank.memory, 1, rank.pool));
    MEMOPT_RETURN_IF_ERROR(
        rank.communicator.allReduce(DType::F64, rank.memory + 64, rank.memory + 64, 2, rank.pool));
    EXPECT_EQ(integers[0], 0); // it wraps around
    EXPECT_EQ(doubles[0], this->template getSum<double>(3, 0));
    EXPECT_FALSE(std::signbit(doubles[1])); // sums begin from zero, as accumulators do
    return Status::ok();
  });
}

TYPED_TEST_P(CommunicatorConformance, ShardsAreRangesOfTheSumWithZerosBehind) {
  constexpr int64_t ranks = 3, count = 100, shard = 48; // of the last rank 4 elements are real
  this->expectOk(ranks, [&](RankAtWork rank) -> Status {
    int64_t self = rank.communicator.getRank();
    auto *from = reinterpret_cast<float *>(rank.memory), *own = from + 128, *all = from + 256;
    for (int64_t i = 0; i < count; ++i)
      from[i] = this->template getTerm<float>(self, i);
    MEMOPT_RETURN_IF_ERROR(rank.communicator.reduceScatter(
        DType::F32, rank.memory, count, reinterpret_cast<char *>(own), shard, rank.pool));
    for (int64_t i = 0; i < shard; ++i) {
      int64_t index = self * shard + i;
      EXPECT_EQ(own[i], index < count ? this->template getSum<float>(ranks, index) : 0.0f);
    }
    MEMOPT_RETURN_IF_ERROR(rank.communicator.allGather(reinterpret_cast<char *>(own), shard * 4,
                                                       reinterpret_cast<char *>(all), count * 4,
                                                       rank.pool));
    for (int64_t i = 0; i < count; ++i)
      EXPECT_EQ(all[i], this->template getSum<float>(ranks, i));
    return Status::ok();
  });
}

TYPED_TEST_P(CommunicatorConformance, BuffersAreFreeAgainAfterEachCall) {
  this->expectOk(4, [&](RankAtWork rank) -> Status {
    auto *value = reinterpret_cast<float *>(rank.memory);
    for (int round = 0; round < 500; ++round) {
      float mine = float(rank.communicator.getRank() + round);
      value[0] = mine;
      MEMOPT_RETURN_IF_ERROR(
          rank.communicator.allGather(rank.memory, 4, rank.memory + 64, 16, rank.pool));
      value[0] = -1; // at once: nobody reads it any more
      for (int64_t other = 0; other < 4; ++other)
        if (value[16 + other] != float(other + round))
          return badInput("round " + std::to_string(round));
    }
    return Status::ok();
  });
}

TYPED_TEST_P(CommunicatorConformance, RanksExchangeFacts) {
  this->expectOk(3, [](RankAtWork rank) -> Status {
    int64_t mine = 10 * rank.communicator.getRank(), all[3];
    MEMOPT_RETURN_IF_ERROR(rank.communicator.exchange(&mine, sizeof mine, all));
    EXPECT_EQ(all[0], 0);
    EXPECT_EQ(all[1], 10);
    EXPECT_EQ(all[2], 20);
    std::vector<char> large(size_t(rank.communicator.getPieceBytes()) + 1);
    EXPECT_EQ(rank.communicator.exchange(large.data(), int64_t(large.size()), nullptr).getCode(),
              StatusCode::BadInput);
    return Status::ok();
  });
}

/// A barrier for every few KiB would be most of the time.
TYPED_TEST_P(CommunicatorConformance, LargeThingsAreExchangedInLargePieces) {
  this->expectOk(3, [](RankAtWork rank) -> Status {
    EXPECT_GE(rank.communicator.getPieceBytes(), 256 << 10);
    constexpr size_t bytes = (3 << 20) + 5;
    std::string mine(bytes, char('a' + rank.communicator.getRank())), all(3 * bytes, 'x');
    MEMOPT_RETURN_IF_ERROR(rank.communicator.exchangeAny(mine.data(), bytes, all.data()));
    EXPECT_EQ(all, std::string(bytes, 'a') + std::string(bytes, 'b') + std::string(bytes, 'c'));
    return Status::ok();
  });
}

TYPED_TEST_P(CommunicatorConformance, TheFirstRankCollects) {
  this->expectOk(3, [](RankAtWork rank) -> Status {
    constexpr int64_t bytes = 10000;
    std::memset(rank.memory, int('a' + rank.communicator.getRank()), bytes);
    std::string all(3 * bytes, 'x');
    MEMOPT_RETURN_IF_ERROR(rank.communicator.collect(rank.memory, bytes, all.data()));
    std::memset(rank.memory, 'z', bytes); // at once: it has been read
    std::string elsewhere(bytes, char('a' + rank.communicator.getRank())), again(3 * bytes, 'x');
    MEMOPT_RETURN_IF_ERROR(rank.communicator.collect(elsewhere.data(), bytes, again.data()));
    EXPECT_EQ(again, all);
    std::string expected =
        std::string(bytes, 'a') + std::string(bytes, 'b') + std::string(bytes, 'c');
    EXPECT_TRUE(rank.communicator.getRank() ? all == std::string(3 * bytes, 'x') : all == expected);
    return Status::ok();
  });
}

TYPED_TEST_P(CommunicatorConformance, AllHearWhoCannotGoOnAndStillGoTogether) {
  this->expectOk(3, [](RankAtWork rank) -> Status {
    std::optional<int64_t> refusing = 7;
    MEMOPT_RETURN_IF_ERROR(rank.communicator.agree(Status::ok(), refusing));
    EXPECT_EQ(refusing, std::nullopt);
    int64_t self = rank.communicator.getRank();
    Status own = self == 0 ? Status::ok()
                           : badInput("sample " + std::to_string(self) + std::string(5000, '.'));
    Status status = rank.communicator.agree(std::move(own), refusing);
    EXPECT_EQ(status.getCode(), StatusCode::BadInput);
    EXPECT_EQ(refusing, 1);
    EXPECT_EQ(status.getMessage().substr(0, 10), self == 0   ? "rank 1: sa"
                                                 : self == 1 ? "sample 1.."
                                                             : "sample 2..");
    return rank.communicator.agree(Status::ok(), refusing);
  });
}

TYPED_TEST_P(CommunicatorConformance, WhoLeavesEndsTheWaitsOfAll) {
  std::vector<Status> answers = this->run(3, [](RankAtWork rank) -> Status {
    if (rank.communicator.getRank() == 1) {
      rank.communicator.leave(badInput("its data is damaged"));
      rank.communicator.leave(badInput("later"));
      return Status::ok();
    }
    return rank.communicator.barrier();
  });
  for (size_t rank : {0, 2}) {
    EXPECT_EQ(answers[rank].getCode(), StatusCode::BadInput);
    EXPECT_EQ(answers[rank].getMessage(), "rank 1: its data is damaged");
  }
}

TYPED_TEST_P(CommunicatorConformance, NoWaitIsLongerThanTheLimit) {
  std::vector<Status> answers = this->run(
      3,
      [](RankAtWork rank) -> Status {
        Status status = rank.communicator.barrier();
        // It comes when the others have given up, or gives up first.
        while (rank.communicator.getRank() == 2 && status.isOk())
          status = rank.communicator.barrier();
        return status;
      },
      /*seconds=*/0);
  bool isNamed = false;
  for (const Status &answer : answers)
    isNamed |= answer.getCode() == StatusCode::Environment &&
               answer.getMessage().find("waited 0 s for rank ") != std::string::npos;
  EXPECT_TRUE(isNamed);
}

/// Whether the others wait when it closes, or come later. What it had said before is heard.
TYPED_TEST_P(CommunicatorConformance, WhoClosesInOrderIsNamedByWhoWaitsForMore) {
  for (int64_t closing : {0, 2}) {
    auto begun = std::chrono::steady_clock::now();
    std::atomic<int> ended{0};
    std::vector<Status> answers = this->run(3, [&](RankAtWork rank) -> Status {
      int64_t self = rank.communicator.getRank(), all[3];
      MEMOPT_RETURN_IF_ERROR(rank.communicator.exchange(&self, sizeof self, all));
      if (self == closing) {
        EXPECT_TRUE(rank.communicator.close());
        while (ended < 2)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return Status::ok();
      }
      if (self == 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      EXPECT_EQ(all[closing], closing);
      Status status = rank.communicator.barrier();
      ++ended;
      return status;
    });
    for (int64_t rank = 0; rank < 3; ++rank) {
      const Status &answer = answers[size_t(rank)];
      EXPECT_EQ(answer.getCode(), rank == closing ? StatusCode::Ok : StatusCode::Environment);
      EXPECT_TRUE(rank == closing ||
                  answer.getMessage().find("waits for rank " + std::to_string(closing) +
                                           ", which has closed its session") != std::string::npos)
          << answer.getMessage();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20)); // the limit: 60
  }
}

/// Also while the ranks that wait have met before, and meet again.
TYPED_TEST_P(CommunicatorConformance, WhoIsAtWorkIsWaitedFor) {
  for (const Status &status : this->run(
           3,
           [](RankAtWork rank) -> Status {
             KeepAlive alive(rank.communicator.getRank() == 0 ? &rank.communicator : nullptr);
             for (int meeting = 0; meeting < 3; ++meeting) {
               KeepAlive::Work work(alive);
               if (rank.communicator.getRank() == 0 && meeting == 1)
                 std::this_thread::sleep_for(std::chrono::milliseconds(1500));
               MEMOPT_RETURN_IF_ERROR(rank.communicator.barrier());
             }
             return Status::ok();
           },
           /*seconds=*/0.5))
    EXPECT_TRUE(status.isOk()) << status.getMessage();
}

/// A rank that writes a checkpoint collects it from the others first.
TYPED_TEST_P(CommunicatorConformance, WhoIsAtWorkDoesNotWaitForEver) {
  std::vector<Status> answers = this->run(
      3,
      [](RankAtWork rank) -> Status {
        if (rank.communicator.getRank() == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(3000));
          return Status::ok();
        }
        KeepAlive alive(rank.communicator.getRank() == 0 ? &rank.communicator : nullptr);
        KeepAlive::Work work(alive);
        return rank.communicator.barrier();
      },
      /*seconds=*/0.3);
  EXPECT_EQ(answers[0].getCode(), StatusCode::Environment);
  EXPECT_EQ(answers[1].getCode(), StatusCode::Environment);
}

REGISTER_TYPED_TEST_SUITE_P(CommunicatorConformance, SumsAreTakenInTheOrderOfRanks,
                            IntegersAndDoublesAreAddedAndZeroIsPositive,
                            ShardsAreRangesOfTheSumWithZerosBehind,
                            BuffersAreFreeAgainAfterEachCall, RanksExchangeFacts,
                            LargeThingsAreExchangedInLargePieces, TheFirstRankCollects,
                            AllHearWhoCannotGoOnAndStillGoTogether, WhoLeavesEndsTheWaitsOfAll,
                            NoWaitIsLongerThanTheLimit, WhoClosesInOrderIsNamedByWhoWaitsForMore,
                            WhoIsAtWorkIsWaitedFor, WhoIsAtWorkDoesNotWaitForEver);

} // namespace memopt::testing

#endif // MEMOPT_TEST_RUNTIME_COMMUNICATORCONFORMANCE_H
