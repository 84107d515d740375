//===- PreparedCalls.h - the library calls of a session ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_PREPAREDCALLS_H
#define MEMOPT_RUNTIME_PREPAREDCALLS_H

#include "memopt-runtime/Arenas.h"
#include "memopt-runtime/LibraryCalls.h"
#include "memopt-runtime/ThreadPool.h"

namespace memopt {

/// The library calls of a program, ready to run, each with what was planned for it.
class PreparedCalls {
public:
  /// Makes the calls. One that needs a larger workspace than was planned is refused. The manifest
  /// must outlive them.
  static StatusOr<PreparedCalls> create(const Manifest &manifest, const LibraryCallFactory &create);

  /// Threads that the calls need at the same time.
  int getTeam() const;

  /// Warms each call up in the arena, where nothing is left that means anything.
  Status warmUp(const Arenas &arenas, ThreadPool &pool);

  /// A failure names the call.
  Status run(int64_t call, void *const *buffers, ThreadPool &pool);

  /// Counts a call's workspace as used.
  void noteWorkspace(int64_t call, void *const *buffers, Arenas &arenas) const;

private:
  struct PreparedCall {
    std::unique_ptr<LibraryCall> call;
    int64_t workspaceBytes; ///< planned, at least what the call needs
    int64_t bufferCount;    ///< operands and results, before the workspace
  };

  static StatusOr<PreparedCall> prepare(const JsonView &view, const LibraryCallFactory &create,
                                        int threads);

  std::vector<PreparedCall> calls;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_PREPAREDCALLS_H
