//===- PreparedCalls.h - the library calls of a session ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_PREPAREDCALLS_H
#define MEMOPT_RUNTIME_EXECUTION_PREPAREDCALLS_H

#include "memopt-runtime/descriptors/LibraryCalls.h"
#include "memopt-runtime/execution/Arenas.h"
#include "memopt-runtime/threads/ThreadPool.h"

namespace memopt {

/// The library calls of a program, ready to run, each with what was planned for it.
class PreparedCalls {
public:
  /// Makes the calls. One that needs a larger workspace than was planned is refused. The manifest
  /// must outlive them.
  static StatusOr<PreparedCalls> create(const Manifest &manifest, const LibraryCallFactory &create);
  /// The same for a device that runs them in a stream, both of which must outlive them.
  static StatusOr<PreparedCalls> create(const Manifest &manifest, const LibraryCallFactory &create,
                                        Device &device, ComputeStream &stream);

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
    std::unique_ptr<LibraryCall> call;      ///< on the cpu
    std::unique_ptr<DeviceCall> deviceCall; ///< or on a device
    int64_t workspaceBytes = 0;             ///< planned, at least what the call needs
    int64_t bufferCount = 0;                ///< operands and results, before the workspace
    bool flushesDenormals = false;          ///< on the cpu denormal numbers count as zero

    /// Those that the program launches are not.
    bool isMade() const { return call || deviceCall; }
  };

  /// Makes one of a call's two forms, and gives the workspace that it needs.
  using Maker = std::function<StatusOr<int64_t>(const nlohmann::json &descriptor, PreparedCall &)>;

  static StatusOr<PreparedCalls> createAll(const Manifest &manifest, const Maker &make);
  static StatusOr<PreparedCall> prepare(const JsonView &view, const Maker &make);

  ComputeStream *stream = nullptr;
  std::vector<PreparedCall> calls;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_PREPAREDCALLS_H
