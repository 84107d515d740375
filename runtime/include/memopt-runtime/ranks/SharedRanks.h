//===- SharedRanks.h - ranks on one host ------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The memory of all ranks of one host is one mapping: a block in which they meet, and an arena for
// each. Ranks are threads, processes that inherit it, or processes that were given its file. A rank
// reads the others' arenas where they lie, so nothing is copied to be sent, and writes only its
// own.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_SHAREDRANKS_H
#define MEMOPT_RUNTIME_RANKS_SHAREDRANKS_H

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/ranks/Communicator.h"

namespace memopt {

class SharedRanks {
public:
  /// Arenas of `arenaBytes` bytes of device memory. `seconds` is how long a rank waits for the
  /// others. More memory than there is is an Environment error.
  static StatusOr<std::unique_ptr<SharedRanks>> create(int64_t ranks, int64_t arenaBytes,
                                                       bool isChecked, double seconds);
  /// Maps what another process has created with the same numbers; a file that cannot be that is an
  /// Environment error.
  static StatusOr<std::unique_ptr<SharedRanks>>
  attach(Descriptor memory, int64_t ranks, int64_t arenaBytes, bool isChecked, double seconds);
  ~SharedRanks();
  SharedRanks(const SharedRanks &) = delete;
  SharedRanks &operator=(const SharedRanks &) = delete;

  int64_t getRanks() const { return ranks; }
  /// The file of it all, which is nowhere in a file system; closed with this object.
  int getMemory() const { return memory.get(); }

  /// For each rank once, in its own process or thread; both must not outlive this object.
  std::unique_ptr<Communicator> join(int64_t rank);
  /// A rank's arena: a region of HostArena::getRegionBytes(getArenaBytes()) bytes.
  char *getRegion(int64_t rank) const { return arenas + rank * regionBytes; }
  int64_t getArenaBytes() const { return arenaBytes; }
  bool isArenaChecked() const { return isChecked; }

  /// Asks all ranks to stop when they have done a whole step.
  void askToStop();
  /// Notes on behalf of a rank that it is gone; has no effect once another one is.
  void leave(int64_t rank, const Status &reason);
  /// How often ranks have said that they are at work (Communicator::keepAlive).
  uint32_t countSigns() const;
  /// Why the first rank left, with its number in front; success while all are there.
  Status getReason() const;
  /// True for one caller of all: who tells the user that reason.
  bool claimReason();

private:
  friend class SharedCommunicator;
  struct Meeting;

  SharedRanks(int64_t ranks, int64_t arenaBytes, bool isChecked, double seconds)
      : ranks(ranks), arenaBytes(arenaBytes), isChecked(isChecked), seconds(seconds) {}
  bool measure();
  Status map();

  const int64_t ranks, arenaBytes;
  const bool isChecked;
  const double seconds;
  Descriptor memory;
  char *mapping = nullptr;
  int64_t headBytes = 0, totalBytes = 0;
  Meeting *meeting = nullptr; ///< at the begin of the mapping
  char *arenas = nullptr;     ///< a region for each, which begins and ends with a guard page
  int64_t regionBytes = 0;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_SHAREDRANKS_H
