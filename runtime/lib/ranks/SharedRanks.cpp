//===- SharedRanks.cpp - ranks on one host --------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The memory, and what of it tells who has left. What ranks do there is SharedCommunicator.cpp.
//
//===----------------------------------------------------------------------===//

#include "SharedCommunicator.h"
#include "memopt-runtime/memory/Arena.h"
#include "memopt-runtime/memory/AvailableMemory.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace memopt;

//===----------------------------------------------------------------------===//
// The meeting
//===----------------------------------------------------------------------===//

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
