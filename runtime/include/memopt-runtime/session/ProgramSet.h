//===- ProgramSet.h - several programs over one state -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The programs of a package, each a Session, in one arena of each space: the state at its begin,
// which is the same in all, and above it what the program at work makes. So one works at a time,
// and what lies above the state is lost when another begins.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_SESSION_PROGRAMSET_H
#define MEMOPT_RUNTIME_SESSION_PROGRAMSET_H

#include "memopt-runtime/session/Session.h"

namespace memopt {

class ProgramSet {
public:
  /// Of a package of one program as well.
  static StatusOr<std::unique_ptr<ProgramSet>> create(std::shared_ptr<const Package> package,
                                                      Device &device,
                                                      const LibraryCallFactory &createCall,
                                                      const SessionOptions &options);

  size_t count() const { return sessions.size(); }
  Session &operator[](size_t number) const { return *sessions[number]; }
  /// The first program, whose manifest has all of the state.
  Session &first() const { return *sessions.front(); }
  /// The program of that name, or none.
  std::optional<size_t> find(const std::string &name) const;

  /// Makes a program the one at work. Returns whether another was: then its hyperparameters are to
  /// be set anew.
  StatusOr<bool> enter(size_t number);

  /// Adds a package that was compiled for this one's state. Where it needs a larger arena than
  /// there is, one is allocated, and sessions are made anew: references to them end.
  Status add(std::shared_ptr<const Package> package);

  /// What the largest program needs, by space.
  BytesBySpace getArenaBytes() const { return arenaBytes; }
  /// What all programs together take of the device beside the arena.
  StatusOr<DeviceOverhead> measureDeviceOverhead() const;

private:
  ProgramSet(Device &device, LibraryCallFactory createCall, SessionOptions options)
      : device(device), createCall(std::move(createCall)), options(std::move(options)) {}

  Status open(const std::vector<std::shared_ptr<const Package>> &packages);
  Status addSession(std::shared_ptr<const Package> package);
  /// What lies at the arenas' begin.
  using State = std::array<std::vector<char>, countedSpaces>;
  Status readState(State &state) const;
  Status writeState(const State &state) const;
  Status enlarge(std::shared_ptr<const Package> package);

  Device &device;
  LibraryCallFactory createCall;
  SessionOptions options;
  BytesBySpace arenaBytes{};
  std::vector<std::unique_ptr<Session>> sessions; ///< those behind the first use its arenas
  std::optional<size_t> current;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_SESSION_PROGRAMSET_H
