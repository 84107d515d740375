//===- ThreadMessages.h - messages between threads ---------- -*- C++ -*-===//
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

#ifndef MEMOPT_TEST_RUNTIME_THREADMESSAGES_H
#define MEMOPT_TEST_RUNTIME_THREADMESSAGES_H

#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/ranks/Messages.h"
#include <algorithm>
#include <cstring>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <tuple>
#include <vector>

namespace memopt::testing {

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
    bytesOfData += isData ? count : 0;
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
  int64_t bytesOfData = 0; ///< that have been sent

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

} // namespace memopt::testing

#endif // MEMOPT_TEST_RUNTIME_THREADMESSAGES_H
