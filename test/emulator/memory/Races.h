//===- Races.h - what operations touch, and in which order ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For each byte, the operation that wrote it last and those that read it since. An operation that
// is done is held against them: where one of the two writes and neither is the other's ancestor,
// there is a race, whatever the values were this time.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_RACES_H
#define MEMOPT_EMULATOR_RACES_H

#include "emulator/memory/Timeline.h"
#include <set>

namespace memopt::emulator {

/// Bytes [begin, end).
struct Access {
  uintptr_t begin, end;
  bool isWrite;
};

/// What one operation touches while it runs; ranges that meet are joined now and then, so that a
/// kernel of many threads stays small.
class AccessLog {
public:
  void add(uintptr_t begin, size_t bytes, bool isWrite);
  /// Disjoint ranges of reads, then of writes, in order.
  std::vector<Access> take();

private:
  void join();

  std::vector<Access> accesses;
  size_t joinAt = 4096;
};

class RaceMap {
public:
  /// Where an address lies, for a message: the name of what holds it, and the offset there.
  using Locator = std::function<std::pair<std::string, uint64_t>(uintptr_t)>;

  RaceMap(const Timeline &timeline, Locator locate, std::string folder)
      : timeline(timeline), locate(std::move(locate)), folder(std::move(folder)) {}

  /// Holds what an operation has touched against what others did.
  void check(const Operation &operation, const std::vector<Access> &accesses);

  /// All that was touched is known to all that comes.
  void forget() { pieces.clear(); }
  /// The bytes are new: whoever touched what was there before does not count.
  void forget(uintptr_t begin, size_t bytes);

  /// A race, or two threads of a kernel that touch a byte; told once, counted always.
  void report(const std::string &first, bool firstWrites, const std::string &second,
              bool secondWrites, uintptr_t at, size_t bytes);

private:
  struct Toucher {
    OperationId id;
    std::string name;
  };
  struct Piece {
    uintptr_t end;
    Toucher writer; ///< id 0: nobody yet
    std::vector<Toucher> readers;
  };
  using Pieces = std::map<uintptr_t, Piece>;
  struct Race {
    std::string first, second, place;
    bool firstWrites, secondWrites;
    uint64_t offset, bytes, count;
  };

  Pieces::iterator split(uintptr_t at);
  void cover(const Access &access);
  void touch(Pieces::iterator piece, const Operation &operation, bool isWrite);
  void write() const;

  const Timeline &timeline;
  Locator locate;
  std::string folder; ///< for a file of this process; empty: none
  Pieces pieces;      ///< disjoint, by their begin
  std::vector<Race> races;
  std::set<std::string> told;
};

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_RACES_H
