//===- Races.cpp - what operations touch, and in which order --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/memory/Races.h"
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace memopt::emulator;
using nlohmann::json;

//===----------------------------------------------------------------------===//
// What an operation touches
//===----------------------------------------------------------------------===//

void AccessLog::add(uintptr_t begin, size_t bytes, bool isWrite) {
  if (bytes == 0)
    return;
  // A thread that walks along a row touches one range.
  if (!accesses.empty()) {
    Access &last = accesses.back();
    if (last.isWrite == isWrite && last.begin <= begin && begin <= last.end) {
      last.end = std::max(last.end, begin + bytes);
      return;
    }
  }
  if (accesses.size() >= joinAt) {
    join();
    joinAt = std::max(size_t(4096), 2 * accesses.size());
  }
  accesses.push_back({begin, begin + bytes, isWrite});
}

void AccessLog::join() {
  std::sort(accesses.begin(), accesses.end(), [](const Access &a, const Access &b) {
    return std::tie(a.isWrite, a.begin) < std::tie(b.isWrite, b.begin);
  });
  size_t kept = 0;
  for (const Access &access : accesses) {
    if (kept && accesses[kept - 1].isWrite == access.isWrite &&
        access.begin <= accesses[kept - 1].end)
      accesses[kept - 1].end = std::max(accesses[kept - 1].end, access.end);
    else
      accesses[kept++] = access;
  }
  accesses.resize(kept);
}

std::vector<Access> AccessLog::take() {
  join();
  joinAt = 4096;
  return std::exchange(accesses, {});
}

//===----------------------------------------------------------------------===//
// The map
//===----------------------------------------------------------------------===//

/// Cuts the piece that holds a byte in two, the second of which begins there; gives the first piece
/// that begins there or later.
RaceMap::Pieces::iterator RaceMap::split(uintptr_t at) {
  auto after = pieces.lower_bound(at);
  if (after == pieces.begin())
    return after;
  auto before = std::prev(after);
  if (before->second.end <= at)
    return after;
  Piece rest = before->second;
  before->second.end = at;
  return pieces.emplace_hint(after, at, std::move(rest));
}

/// Makes pieces that cover exactly the access.
void RaceMap::cover(const Access &access) {
  split(access.begin);
  split(access.end);
  uintptr_t at = access.begin;
  while (at < access.end) {
    auto piece = pieces.lower_bound(at);
    uintptr_t next = piece == pieces.end() ? access.end : std::min(access.end, piece->first);
    if (at < next)
      pieces.emplace(at, Piece{next, {0, ""}, {}});
    else
      next = piece->second.end;
    at = next;
  }
}

void RaceMap::check(const Operation &operation, const std::vector<Access> &accesses) {
  for (const Access &access : accesses) {
    cover(access);
    for (auto piece = pieces.lower_bound(access.begin);
         piece != pieces.end() && piece->first < access.end; ++piece)
      touch(piece, operation, access.isWrite);
  }
}

void RaceMap::touch(Pieces::iterator place, const Operation &operation, bool isWrite) {
  Piece &piece = place->second;
  size_t bytes = piece.end - place->first;
  if (piece.writer.id && !timeline.isOrdered(piece.writer.id, operation))
    report(piece.writer.name, true, operation.name, isWrite, place->first, bytes);
  if (isWrite)
    for (const Toucher &reader : piece.readers)
      if (!timeline.isOrdered(reader.id, operation))
        report(reader.name, false, operation.name, true, place->first, bytes);
  if (isWrite) {
    piece.writer = {operation.id, operation.name};
    piece.readers.clear();
    return;
  }
  // A reader that is known to be done is spoken for by this one.
  auto isCovered = [&](const Toucher &reader) { return timeline.isOrdered(reader.id, operation); };
  piece.readers.erase(std::remove_if(piece.readers.begin(), piece.readers.end(), isCovered),
                      piece.readers.end());
  piece.readers.push_back({operation.id, operation.name});
}

void RaceMap::forget(uintptr_t begin, size_t bytes) {
  auto piece = split(begin);
  pieces.erase(piece, split(begin + bytes));
}

//===----------------------------------------------------------------------===//
// Telling
//===----------------------------------------------------------------------===//

/// The number that tells an operation from others of its name.
static std::string dropNumber(const std::string &name) { return name.substr(0, name.rfind(" #")); }

void RaceMap::report(const std::string &first, bool firstWrites, const std::string &second,
                     bool secondWrites, uintptr_t at, size_t bytes) {
  auto [place, offset] = locate(at);
  std::string key = dropNumber(first) + (firstWrites ? " writes, " : " reads, ") +
                    dropNumber(second) + (secondWrites ? " writes, " : " reads, ") + place;
  if (!told.insert(key).second) {
    for (Race &race : races)
      if (dropNumber(race.first) == dropNumber(first) &&
          dropNumber(race.second) == dropNumber(second) && race.place == place &&
          race.firstWrites == firstWrites && race.secondWrites == secondWrites)
        ++race.count;
    return;
  }
  std::fprintf(stderr,
               "emulator: race: %s %s and %s %s %zu bytes at offset %llu of %s; nothing "
               "orders them\n",
               first.c_str(), firstWrites ? "writes" : "reads", second.c_str(),
               secondWrites ? "writes" : "reads", bytes, static_cast<unsigned long long>(offset),
               place.c_str());
  races.push_back({first, second, place, firstWrites, secondWrites, offset, bytes, 1});
  write();
}

/// At each new race, for a process may end in any way.
void RaceMap::write() const {
  if (folder.empty())
    return;
  json list = json::array();
  for (const Race &race : races)
    list.push_back(
        {{"first", {{"operation", race.first}, {"access", race.firstWrites ? "write" : "read"}}},
         {"second", {{"operation", race.second}, {"access", race.secondWrites ? "write" : "read"}}},
         {"place", race.place},
         {"offset", race.offset},
         {"bytes", race.bytes},
         {"count", race.count}});
  std::ofstream(folder + "/" + std::to_string(::getpid()) + ".json") << list.dump(1) << "\n";
}
