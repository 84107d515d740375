//===- OpenMpTeam.h - a library's OpenMP on a session's threads ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// oneDNN, as it is packaged, runs its parallel regions by OpenMP. It cuts its work for the number
// of threads that a primitive was created for, and computes wrong numbers when fewer come: and
// OpenMP may always give fewer (OMP_THREAD_LIMIT, OMP_DYNAMIC, a region around ours). So its calls
// of the OpenMP runtime end here: inside a scope there are as many members as the scope says, and
// the session's pool runs them all on whatever threads it has. One pool serves everything, so no
// two threads fight for a processor.
//
// This replaces functions of libgomp by name, for the whole process; outside of scopes they pass
// every call on to libgomp.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_KERNELS_ONEDNN_OPENMPTEAM_H
#define MEMOPT_RUNTIME_KERNELS_ONEDNN_OPENMPTEAM_H

#include "memopt-runtime/threads/ThreadPool.h"

namespace memopt::libraries {

/// While it lives, OpenMP on the calling thread is this. Scopes of a thread do not overlap.
class OpenMpScope {
public:
  /// Regions have `members` members, run by `pool`: in any order on any number of threads, or,
  /// where they `waitForEachOther` (in barriers), all at the same time. Without a pool the calling
  /// thread runs all members.
  OpenMpScope(int members, ThreadPool *pool, bool waitForEachOther);
  ~OpenMpScope();
  OpenMpScope(const OpenMpScope &) = delete;
  OpenMpScope &operator=(const OpenMpScope &) = delete;

  /// Whether somebody asked for the number of threads: a library inside the scope that has not is
  /// one whose calls go elsewhere.
  bool wasAsked() const { return isAsked; }

private:
  friend struct OpenMpCalls;

  void beginRegion(void (*function)(void *), void *data, unsigned count);
  void endRegion();
  void waitForAll();
  static void runMember(void *scope, int64_t member);

  const int members;
  ThreadPool *const pool;
  const bool waitForEachOther;
  std::atomic<bool> isAsked{false};

  // The region at hand.
  void (*function)(void *) = nullptr;
  void *data = nullptr;
  int64_t count = 1;
  std::atomic<int64_t> waiting{0}; ///< members in the barrier
  std::atomic<uint32_t> passed{0}; ///< barriers that all have reached
};

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_KERNELS_ONEDNN_OPENMPTEAM_H
