//===- MessageRanksTest.cpp - ranks that share no memory ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/MessageRanks.h"
#include "CommunicatorConformance.h"
#include "TestSupport.h"
#include "ThreadMessages.h"

using namespace memopt;
using namespace memopt::testing;

static std::unique_ptr<MessageCommunicator> join(std::shared_ptr<Network> network, int64_t rank,
                                                 double seconds) {
  return *MessageCommunicator::create(std::make_unique<ThreadMessages>(std::move(network), rank),
                                      seconds);
}

//===----------------------------------------------------------------------===//
// What every transport must pass
//===----------------------------------------------------------------------===//

namespace memopt::testing {
template <int mostMicroseconds> struct MessageGroup {
  static StatusOr<std::unique_ptr<MessageGroup>> create(int64_t ranks, int64_t bytes,
                                                        double seconds) {
    auto group = std::make_unique<MessageGroup>();
    group->network = std::make_shared<Network>(ranks, Network::Unkindness{mostMicroseconds, -1, 0});
    group->bytes = bytes;
    group->seconds = seconds;
    return group;
  }
  std::unique_ptr<Communicator> join(int64_t rank) { return ::join(network, rank, seconds); }
  std::unique_ptr<Arena> allocate(int64_t) { return *HostArena::allocate(bytes, false); }

  std::shared_ptr<Network> network;
  int64_t bytes = 0;
  double seconds = 0;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Messages, CommunicatorConformance, MessageGroup<0>);
INSTANTIATE_TYPED_TEST_SUITE_P(DelayedMessages, CommunicatorConformance, MessageGroup<300>);
} // namespace memopt::testing

//===----------------------------------------------------------------------===//
// What is theirs alone
//===----------------------------------------------------------------------===//

/// Runs `work` on a thread for each rank.
static void runRanks(const std::shared_ptr<Network> &network, double seconds,
                     const std::function<void(MessageCommunicator &)> &work) {
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < network->ranks; ++rank)
    threads.emplace_back([&, rank] { work(*join(network, rank, seconds)); });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(MessageRanksTest, VectorsLongerThanStagingAreSummedInRounds) {
  constexpr int64_t ranks = 3, count = 1'000'003; // 1.3 MB a piece, 1 MiB a round
  auto network = std::make_shared<Network>(ranks, Network::Unkindness{50, -1, 0});
  std::vector<std::vector<float>> vectors(ranks, std::vector<float>(count)), parts = vectors;
  std::vector<float> sums(count, 0);
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < count; ++i)
      sums[size_t(i)] += vectors[size_t(rank)][size_t(i)] = 1.0f / float(1 + (i * 7 + rank) % 1001);
  constexpr int64_t shard = 400'000; // the last rank's has zeros behind 200,003 elements
  runRanks(network, 60, [&](MessageCommunicator &communicator) {
    auto rank = size_t(communicator.getRank());
    EXPECT_EQ(communicator.getStagingBytes(), ranks << 20);
    auto pool = ThreadPool::create(1, 1);
    char *own = reinterpret_cast<char *>(vectors[rank].data());
    EXPECT_TRUE(communicator
                    .reduceScatter(DType::F32, own, count,
                                   reinterpret_cast<char *>(parts[rank].data()), shard, **pool)
                    .isOk());
    EXPECT_TRUE(communicator.allReduce(DType::F32, own, own, count, **pool).isOk());
    EXPECT_TRUE(communicator.conclude(Status::ok()).isOk());
  });
  for (size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(vectors[rank], sums);
    for (size_t i = 0, at = rank * shard; i < shard; ++i, ++at)
      ASSERT_EQ(parts[rank][i], at < count ? sums[at] : 0.0f) << rank << " " << i;
  }
}

/// What one rank ends with.
struct Ending {
  Status step, conclusion;
};

static std::vector<Ending> endAll(const std::shared_ptr<Network> &network, double seconds,
                                  const std::function<Status(MessageCommunicator &)> &work) {
  std::vector<Ending> endings(size_t(network->ranks));
  runRanks(network, seconds, [&](MessageCommunicator &communicator) {
    Ending &ending = endings[size_t(communicator.getRank())];
    ending.step = work(communicator);
    ending.conclusion = communicator.conclude(ending.step);
    communicator.end();
  });
  return endings;
}

TEST(MessageRanksTest, OneRankSpeaksForAll) {
  auto network = std::make_shared<Network>(3, Network::Unkindness{300, -1, 0});
  std::vector<Ending> endings = endAll(network, 60, [](MessageCommunicator &communicator) {
    return communicator.getRank() == 1 ? badInput("its data is damaged") : communicator.barrier();
  });
  EXPECT_EQ(endings[1].conclusion.getMessage(), "rank 1: its data is damaged");
  for (size_t rank : {0, 2}) {
    EXPECT_EQ(endings[rank].step.getMessage(), "rank 1: its data is damaged");
    EXPECT_EQ(endings[rank].conclusion.getCode(), StatusCode::BadInput);
    EXPECT_EQ(endings[rank].conclusion.getMessage(), "");
  }
}

TEST(MessageRanksTest, OfSeveralThatFailTheFirstSpeaksAndAllEndAlike) {
  auto network = std::make_shared<Network>(4, Network::Unkindness{300, -1, 0});
  std::vector<Ending> endings = endAll(network, 60, [](MessageCommunicator &communicator) {
    int64_t rank = communicator.getRank();
    return rank == 1   ? environmentError("its disk is full")
           : rank == 3 ? badInput("its data is damaged")
                       : communicator.barrier();
  });
  for (const Ending &ending : endings)
    EXPECT_EQ(ending.conclusion.getCode(), endings[0].conclusion.getCode());
  int speakers = 0;
  for (const Ending &ending : endings)
    speakers += !ending.conclusion.getMessage().empty();
  EXPECT_EQ(speakers, 1);
}

TEST(MessageRanksTest, ARankThatFallsSilentIsNamedAndEndsAll) {
  // Its data are lost after two barriers, its goodbye is not.
  auto network = std::make_shared<Network>(3, Network::Unkindness{0, 2, 4});
  std::vector<Ending> endings = endAll(network, 0.5, [](MessageCommunicator &communicator) {
    Status status;
    for (int i = 0; i < 10 && status.isOk(); ++i) {
      if (communicator.getRank() == 2) // the others are the first to wait in vain
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      status = communicator.barrier();
    }
    return status;
  });
  std::string said;
  for (const Ending &ending : endings) {
    EXPECT_EQ(ending.conclusion.getCode(), StatusCode::Environment);
    said += ending.conclusion.getMessage();
  }
  expectMessage(said, {"waited 0 s for rank 2", "--rank-timeout"});
}

TEST(MessageRanksTest, WhoSaysNoGoodbyeIsEndedByForce) {
  auto network = std::make_shared<Network>(2, Network::Unkindness{});
  auto messages = std::make_unique<ThreadMessages>(network, 0);
  ThreadMessages &transport = *messages;
  auto communicator = *MessageCommunicator::create(std::move(messages), 0.1);
  Status status = communicator->barrier();
  expectMessage(status.getMessage(), {"waited 0 s for rank 1"});
  expectMessage(communicator->conclude(status).getMessage(), {"rank 0: waited 0 s for rank 1"});
  communicator->end();
  EXPECT_EQ(transport.aborted, int(StatusCode::Environment));
  EXPECT_FALSE(transport.isFinished);
}

/// Its last word arrives, and nobody waits for more.
TEST(MessageRanksTest, WhoClosesWhileOthersWaitIsNamed) {
  auto network = std::make_shared<Network>(3, Network::Unkindness{300, -1, 0});
  std::vector<std::string> texts(3);
  runRanks(network, 60, [&](MessageCommunicator &communicator) {
    EXPECT_TRUE(communicator.barrier().isOk());
    int64_t rank = communicator.getRank();
    if (rank != 2)
      texts[size_t(rank)] = communicator.barrier().getMessage();
    auto begin = std::chrono::steady_clock::now();
    bool isClosed = communicator.close();
    EXPECT_TRUE(isClosed || rank != 2); // what rank 2 takes no more stays
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  });
  std::string words = "waits for rank 2, which has closed its session";
  EXPECT_NE((texts[0] + texts[1]).find(words), std::string::npos) << texts[0] << texts[1];
  EXPECT_EQ(texts[2], "");
}

TEST(MessageRanksTest, AllCloseAtTheirOwnTime) {
  auto network = std::make_shared<Network>(3, Network::Unkindness{300, -1, 0});
  runRanks(network, 60, [](MessageCommunicator &communicator) {
    EXPECT_TRUE(communicator.barrier().isOk());
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * communicator.getRank()));
    communicator.keepAlive(); // those that have closed do not hear it
    EXPECT_TRUE(communicator.getFailure().isOk());
    EXPECT_TRUE(communicator.close());
  });
}

TEST(MessageRanksTest, APluginThatIsNotThereIsNamed) {
  ::setenv("MEMOPT_MPI_PLUGIN", "/nowhere/libmemopt-mpi.so", 1);
  ::setenv("MEMOPT_UCX_PLUGIN", "libz.so.1", 1);
  auto missing = openMessages(Transport::Mpi);
  EXPECT_EQ(missing.getCode(), StatusCode::Environment);
  expectMessage(missing.getMessage(),
                {"/nowhere/libmemopt-mpi.so: cannot open", "MEMOPT_MPI_PLUGIN"});
  auto other = openMessages(Transport::Ucx);
  expectMessage(other.getMessage(), {"'libz.so.1' has no function memoptOpenMessages"});
}
