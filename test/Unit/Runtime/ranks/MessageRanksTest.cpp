//===- MessageRanksTest.cpp - ranks that share no memory ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Messages between threads, as unkind as those of a network may be: some are copied when they are
// sent, others when their room is there; each takes a time of its own, so channels and ranks
// overtake each other; a rank may fall silent.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/MessageRanks.h"
#include "CommunicatorConformance.h"
#include "TestSupport.h"
#include "memopt-runtime/base/Clock.h"
#include <deque>
#include <mutex>
#include <random>

using namespace memopt;
using namespace memopt::testing;

namespace {
using Channel = Messages::Channel;

/// What is on the way between all ranks of a group.
class Network {
public:
  struct Unkindness {
    int mostMicroseconds = 0;   ///< that a message takes
    int64_t silentRank = -1;    ///< whose data arrive no more
    int64_t messagesBefore = 0; ///< that still do
  };

  Network(int64_t ranks, Unkindness unkindness) : ranks(ranks), unkindness(unkindness) {}

  struct Message {
    const char *place;      ///< of the sender, whose flag `isSent` then is
    std::vector<char> copy; ///< where that is null
    int64_t bytes, time;
    bool *isSent;
  };
  struct Room {
    char *to;
    int64_t bytes;
    bool isWanted = false;
  };

  /// Between two ranks in one direction, for one channel.
  struct Line {
    std::deque<Message> messages;
    Room room;
  };

  Line &getLine(Channel channel, int64_t from, int64_t to) {
    return lines[{int(channel), from, to}];
  }

  void send(Channel channel, int64_t from, int64_t to, const char *bytes, int64_t count,
            bool *isSent) {
    bool isData = channel == Channel::Data;
    if (isData && from == unkindness.silentRank && unkindness.messagesBefore-- <= 0)
      return;
    bool isCopied = !isData || random() % 2;
    Message message{bytes, {}, count, getTime() + drawDelay(), isCopied ? nullptr : isSent};
    if (isCopied)
      message.copy.assign(bytes, bytes + count);
    *isSent = isCopied;
    getLine(channel, from, to).messages.push_back(std::move(message));
  }

  bool deliver(Line &line) {
    if (!line.room.isWanted)
      return true;
    if (line.messages.empty() || line.messages.front().time > getTime())
      return false;
    Message message = std::move(line.messages.front());
    line.messages.pop_front();
    EXPECT_EQ(message.bytes, line.room.bytes);
    const char *from = message.isSent ? message.place : message.copy.data();
    if (message.bytes)
      std::memcpy(line.room.to, from, size_t(message.bytes));
    line.room.isWanted = false;
    if (message.isSent)
      *message.isSent = true;
    return true;
  }

  /// What a rank that is gone has in its memory reaches nobody any more.
  void forget(int64_t rank) {
    for (auto &[key, line] : lines) {
      if (std::get<2>(key) == rank)
        line.room.isWanted = false;
      auto isGone = [](const Message &message) { return message.isSent != nullptr; };
      if (std::get<1>(key) == rank)
        line.messages.erase(std::remove_if(line.messages.begin(), line.messages.end(), isGone),
                            line.messages.end());
    }
  }

  std::mutex mutex;
  const int64_t ranks;

private:
  int64_t drawDelay() {
    return unkindness.mostMicroseconds ? int64_t(random() % unkindness.mostMicroseconds) * 1000 : 0;
  }

  Unkindness unkindness;
  std::mt19937 random{7};
  std::map<std::tuple<int, int64_t, int64_t>, Line> lines;
};

class ThreadMessages final : public Messages {
public:
  ThreadMessages(std::shared_ptr<Network> net, int64_t rank)
      : Messages(rank, net->ranks), network(std::move(net)), sent(new bool[size_t(2 * ranks)]) {
    std::fill_n(sent.get(), 2 * ranks, true);
  }
  ~ThreadMessages() override {
    std::lock_guard<std::mutex> lock(network->mutex);
    network->forget(rank);
  }

  Status receive(Channel channel, int64_t from, char *to, int64_t bytes) override {
    std::lock_guard<std::mutex> lock(network->mutex);
    Network::Room &room = network->getLine(channel, from, rank).room;
    EXPECT_FALSE(room.isWanted);
    room = {to, bytes, true};
    return Status::ok();
  }
  StatusOr<bool> hasReceived(Channel channel, int64_t from) override {
    std::lock_guard<std::mutex> lock(network->mutex);
    return network->deliver(network->getLine(channel, from, rank));
  }
  Status send(Channel channel, int64_t to, const char *from, int64_t bytes) override {
    std::lock_guard<std::mutex> lock(network->mutex);
    EXPECT_TRUE(*getSent(channel, to));
    *getSent(channel, to) = false;
    network->send(channel, rank, to, from, bytes, getSent(channel, to));
    return Status::ok();
  }
  StatusOr<bool> hasSent(Channel channel, int64_t to) override {
    std::lock_guard<std::mutex> lock(network->mutex);
    return *getSent(channel, to);
  }
  void cancelReceives() override {
    std::lock_guard<std::mutex> lock(network->mutex);
    for (int64_t from = 0; from < ranks; ++from)
      network->getLine(Channel::Data, from, rank).room.isWanted = false;
  }
  void finish() override { isFinished = true; }
  void abort(int code) override { aborted = code; }

  bool isFinished = false;
  int aborted = 0;

private:
  bool *getSent(Channel channel, int64_t to) {
    return &sent[size_t(int64_t(channel) * ranks + to)];
  }

  std::shared_ptr<Network> network;
  std::unique_ptr<bool[]> sent; ///< by channel and rank: whether the last message is
};
} // namespace

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

TEST(MessageRanksTest, APluginThatIsNotThereIsNamed) {
  auto missing = openMessages("/nowhere/libmemopt-mpi.so");
  EXPECT_EQ(missing.getCode(), StatusCode::Environment);
  expectMessage(missing.getMessage(),
                {"/nowhere/libmemopt-mpi.so: cannot open", "MEMOPT_MPI_PLUGIN"});
  auto other = openMessages("libz.so.1");
  expectMessage(other.getMessage(), {"'libz.so.1' has no function memoptOpenMessages"});
}
