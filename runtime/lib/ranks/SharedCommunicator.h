//===- SharedCommunicator.h - one rank of those on one host -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What ranks share are lock-free words of memory that they all map, so processes and threads are
// alike. What is small passes through a mailbox, with one meeting of all ranks; what is larger is
// read where it lies, which takes one more before the operand is free.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_RANKS_SHAREDCOMMUNICATOR_H
#define MEMOPT_RUNTIME_LIB_RANKS_SHAREDCOMMUNICATOR_H

#include "memopt-runtime/ranks/SharedRanks.h"
#include <atomic>

namespace memopt {

static_assert(std::atomic<uint32_t>::is_always_lock_free);

/// What passes through a mailbox at once: enough for a barrier to cost little beside it.
constexpr int64_t mailboxBytes = 256 << 10;

/// Where ranks meet; zeros are its first state. One Place for each rank lies behind it.
struct SharedRanks::Meeting {
  struct alignas(64) Place {
    std::atomic<uint32_t> arrivals; ///< at barriers, so far
    std::atomic<uint32_t> isAway;   ///< waits for ranks of other hosts
    std::atomic<uint32_t> isClosed; ///< has made its last call
    /// Two, in turn: who fills one again has met all that read it before.
    alignas(64) char mailboxes[2][mailboxBytes]; ///< pages that nobody touches take no memory
  };
  /// Why somebody left. A process may be killed while it writes one, so each has its own, and it
  /// counts when it is whole.
  struct Farewell {
    int64_t leaver;
    StatusCode code;
    char reason[2048];
  };

  alignas(64) std::atomic<uint32_t> arrived; ///< at the present barrier
  alignas(64) std::atomic<uint32_t> barrier; ///< counts those that are done; ranks sleep on it
  alignas(64) std::atomic<uint32_t> first; ///< number of the farewell that counts, from 1; 0: none
  std::atomic<uint32_t> begun;             ///< farewells, whole or not
  std::atomic<uint32_t> isAskedToStop, isReasonClaimed;
  std::atomic<uint32_t> signs; ///< of ranks that are at work by themselves

  Place &getPlace(int64_t rank) { return reinterpret_cast<Place *>(this + 1)[rank]; }
  Farewell &getFarewell(int64_t ranks, int64_t number) {
    return reinterpret_cast<Farewell *>(&getPlace(ranks))[number - 1];
  }
  /// A rank and who watches it may each begin one.
  static int64_t countFarewells(int64_t ranks) { return 2 * ranks + 2; }
  static int64_t getBytes(int64_t ranks) {
    return int64_t(sizeof(Meeting)) + ranks * int64_t(sizeof(Place)) +
           countFarewells(ranks) * int64_t(sizeof(Farewell));
  }
};

/// The ranks of all hosts, where those of one are some of them.
class Surroundings {
public:
  virtual ~Surroundings() = default;
  /// Looks up, while a rank waits for others of its host: fails where any rank of all has left.
  virtual Status look() = 0;
  virtual uint32_t countSigns() const = 0;
  /// The number that a rank of this host has among all.
  virtual int64_t getNumber(int64_t rank) const = 0;
};

class SharedCommunicator final : public Communicator {
public:
  /// `around` may be null: the group is all there is. Otherwise that is where to look for those
  /// that have left, and leaving is the caller's.
  SharedCommunicator(SharedRanks &group, int64_t rank, Surroundings *around = nullptr);

  Status allReduce(DType type, const char *from, char *to, int64_t count,
                   ThreadPool &pool) override;
  Status reduceScatter(DType type, const char *from, int64_t count, char *to, int64_t shard,
                       ThreadPool &pool) override;
  Status allGather(const char *from, int64_t shardBytes, char *to, int64_t bytes,
                   ThreadPool &pool) override;
  Status barrier() override;
  Status exchange(const void *mine, int64_t bytes, void *all) override;
  int64_t getPieceBytes() const override { return mailboxBytes; }
  Status collect(const char *mine, int64_t bytes, char *all) override;

  bool isAskedToStop() const override { return meeting.isAskedToStop.load() != 0; }
  void keepAlive() override {
    ownSigns.fetch_add(1);
    meeting.signs.fetch_add(1);
  }
  /// Those of the others: who waits while it is at work waits no longer for that.
  uint32_t countSigns() const override {
    return around ? around->countSigns() : group.countSigns() - ownSigns.load();
  }
  Status getFailure() const override { return group.getReason(); }
  Status look() override { return around ? around->look() : group.getReason(); }
  Status findClosed() const override;
  void leave(const Status &reason) override { group.leave(rank, reason); }
  bool close() override {
    meeting.getPlace(rank).isClosed.store(1);
    return true;
  }

  /// Where another rank has what lies at `address` here.
  const char *getPeer(const char *address, int64_t other) const {
    return address + (group.getRegion(other) - group.getRegion(rank));
  }
  /// This rank's next mailbox, to be filled before a barrier. What stood there has been read.
  char *turnMailbox() {
    mailbox ^= 1;
    return meeting.getPlace(rank).mailboxes[mailbox];
  }
  /// What a rank has put there, behind the barrier.
  const char *getMail(int64_t other) const { return meeting.getPlace(other).mailboxes[mailbox]; }

  /// Says whether this rank waits for ranks of other hosts. It is not at fault then.
  void setAway(bool isAway) { meeting.getPlace(rank).isAway.store(isAway); }

  static void copy(const char *from, char *to, int64_t bytes, ThreadPool &pool);

private:
  bool isShared(const char *address) const;
  Status collectByMail(const char *mine, int64_t bytes, char *all);
  Status post(const void *bytes, int64_t count);
  void sum(DType type, const char *from, int64_t begin, int64_t end, char *to, ThreadPool &pool);
  Status wait(uint32_t before);
  template <typename Use> void forLate(const Use &use) const;
  bool areLateAway() const;
  std::string nameRank(int64_t inGroup) const;
  Status explainClosed(int64_t other) const;
  Status findLateClosed() const;
  Status giveUp();
  Status fail(Status reason);

  SharedRanks &group;
  SharedRanks::Meeting &meeting;
  Surroundings *const around;
  const int spins;
  std::atomic<uint32_t> ownSigns{0};
  int mailbox = 0; ///< the last one posted to, the same on all ranks
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_RANKS_SHAREDCOMMUNICATOR_H
