//===- SharedCommunicator.cpp - one rank of those on one host -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A wait spins for a moment, unless there are more ranks than processors, and then sleeps on the
// word (futex(2)), looking up now and then for a rank that left.
//
//===----------------------------------------------------------------------===//

#include "SharedCommunicator.h"
#include "memopt-runtime/ranks/KeepAlive.h"
#include "memopt-runtime/ranks/RankSums.h"
#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace memopt;

SharedCommunicator::SharedCommunicator(SharedRanks &group, int64_t rank, Surroundings *around)
    : Communicator(rank, group.getRanks()), group(group), meeting(*group.meeting), around(around),
      spins(countProcessors() > group.getRanks() ? 4000 : 0) {}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

Status SharedCommunicator::allReduce(DType type, const char *from, char *to, int64_t count,
                                     ThreadPool &pool) {
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

Status SharedCommunicator::reduceScatter(DType type, const char *from, int64_t count, char *to,
                                         int64_t shard, ThreadPool &pool) {
  int64_t size = getByteSize(type), begin = std::min(count, rank * shard),
          end = std::min(count, begin + shard);
  MEMOPT_RETURN_IF_ERROR(barrier());
  sum(type, from, begin, end, to, pool);
  std::memset(to + (end - begin) * size, 0, size_t((shard - (end - begin)) * size));
  return barrier();
}

Status SharedCommunicator::allGather(const char *from, int64_t shardBytes, char *to, int64_t bytes,
                                     ThreadPool &pool) {
  bool isSmall = shardBytes <= mostExchangedBytes;
  MEMOPT_RETURN_IF_ERROR(isSmall ? post(from, shardBytes) : barrier());
  for (int64_t other = 0; other < ranks; ++other) {
    int64_t begin = std::min(bytes, other * shardBytes);
    copy(isSmall ? getMail(other) : getPeer(from, other), to + begin,
         std::min(bytes - begin, shardBytes), pool);
  }
  return isSmall ? Status::ok() : barrier();
}

Status SharedCommunicator::exchange(const void *mine, int64_t bytes, void *all) {
  if (bytes < 0 || bytes > mailboxBytes)
    return badInput("ranks exchange at most " + std::to_string(mailboxBytes) + " bytes, not " +
                    std::to_string(bytes));
  MEMOPT_RETURN_IF_ERROR(post(mine, bytes));
  for (int64_t other = 0; other < ranks; ++other)
    std::memcpy(static_cast<char *>(all) + other * bytes, getMail(other), size_t(bytes));
  return Status::ok();
}

Status SharedCommunicator::collect(const char *mine, int64_t bytes, char *all) {
  if (!isShared(mine))
    return collectByMail(mine, bytes, all);
  MEMOPT_RETURN_IF_ERROR(barrier());
  for (int64_t other = 0; other < ranks && rank == 0; ++other)
    std::memcpy(all + other * bytes, getPeer(mine, other), size_t(bytes));
  return barrier();
}

bool SharedCommunicator::isShared(const char *address) const {
  std::less<const char *> isBelow;
  const char *begin = group.getRegion(rank);
  return !isBelow(address, begin) && isBelow(address, begin + group.regionBytes);
}

/// What the others cannot read comes in pieces.
Status SharedCommunicator::collectByMail(const char *mine, int64_t bytes, char *all) {
  for (int64_t begin = 0; begin < bytes; begin += mailboxBytes) {
    int64_t piece = std::min(mailboxBytes, bytes - begin);
    MEMOPT_RETURN_IF_ERROR(post(mine + begin, piece));
    for (int64_t other = 0; other < ranks && rank == 0; ++other)
      std::memcpy(all + other * bytes + begin, getMail(other), size_t(piece));
  }
  return Status::ok();
}

/// Puts bytes where the others find them, and waits until all have done so.
Status SharedCommunicator::post(const void *bytes, int64_t count) {
  std::memcpy(turnMailbox(), bytes, size_t(count));
  return barrier();
}

void SharedCommunicator::sum(DType type, const char *from, int64_t begin, int64_t end, char *to,
                             ThreadPool &pool) {
  addRanks(type, ranks, [&](int64_t other) { return getPeer(from, other); }, begin, end, to, pool);
}

void SharedCommunicator::copy(const char *from, char *to, int64_t bytes, ThreadPool &pool) {
  constexpr int64_t grain = 256 << 10;
  pool.parallelFor(bytes, grain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, size_t(end - begin));
  });
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

Status SharedCommunicator::barrier() {
  MEMOPT_RETURN_IF_ERROR(look());
  uint32_t before = meeting.barrier.load();
  meeting.getPlace(rank).arrivals.fetch_add(1);
  if (meeting.arrived.fetch_add(1) + 1 < uint32_t(ranks))
    return wait(before);
  meeting.arrived.store(0);
  meeting.barrier.store(before + 1);
  ::syscall(SYS_futex, &meeting.barrier, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  return Status::ok();
}

/// Calls `use` with each rank that has not come to the barrier at which this one waits.
template <typename Use> void SharedCommunicator::forLate(const Use &use) const {
  uint32_t mine = meeting.getPlace(rank).arrivals.load();
  for (int64_t other = 0; other < ranks; ++other)
    if (int32_t(meeting.getPlace(other).arrivals.load() - mine) < 0)
      use(other);
}

/// Until the barrier that was passed `before` times is passed once more.
Status SharedCommunicator::wait(uint32_t before) {
  for (int i = 0; i < spins; ++i)
    if (meeting.barrier.load(std::memory_order_acquire) != before)
      return Status::ok();
  // Who waits for others himself gives up first, and knows better whom he waited for.
  constexpr double longer = 2;
  Patience patience(group.seconds);
  while (meeting.barrier.load() == before) {
    MEMOPT_RETURN_IF_ERROR(look());
    if (Status end = findLateClosed(); !end.isOk())
      return fail(std::move(end));
    if (patience.isOver(countSigns()) &&
        !(areLateAway() && patience.getWaited() < group.seconds + longer))
      return giveUp();
    timespec moment{0, 5'000'000};
    ::syscall(SYS_futex, &meeting.barrier, FUTEX_WAIT, before, &moment, nullptr, 0);
  }
  return Status::ok();
}

/// Whether all that are late wait for ranks of other hosts.
bool SharedCommunicator::areLateAway() const {
  bool isAnyLate = false, isAnyHere = false;
  forLate([&](int64_t other) {
    isAnyLate = true;
    isAnyHere |= !meeting.getPlace(other).isAway.load();
  });
  return isAnyLate && !isAnyHere;
}

std::string SharedCommunicator::nameRank(int64_t inGroup) const {
  return std::to_string(around ? around->getNumber(inGroup) : inGroup);
}

/// A failure if the rank has closed.
Status SharedCommunicator::explainClosed(int64_t other) const {
  if (!meeting.getPlace(other).isClosed.load())
    return Status::ok();
  return environmentError("waits for rank " + nameRank(other) + ", which has closed its session");
}

Status SharedCommunicator::findClosed() const {
  for (int64_t other = 0; other < ranks; ++other)
    if (other != rank)
      MEMOPT_RETURN_IF_ERROR(explainClosed(other));
  return Status::ok();
}

/// Of ranks that are waited for. A closed one had come to all barriers before.
Status SharedCommunicator::findLateClosed() const {
  Status found;
  forLate([&](int64_t other) {
    if (found.isOk())
      found = explainClosed(other);
  });
  return found;
}

Status SharedCommunicator::giveUp() {
  std::string late;
  forLate([&](int64_t other) { late += (late.empty() ? "" : ", ") + nameRank(other); });
  if (late.empty()) // it has said that it is there, and has not let the others on
    late = "that came last";
  return fail(environmentError("waited " + std::to_string(int64_t(group.seconds)) + " s for rank " +
                               late + "; --rank-timeout=SECONDS gives it longer"));
}

/// Where ranks of other hosts are to hear of it, the caller says so to all.
Status SharedCommunicator::fail(Status reason) {
  if (!around)
    leave(reason);
  return reason;
}
