//===- Communicator.h - ranks that run one program together -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks run the same program on samples of their own. A communicator is one rank's end of what they
// do together: every rank makes the same calls in the same order, each of which returns when this
// rank has its result and its operand is free again. No wait is without an end: when a rank leaves,
// or keeps the others waiting beyond the limit, every call of the others fails.
//
// Sums are taken in the order of the ranks, beginning from zero, whatever the transport.
//
// test/Unit/Runtime/ranks/CommunicatorConformance.h holds what every transport must pass.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_COMMUNICATOR_H
#define MEMOPT_RUNTIME_RANKS_COMMUNICATOR_H

#include "memopt-runtime/numbers/DType.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <optional>
#include <vector>

namespace memopt {

/// Threads of one rank use it one at a time. Buffers lie in the rank's arena, at the same offset on
/// each rank; those of one call overlap only where it says so. Calls allocate nothing, but for
/// exchangeAny().
class Communicator {
public:
  /// What exchange() takes whatever the transport, and what it takes over this one.
  static constexpr int64_t mostExchangedBytes = 4096;
  virtual int64_t getPieceBytes() const { return mostExchangedBytes; }

  virtual ~Communicator() = default;

  int64_t getRank() const { return rank; }
  int64_t getRanks() const { return ranks; }

  /// The sum of `count` elements (f32, f64, i32, i64) over all ranks; `to` may be `from`.
  virtual Status allReduce(DType type, const char *from, char *to, int64_t count,
                           ThreadPool &pool) = 0;
  /// This rank's `shard` elements of that sum, zeros behind its end.
  virtual Status reduceScatter(DType type, const char *from, int64_t count, char *to, int64_t shard,
                               ThreadPool &pool) = 0;
  /// The first `bytes` bytes of what the ranks have in `from`, `shardBytes` of each.
  virtual Status allGather(const char *from, int64_t shardBytes, char *to, int64_t bytes,
                           ThreadPool &pool) = 0;

  /// The ranks of this host, where each host has as many and they are not all: for calls of theirs
  /// between those of all.
  virtual Communicator *getInside() { return nullptr; }

  /// Returns when all ranks have called it.
  virtual Status barrier() = 0;
  /// Gives every rank `bytes` bytes of each, in the order of the ranks. The buffers lie anywhere.
  virtual Status exchange(const void *mine, int64_t bytes, void *all) = 0;

  /// The same for any number of bytes, in as many exchanges as they take.
  Status exchangeAny(const void *mine, int64_t bytes, void *all);

  /// All ranks say whether they can go on. Success where all can. Otherwise `refusing` is the first
  /// that cannot, and all fail: those that can go on with its reason, its number in front, and the
  /// others each with its own. Where ranks are lost, `refusing` stays empty.
  Status agree(Status own, std::optional<int64_t> &refusing);

  /// Gives the first rank what the ranks have in `mine`, `bytes` bytes of each, one after the
  /// other; `all` is of no meaning to the others. `mine` lies in the arena of the device on each
  /// rank, or on none; `all` anywhere.
  virtual Status collect(const char *mine, int64_t bytes, char *all) = 0;

  /// Whether somebody who watches the ranks asked them to stop; they may learn of it at different
  /// times.
  virtual bool isAskedToStop() const = 0;

  /// Tells the others that this rank is at work by itself, writing a file say: their waits begin
  /// anew. Any thread may say so, at any time.
  virtual void keepAlive() {}
  /// How often ranks of this group have said so, as far as this one knows.
  virtual uint32_t countSigns() const { return 0; }

  /// Why a rank has left, where that is known; any thread may ask.
  virtual Status getFailure() const { return Status::ok(); }

  /// The same, after listening for what ranks say that leave: for a thread that waits for something
  /// else, between calls.
  virtual Status look() { return getFailure(); }
  /// A failure that names a rank which has closed, as far as look() has heard.
  virtual Status findClosed() const = 0;

  /// Tells the others that this rank will not go on, and why; the first to leave is the one that
  /// they name.
  virtual void leave(const Status &reason) = 0;

  /// Tells the others that this rank has made its last call: who waits for one more fails, and
  /// names it. False where some of what was sent may still move, so that this object has to stay.
  virtual bool close() = 0;

protected:
  Communicator(int64_t rank, int64_t ranks) : rank(rank), ranks(ranks), refusals(size_t(ranks)) {}

  const int64_t rank, ranks;

private:
  std::vector<char> refusals; ///< of each rank, 1 or 0
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_COMMUNICATOR_H
