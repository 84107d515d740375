//===- SharedRanks.cpp - ranks on one host --------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What ranks share are lock-free words of memory that they all map, so processes and threads are
// alike. What is small passes through a mailbox, with one meeting of all ranks; what is larger is
// read where it lies, which takes one more before the operand is free. A wait spins for a moment,
// unless there are more ranks than processors, and then sleeps on the word (futex(2)), looking up
// now and then for a rank that left.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/SharedRanks.h"
#include "memopt-runtime/memory/Arena.h"
#include "memopt-runtime/memory/AvailableMemory.h"
#include "memopt-runtime/ranks/KeepAlive.h"
#include "memopt-runtime/ranks/RankSums.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <linux/futex.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace memopt;

static_assert(std::atomic<uint32_t>::is_always_lock_free);

//===----------------------------------------------------------------------===//
// The meeting
//===----------------------------------------------------------------------===//

/// What passes through a mailbox at once: enough for a barrier to cost little beside it.
static constexpr int64_t mailboxBytes = 256 << 10;

/// Where ranks meet; zeros are its first state. One Place for each rank lies behind it.
struct SharedRanks::Meeting {
  struct alignas(64) Place {
    std::atomic<uint32_t> arrivals; ///< at barriers, so far
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

void SharedRanks::askToStop() { meeting->isAskedToStop.store(1); }
uint32_t SharedRanks::countSigns() const { return meeting->signs.load(); }

void SharedRanks::leave(int64_t rank, const Status &reason) {
  if (meeting->first.load())
    return;
  uint32_t number = meeting->begun.fetch_add(1) + 1, nobody = 0;
  if (number > Meeting::countFarewells(ranks))
    return; // others are about to tell theirs
  Meeting::Farewell &mine = meeting->getFarewell(ranks, number);
  mine.leaver = rank;
  mine.code = reason.getCode();
  std::strncpy(mine.reason, reason.getMessage().c_str(), sizeof mine.reason - 1);
  meeting->first.compare_exchange_strong(nobody, number);
}

Status SharedRanks::getReason() const {
  uint32_t number = meeting->first.load();
  if (!number)
    return Status::ok();
  const Meeting::Farewell &first = meeting->getFarewell(ranks, number);
  return Status(first.code, "rank " + std::to_string(first.leaver) + ": " + first.reason);
}

bool SharedRanks::claimReason() { return meeting->isReasonClaimed.exchange(1) == 0; }

//===----------------------------------------------------------------------===//
// One rank
//===----------------------------------------------------------------------===//

namespace memopt {

class SharedCommunicator final : public Communicator {
public:
  SharedCommunicator(SharedRanks &group, int64_t rank)
      : Communicator(rank, group.getRanks()), group(group), meeting(*group.meeting),
        spins(countProcessors() > group.getRanks() ? 4000 : 0) {}

  Status allReduce(DType type, const char *from, char *to, int64_t count,
                   ThreadPool &pool) override {
    // Each rank adds up a piece, in whole cache lines, and then fetches those of the others.
    int64_t size = getByteSize(type), line = 64 / size;
    if (count * size <= mostExchangedBytes) {
      MEMOPT_RETURN_IF_ERROR(post(from, count * size));
      addRanks(type, ranks, [&](int64_t other) { return getMail(other); }, 0, count, to, pool);
      return Status::ok();
    }
    int64_t piece = (count + ranks * line - 1) / (ranks * line) * line;
    auto begin = [&](int64_t of) { return std::min(count, of * piece); };
    MEMOPT_RETURN_IF_ERROR(barrier());
    sum(type, from, begin(rank), begin(rank + 1), to + begin(rank) * size, pool);
    MEMOPT_RETURN_IF_ERROR(barrier());
    for (int64_t other = 0; other < ranks; ++other)
      if (other != rank)
        copy(getPeer(to, other) + begin(other) * size, to + begin(other) * size,
             (begin(other + 1) - begin(other)) * size, pool);
    return barrier();
  }

  Status reduceScatter(DType type, const char *from, int64_t count, char *to, int64_t shard,
                       ThreadPool &pool) override {
    int64_t size = getByteSize(type), begin = std::min(count, rank * shard),
            end = std::min(count, begin + shard);
    MEMOPT_RETURN_IF_ERROR(barrier());
    sum(type, from, begin, end, to, pool);
    std::memset(to + (end - begin) * size, 0, size_t((shard - (end - begin)) * size));
    return barrier();
  }

  Status allGather(const char *from, int64_t shardBytes, char *to, int64_t bytes,
                   ThreadPool &pool) override {
    bool isSmall = shardBytes <= mostExchangedBytes;
    MEMOPT_RETURN_IF_ERROR(isSmall ? post(from, shardBytes) : barrier());
    for (int64_t other = 0; other < ranks; ++other) {
      int64_t begin = std::min(bytes, other * shardBytes);
      copy(isSmall ? getMail(other) : getPeer(from, other), to + begin,
           std::min(bytes - begin, shardBytes), pool);
    }
    return isSmall ? Status::ok() : barrier();
  }

  Status barrier() override {
    MEMOPT_RETURN_IF_ERROR(group.getReason());
    uint32_t before = meeting.barrier.load();
    meeting.getPlace(rank).arrivals.fetch_add(1);
    if (meeting.arrived.fetch_add(1) + 1 < uint32_t(ranks))
      return wait(before);
    meeting.arrived.store(0);
    meeting.barrier.store(before + 1);
    ::syscall(SYS_futex, &meeting.barrier, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return Status::ok();
  }

  Status exchange(const void *mine, int64_t bytes, void *all) override {
    if (bytes < 0 || bytes > mailboxBytes)
      return badInput("ranks exchange at most " + std::to_string(mailboxBytes) + " bytes, not " +
                      std::to_string(bytes));
    MEMOPT_RETURN_IF_ERROR(post(mine, bytes));
    for (int64_t other = 0; other < ranks; ++other)
      std::memcpy(static_cast<char *>(all) + other * bytes, getMail(other), size_t(bytes));
    return Status::ok();
  }

  int64_t getPieceBytes() const override { return mailboxBytes; }

  Status collect(const char *mine, int64_t bytes, char *all) override {
    if (!isShared(mine))
      return collectByMail(mine, bytes, all);
    MEMOPT_RETURN_IF_ERROR(barrier());
    for (int64_t other = 0; other < ranks && rank == 0; ++other)
      std::memcpy(all + other * bytes, getPeer(mine, other), size_t(bytes));
    return barrier();
  }

  bool isAskedToStop() const override { return meeting.isAskedToStop.load() != 0; }
  void keepAlive() override { meeting.signs.fetch_add(1); }
  uint32_t countSigns() const override { return group.countSigns(); }
  Status getFailure() const override { return group.getReason(); }
  void leave(const Status &reason) override { group.leave(rank, reason); }

private:
  /// Where another rank has what lies at `address` here.
  const char *getPeer(const char *address, int64_t other) const {
    return address + (group.getRegion(other) - group.getRegion(rank));
  }

  bool isShared(const char *address) const {
    std::less<const char *> isBelow;
    const char *begin = group.getRegion(rank);
    return !isBelow(address, begin) && isBelow(address, begin + group.regionBytes);
  }

  /// What the others cannot read comes in pieces.
  Status collectByMail(const char *mine, int64_t bytes, char *all) {
    for (int64_t begin = 0; begin < bytes; begin += mailboxBytes) {
      int64_t piece = std::min(mailboxBytes, bytes - begin);
      MEMOPT_RETURN_IF_ERROR(post(mine + begin, piece));
      for (int64_t other = 0; other < ranks && rank == 0; ++other)
        std::memcpy(all + other * bytes + begin, getMail(other), size_t(piece));
    }
    return Status::ok();
  }

  /// Puts bytes where the others find them, and waits until all have done so.
  Status post(const void *bytes, int64_t count) {
    mailbox ^= 1;
    std::memcpy(meeting.getPlace(rank).mailboxes[mailbox], bytes, size_t(count));
    return barrier();
  }
  const char *getMail(int64_t other) const { return meeting.getPlace(other).mailboxes[mailbox]; }

  void sum(DType type, const char *from, int64_t begin, int64_t end, char *to, ThreadPool &pool) {
    addRanks(
        type, ranks, [&](int64_t other) { return getPeer(from, other); }, begin, end, to, pool);
  }

  static void copy(const char *from, char *to, int64_t bytes, ThreadPool &pool) {
    constexpr int64_t grain = 256 << 10;
    pool.parallelFor(bytes, grain, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, size_t(end - begin));
    });
  }

  /// Until the barrier that was passed `before` times is passed once more.
  Status wait(uint32_t before) {
    for (int i = 0; i < spins; ++i)
      if (meeting.barrier.load(std::memory_order_acquire) != before)
        return Status::ok();
    Patience patience(group.seconds);
    while (meeting.barrier.load() == before) {
      MEMOPT_RETURN_IF_ERROR(group.getReason());
      if (patience.isOver(countSigns()))
        return giveUp();
      timespec moment{0, 5'000'000};
      ::syscall(SYS_futex, &meeting.barrier, FUTEX_WAIT, before, &moment, nullptr, 0);
    }
    return Status::ok();
  }

  Status giveUp() {
    std::string late;
    uint32_t mine = meeting.getPlace(rank).arrivals.load();
    for (int64_t other = 0; other < ranks; ++other)
      if (int32_t(meeting.getPlace(other).arrivals.load() - mine) < 0)
        late += (late.empty() ? "" : ", ") + std::to_string(other);
    Status status =
        environmentError("waited " + std::to_string(int64_t(group.seconds)) + " s for rank " +
                         late + "; --rank-timeout=SECONDS gives it longer");
    leave(status);
    return status;
  }

  SharedRanks &group;
  SharedRanks::Meeting &meeting;
  const int spins;
  int mailbox = 0; ///< the last one posted to, the same on all ranks
};

} // namespace memopt

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The sizes that follow from the numbers; false where no machine has so much.
bool SharedRanks::measure() {
  int64_t page = ::sysconf(_SC_PAGESIZE);
  regionBytes = HostArena::getRegionBytes(arenaBytes);
  headBytes = (Meeting::getBytes(ranks) + page - 1) / page * page;
  return !__builtin_mul_overflow(ranks, regionBytes, &totalBytes) &&
         !__builtin_add_overflow(totalBytes, headBytes, &totalBytes);
}

StatusOr<std::unique_ptr<SharedRanks>> SharedRanks::create(int64_t ranks, int64_t arenaBytes,
                                                           bool isChecked, double seconds) {
  if (ranks < 1 || arenaBytes < 0)
    return badInput("ranks need to be at least one, with arenas of no less than no bytes");
  std::unique_ptr<SharedRanks> group(new SharedRanks(ranks, arenaBytes, isChecked, seconds));
  int64_t page = ::sysconf(_SC_PAGESIZE), available = getAvailableMemory();
  if (!group->measure() || group->totalBytes - group->headBytes - 2 * page * ranks > available)
    return environmentError(std::to_string(ranks) + " ranks take " + std::to_string(arenaBytes) +
                            " bytes each, this machine or its control group has " +
                            std::to_string(available) + " available");
  group->memory = Descriptor(::memfd_create("memopt-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Whoever maps it need not fear that it becomes shorter.
  if (group->memory.get() < 0 || ::ftruncate(group->memory.get(), group->totalBytes) != 0 ||
      ::fcntl(group->memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return environmentError("making memory of " + std::to_string(group->totalBytes) +
                            " bytes for ranks: " + std::strerror(errno));
  MEMOPT_RETURN_IF_ERROR(group->map());
  new (group->mapping) Meeting; // fresh pages are zeros
  return group;
}

StatusOr<std::unique_ptr<SharedRanks>> SharedRanks::attach(Descriptor memory, int64_t ranks,
                                                           int64_t arenaBytes, bool isChecked,
                                                           double seconds) {
  std::unique_ptr<SharedRanks> group(new SharedRanks(ranks, arenaBytes, isChecked, seconds));
  group->memory = std::move(memory);
  struct stat facts{};
  if (!group->measure() || ::fstat(group->memory.get(), &facts) != 0 ||
      facts.st_size != group->totalBytes ||
      (::fcntl(group->memory.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0)
    return environmentError("the memory of " + std::to_string(ranks) + " ranks with " +
                            std::to_string(arenaBytes) + " bytes each is expected to have " +
                            std::to_string(group->totalBytes) + " bytes, found " +
                            std::to_string(facts.st_size));
  MEMOPT_RETURN_IF_ERROR(group->map());
  return group;
}

Status SharedRanks::map() {
  int64_t page = ::sysconf(_SC_PAGESIZE);
  void *address =
      ::mmap(nullptr, size_t(totalBytes), PROT_NONE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (address != MAP_FAILED)
    mapping = static_cast<char *>(address);
  if (!mapping || ::mprotect(mapping, size_t(headBytes), PROT_READ | PROT_WRITE) != 0)
    return environmentError("mapping " + std::to_string(totalBytes) +
                            " bytes for ranks: " + std::strerror(errno));
  meeting = static_cast<Meeting *>(address);
  arenas = mapping + headBytes;
  // Before there are processes: each of them reads all. Its own one a rank may write when it makes
  // an arena there.
  for (int64_t rank = 0; rank < ranks && arenaBytes; ++rank)
    if (::mprotect(getRegion(rank) + page, size_t(regionBytes - 2 * page), PROT_READ) != 0)
      return environmentError("mapping the arena of rank " + std::to_string(rank) + ": " +
                              std::strerror(errno));
  return Status::ok();
}

SharedRanks::~SharedRanks() {
  if (mapping)
    ::munmap(mapping, size_t(totalBytes));
}

std::unique_ptr<Communicator> SharedRanks::join(int64_t rank) {
  return std::make_unique<SharedCommunicator>(*this, rank);
}
