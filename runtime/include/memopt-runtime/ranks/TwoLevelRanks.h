//===- TwoLevelRanks.h - ranks of several hosts -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A communicator over both: ranks of one host share memory, and each sends messages to the ranks
// that have its place on other hosts, so all carry their part of what leaves a host.
//
//              place 0   place 1
//     host 0   rank 0    rank 1      read each other's arenas
//     host 1   rank 2    rank 3
//              send each other messages
//
// Sums keep the order of all ranks, and so the bits of any other placement: the sum of a piece goes
// from host to host, and each adds the terms of its own ranks. So what a host sends does not grow
// with its ranks. As many ranks of each host carry pieces as the smallest has. Where ranks of a host
// do not follow each other in number, sums would have to come back to it, and are those of messages.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_TWOLEVELRANKS_H
#define MEMOPT_RUNTIME_RANKS_TWOLEVELRANKS_H

#include "memopt-runtime/ranks/MessageRanks.h"
#include "memopt-runtime/ranks/Placement.h"
#include "memopt-runtime/ranks/SharedRanks.h"

namespace memopt {

class SharedCommunicator;

class TwoLevelCommunicator final : public Communicator {
public:
  /// `across` reaches the ranks of all hosts, `inside` are those of this one. Both outlive it.
  /// Leaving, and the end of a run, are those of `across`.
  TwoLevelCommunicator(MessageCommunicator &across, SharedRanks &inside, Placement placement);
  ~TwoLevelCommunicator() override;

  Status allReduce(DType type, const char *from, char *to, int64_t count,
                   ThreadPool &pool) override;
  Status reduceScatter(DType type, const char *from, int64_t count, char *to, int64_t shard,
                       ThreadPool &pool) override;
  Status allGather(const char *from, int64_t shardBytes, char *to, int64_t bytes,
                   ThreadPool &pool) override;
  Communicator *getInside() override;
  Status barrier() override;
  Status exchange(const void *mine, int64_t bytes, void *all) override;
  int64_t getPieceBytes() const override { return across.getPieceBytes(); }
  Status collect(const char *mine, int64_t bytes, char *all) override {
    return across.collect(mine, bytes, all);
  }
  bool isAskedToStop() const override { return across.isAskedToStop(); }
  void keepAlive() override { across.keepAlive(); }
  uint32_t countSigns() const override { return across.countSigns(); }
  Status getFailure() const override { return across.getFailure(); }
  Status look() override { return across.look(); }
  Status findClosed() const override;
  void leave(const Status &reason) override { across.leave(reason); }
  bool close() override;

  /// Has the transport make the buffers that it needs for messages of each size.
  Status warmUp();

  const Placement &getPlacement() const { return placement; }

private:
  class Elsewhere;
  /// What is added up at once, in elements.
  struct Chunk {
    int64_t begin, count;
    int64_t owner; ///< the rank that gets the sum
    char *to;      ///< where it, or the carrier of each host, puts the sum
  };

  /// Ranks of this host, and the one of them that meets a rank of another host.
  int64_t countPlaces() const { return int64_t(placement.getRanks(host).size()); }
  int64_t getMeeting(int64_t ofRank) const { return placement.getPlace(ofRank) % countPlaces(); }
  int64_t getSlot(int64_t ofRank) const;
  int64_t getCarrier(int64_t ofHost) const {
    return placement.getRanks(ofHost)[size_t(place % carriers)];
  }
  int64_t getStation(const Chunk &chunk, bool isForAll, int64_t ofHost) const;
  int64_t countChunkElements(int64_t size, int64_t elements) const;
  void send(int64_t to, const char *bytes, int64_t count) { sent.push_back({to, bytes, count}); }
  void receive(int64_t from, char *bytes, int64_t count) {
    received.push_back({from, bytes, count});
  }
  template <typename GetOwn, typename GetTheirs>
  void callHosts(const GetOwn &getOwn, const GetTheirs &getTheirs);
  template <typename Work> Status trade(const Work &meanwhile);
  Status trade();
  Status meet();
  int64_t countPostedBytes() const;
  Status post(const void *mine, int64_t bytes);
  const char *getMail(int64_t rank, int64_t bytes) const;
  template <typename GetChunk>
  Status addUp(DType type, const char *from, int64_t chunks, bool isForAll, const GetChunk &get,
               ThreadPool &pool);
  void addOwn(DType type, const char *from, const Chunk &chunk, const char *before, char *to,
              ThreadPool &pool);

  MessageCommunicator &across;
  const Placement placement;
  const int64_t hosts, host, place;
  const int64_t carriers;   ///< of each host, the first ones: each has a part of what is added up
  std::vector<int64_t> fed; ///< the ranks whose shards go by this rank's carrier
  const std::unique_ptr<Elsewhere> elsewhere;
  const std::unique_ptr<SharedCommunicator> inside;
  std::vector<MessageCommunicator::Sent> sent;
  std::vector<MessageCommunicator::Received> received;
  std::vector<char> arriving[2], leaving[2]; ///< sums of the hosts before, and with this one's
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_TWOLEVELRANKS_H
