//===- MessageRanks.h - ranks that share no memory --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A communicator over messages. All that ranks do together is made of one step: everybody sends
// something to everybody else at once, and waits for as much. Sums are taken here, in the order of
// the ranks, so they have the bits of ranks that share memory.
//
// Who leaves says goodbye to each of the others, with the reason; so does everyone who hears of it.
// Once all goodbyes are there the run can end in order; where one is missing after a moment (its
// process hangs or is dead) it is ended by force.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_MESSAGERANKS_H
#define MEMOPT_RUNTIME_RANKS_MESSAGERANKS_H

#include "memopt-runtime/ranks/Communicator.h"
#include "memopt-runtime/ranks/Messages.h"
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace memopt {

class MessageCommunicator final : public Communicator {
public:
  /// Of what takes more than one: longer ones wait for an answer in an MPI.
  static constexpr int64_t mostMessageBytes = 1 << 20;

  /// `seconds` is how long this rank waits for the others.
  static StatusOr<std::unique_ptr<MessageCommunicator>> create(std::unique_ptr<Messages> messages,
                                                               double seconds);

  Status allReduce(DType type, const char *from, char *to, int64_t count,
                   ThreadPool &pool) override;
  Status reduceScatter(DType type, const char *from, int64_t count, char *to, int64_t shard,
                       ThreadPool &pool) override;
  Status allGather(const char *from, int64_t shardBytes, char *to, int64_t bytes,
                   ThreadPool &pool) override;
  Status barrier() override;
  Status exchange(const void *mine, int64_t bytes, void *all) override;
  int64_t getPieceBytes() const override;
  Status collect(const char *mine, int64_t bytes, char *all) override;
  /// Nobody watches these ranks; each is asked by itself.
  bool isAskedToStop() const override { return false; }
  void keepAlive() override;
  uint32_t countSigns() const override { return signs; }
  Status getFailure() const override { return hasLeft ? getReason() : Status::ok(); }
  Status look() override;
  Status findClosed() const override;
  void leave(const Status &reason) override;
  /// The process goes on without its connections: nobody is waited for but those that leave too
  /// because somebody has failed.
  bool close() override;

  /// A message to another rank, or room for one of it.
  template <typename Pointer> struct Message {
    int64_t other;
    Pointer bytes;
    int64_t count;
  };
  using Sent = Message<const char *>;
  using Received = Message<char *>;
  /// Begins to send and to receive, one message to and from each rank at most; the ranks that are
  /// named do the same at the other end. Nothing else begins before finish().
  Status begin(const std::vector<Sent> &sent, const std::vector<Received> &received);
  /// Returns when that is done, and the buffers are free.
  Status finish() { return wait(); }
  /// Has waits for messages last longer than the limit: where others wait for the same rank
  /// elsewhere, they know better who it is.
  void waitLonger(double seconds) { extraSeconds = seconds; }

  /// What this rank and the others end with, all of which call it last with what became of their
  /// work; returns within seconds once the limit of waits is over. One rank gets the text of a
  /// failure, the others the code alone.
  Status conclude(const Status &own);
  /// Ends the transport after conclude(), and the processes of all ranks where one of them has not
  /// concluded; may not return then. What conclude() said should be printed before.
  void end();
  /// What it holds to receive terms of sums.
  int64_t getStagingBytes() const { return int64_t(staging.size()); }

private:
  /// What a rank says when it leaves. `origin` is the rank with the reason; none: it is at work.
  /// Without a code a rank has done all that it was to do with the others.
  struct Goodbye {
    int64_t origin;
    int32_t code;
    char reason[2036];
  };
  /// Bytes of a message; no message where the count is negative.
  template <typename Pointer> struct Part {
    Pointer bytes;
    int64_t count;
  };

  MessageCommunicator(std::unique_ptr<Messages> messages, double seconds);

  Status listenForGoodbyes();
  Status listenTo(int64_t other);
  template <typename Outgoing, typename Incoming>
  Status trade(const Outgoing &outgoing, const Incoming &incoming);
  template <typename Outgoing, typename Incoming>
  Status post(const Outgoing &outgoing, const Incoming &incoming);
  Status receive(int64_t from, char *to, int64_t count);
  Status send(int64_t to, const char *from, int64_t count);
  Status wait();
  StatusOr<bool> advance();
  Status giveUp();
  Status fail(Status reason);
  Status findAwaitedClosed() const;

  Status reducePieces(DType type, const char *from, int64_t count, int64_t piece, char *to,
                      ThreadPool &pool);
  Status gatherPieces(const char *mine, int64_t pieceBytes, char *to, int64_t bytes);
  const char *getTerm(int64_t other, const char *own) const {
    return other == rank ? own : staging.data() + other * chunkBytes;
  }

  Status getReason() const;
  void sayGoodbye();
  void hearGoodbyes();
  bool hasHeard(int64_t other);
  bool waitForSign(int64_t other);
  void settle();
  const Goodbye &findFirst() const;

  static constexpr int64_t noOrigin = -1;

  /// Of one thread at a time: that of a KeepAlive speaks while another one waits.
  std::mutex turn;
  const std::unique_ptr<Messages> messages;
  const double seconds;
  double extraSeconds = 0;
  const int64_t chunkBytes; ///< of a vector that is summed, from each rank at once
  std::vector<char> staging;
  std::vector<char> isReceiving, isSending; ///< by rank: data in progress

  std::vector<Goodbye> goodbyes;       ///< by rank; this rank's is what it says
  std::vector<char> hasSaid;           ///< by rank: whether its goodbye is there
  std::vector<char> isDone;            ///< and is that of a rank that has closed
  int64_t missing;                     ///< other ranks that have not said goodbye
  const Goodbye sign{noOrigin, 0, {}}; ///< that this rank is at work
  std::vector<char> isSignSending;     ///< by rank: one is on its way
  std::atomic<uint32_t> signs{0};      ///< that have been heard
  std::atomic<bool> hasLeft{false};    ///< whether there is a reason, this rank's or another's
  bool hasSettled = false;             ///< whether the wait for the others' goodbyes is over
  bool isSettled = false;              ///< and ended well
};

/// What carries messages; each has a plugin.
enum class Transport { Mpi, Ucx };

/// Loads a plugin: the file that MEMOPT_MPI_PLUGIN (MEMOPT_UCX_PLUGIN) names, or libmemopt-mpi.so in
/// the folder of this code or in lib beside it. What cannot be loaded is an Environment error.
StatusOr<std::unique_ptr<Messages>> openMessages(Transport transport);

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_MESSAGERANKS_H
