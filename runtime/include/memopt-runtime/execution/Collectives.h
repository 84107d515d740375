//===- Collectives.h - what a program does with other ranks -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_COLLECTIVES_H
#define MEMOPT_RUNTIME_EXECUTION_COLLECTIVES_H

#include "memopt-runtime/device/HostEvent.h"
#include "memopt-runtime/execution/Arenas.h"
#include "memopt-runtime/ranks/Communicator.h"
#include "memopt-runtime/threads/TaskThread.h"

namespace memopt {

/// The collectives of a program, by their numbers in the manifest. A thread carries those in
/// flight, one after the other in the order of their starts. All others use the communicator only
/// when that thread has nothing left to do: so every rank makes its calls in the program's order,
/// and one thread at a time makes them. Starting and waiting allocate nothing.
class Collectives {
public:
  /// All must outlive it. Without a communicator, which is one rank, there is nothing to run.
  Collectives(const Manifest &manifest, const Arenas &arenas, Communicator *communicator)
      : manifest(manifest), arenas(arenas), communicator(communicator) {}

  /// Starts the thread, which calls `onStart` first, if the program needs one.
  Status prepare(std::function<void()> onStart);

  /// What was started before is done first.
  Status run(int64_t collective, ThreadPool &pool);
  /// A collective that is still in flight is not started again.
  Status start(int64_t collective);
  /// A failure of the collective, or of one that was never started.
  Status wait(int64_t collective);
  /// Returns when nothing is in flight: from then on the caller may use the communicator.
  void land();
  /// The same, whatever became of it: the step was left.
  void abandon();

  /// When the thread was at work for it the last time it was waited for (Clock.h).
  struct Times {
    int64_t begin = 0, end = 0;
  };
  Times getTimes(int64_t collective) const { return flights[size_t(collective)].times; }

private:
  struct Flight {
    HostEvent landed;
    Times times;
    bool isInFlight = false;
  };
  struct Task {
    int64_t collective = 0; ///< -1: the thread begins
    uint64_t number = 0;    ///< of the event's record
  };

  Status checkNumber(int64_t collective) const;
  void carry(const Task &task);
  Status run(const CollectiveSpec &spec, ThreadPool &pool);

  const Manifest &manifest;
  const Arenas &arenas;
  Communicator *communicator;
  std::function<void()> onStart;
  std::vector<Flight> flights;              ///< as in the manifest; empty where nothing flies
  std::unique_ptr<ThreadPool> pool;         ///< of the thread alone
  std::unique_ptr<TaskThread<Task>> thread; ///< last: it uses the others
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_COLLECTIVES_H
