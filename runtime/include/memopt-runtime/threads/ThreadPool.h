//===- ThreadPool.h - the threads of a session --------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Work is cut into parts, and parts are taken as threads come free: each thread begins with its own
// share, the same one in every loop, and goes on with what others have not begun. A thread that the
// system keeps from running holds nothing up but the part that it is in the middle of, and one that
// is asleep holds up nothing at all.
//
// What a part computes does not depend on who runs it, or when. So bits never depend on the number
// of threads. Sums across iterations belong in chunks whose count follows from shapes.
//
// A thread that finds no work looks for it for a short while, and then sleeps; on a machine that is
// busy with something else it sleeps at once, for looking would only take time away from the
// others.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_THREADS_THREADPOOL_H
#define MEMOPT_RUNTIME_THREADS_THREADPOOL_H

#include "memopt-runtime/base/Status.h"
#include "memopt-runtime/interface/ProgramInterface.h"
#include "memopt-runtime/threads/FloatControls.h"
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

namespace memopt {

/// Processors that this process may run on, or whose time its control groups (a container's quota)
/// let it have, where those are fewer. At least 1.
int countProcessors();

/// Processes, this one among them, that may run on the same processors, and those of the same
/// control groups.
struct Sharers {
  int ofProcessors = 1, ofQuota = 1;
};

/// Threads that a process may use: OMP_NUM_THREADS and OMP_THREAD_LIMIT, and those processors,
/// dealt out to all that share them. At least 1.
int getAllowedThreads(Sharers sharers = {});
/// The value of OMP_NUM_THREADS where that alone lets the process use fewer; else nothing.
std::optional<int> getThreadsOfOpenMp(Sharers sharers = {});

/// How many of `wanted` threads the system lets this process start beside those that it has.
int countStartableThreads(int wanted);

/// One thread at a time gives it work: the caller, which takes part.
class ThreadPool {
public:
  /// Starts all threads, each of which calls `onStart` first. Loops run on `threads`, the caller's
  /// included. Teams whose members wait for each other may have `team` members.
  static StatusOr<std::unique_ptr<ThreadPool>> create(int threads, int team,
                                                      std::function<void()> onStart = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  int getThreadCount() const { return threads; }

  /// Runs body(closure, begin, end) on disjoint pieces that cover [0, count), each of at least
  /// `grain` iterations except when count itself is smaller; returns when all are done. Inside a
  /// loop or a team it runs the whole loop on the calling thread. A body must not throw. All threads
  /// compute with the caller's FloatControls.
  void parallelFor(int64_t count, int64_t grain, memopt_loop_body body, void *closure);

  /// The same for a callable body(begin, end).
  template <typename Body, typename = std::enable_if_t<!std::is_pointer_v<std::decay_t<Body>>>>
  void parallelFor(int64_t count, int64_t grain, Body &&body) {
    using Callable = std::remove_reference_t<Body>;
    parallelFor(
        count, grain,
        [](void *closure, int64_t begin, int64_t end) {
          (*static_cast<Callable *>(closure))(begin, end);
        },
        const_cast<void *>(static_cast<const void *>(&body)));
  }

  using Part = void (*)(void *data, int64_t part);

  /// Begins run(data, member) for members 1 to count - 1; member 0 is the caller, which goes on and
  /// ends with endTeam(). Members that `waitForEachOther` all run at the same time, on threads of
  /// their own: at most `team` of create(). Not inside a loop or another team.
  void beginTeam(int64_t count, Part run, void *data, bool waitForEachOther);
  /// Runs what no thread has taken, and returns when all members are done.
  void endTeam();

private:
  /// Parts that one thread takes first.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  /// Counts up when there is work. Threads that only teams need have one of their own.
  struct alignas(64) Signal {
    std::atomic<uint32_t> count{0};
    std::atomic<int32_t> sleepers{0};
  };

  ThreadPool(int threads, int team) : threads(threads), shares(size_t(team)) {}
  void begin(int64_t parts, int width, Part run, void *data, bool isCallerFirst);
  void finish();
  void takeParts(int self);
  void work(int self);
  bool tryJoin();
  void leave();
  void wake(Signal &signal, int64_t most);

  const int threads;

  // The work at hand; written before `gate` opens.
  Part run = nullptr;
  void *data = nullptr;
  int width = 0; ///< threads that it is dealt to
  FloatControls controls = FloatControls::get();
  std::vector<Share> shares;

  /// Whether there is work that may be joined, and how many have joined and not left.
  alignas(64) std::atomic<uint32_t> gate{0};
  std::atomic<bool> isCallerAsleep{false};
  Signal loopSignal, teamSignal;
  std::atomic<bool> isEnding{false};
  std::atomic<uint32_t> ready{0};   ///< threads that have begun
  std::vector<std::thread> workers; ///< numbers 1 and up
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_THREADS_THREADPOOL_H
