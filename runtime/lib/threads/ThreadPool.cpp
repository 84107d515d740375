//===- ThreadPool.cpp - the threads of a session --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/threads/ThreadPool.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/ControlGroups.h"
#include "memopt-runtime/threads/SignalMask.h"
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <linux/futex.h>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>
#include <utility>

using namespace memopt;

//===----------------------------------------------------------------------===//
// How many
//===----------------------------------------------------------------------===//

/// The first number in a variable of the environment; `otherwise` when there is none above 0.
static int readCount(const char *variable, int otherwise) {
  const char *text = std::getenv(variable);
  long count = text ? std::strtol(text, nullptr, 10) : 0;
  return count > 0 ? int(std::min<long>(count, INT_MAX)) : otherwise;
}

/// This process's share of processors, or of their time.
static int countShare(Sharers sharers) {
  cpu_set_t processors;
  int allowed = ::sched_getaffinity(0, sizeof processors, &processors) == 0
                    ? CPU_COUNT(&processors)
                    : int(std::thread::hardware_concurrency()); // more than a cpu_set_t holds
  return std::max(1,
                  std::min(allowed / sharers.ofProcessors, getProcessorQuota() / sharers.ofQuota));
}

int memopt::countProcessors() { return countShare({}); }

int memopt::getAllowedThreads(Sharers sharers) {
  int allowed = countShare(sharers);
  allowed = std::min(allowed, readCount("OMP_NUM_THREADS", INT_MAX));
  allowed = std::min(allowed, readCount("OMP_THREAD_LIMIT", INT_MAX));
  return allowed;
}

std::optional<int> memopt::getThreadsOfOpenMp(Sharers sharers) {
  int wanted = readCount("OMP_NUM_THREADS", INT_MAX);
  bool isTightest = wanted < countShare(sharers) && wanted < readCount("OMP_THREAD_LIMIT", INT_MAX);
  return isTightest ? std::optional<int>(wanted) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

static void sleepWhile(const std::atomic<uint32_t> &word, uint32_t value) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

static void wakeSleepers(const std::atomic<uint32_t> &word, int64_t most) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, int(std::min<int64_t>(most, INT_MAX)), nullptr,
            nullptr, 0);
}

static void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// A gap of more than this between two looks at the clock means that the processor was taken away.
static constexpr int64_t takenAway = 100'000; // nanoseconds

namespace {
/// Looks for something for as long as it pays: about as long as falling asleep and waking up take.
/// Where the system takes the processor away meanwhile others need it, and patience gets short.
class Patience {
public:
  /// True once `isThere()`; false when it is time to sleep.
  template <typename Condition> bool waitFor(Condition isThere) {
    if (isThere())
      return true;
    int64_t begin = getTime();
    for (int64_t now = begin, last; now - begin < length;) {
      for (int i = 0; i < 32; ++i) {
        relax();
        if (isThere())
          return true;
      }
      last = std::exchange(now, getTime());
      if (now - last > takenAway)
        length /= 4;
    }
    length = std::min(most, length + most / 64);
    return isThere();
  }

private:
  static constexpr int64_t most = 50'000; // nanoseconds
  int64_t length = most;
};

/// What a thread has of its processor. A thread that has none of the work in hand is missed by
/// nobody; so it offers the processor to others then, before the system takes it in the middle of
/// a part that all wait for. On a processor of its own it gets it back at once and asks seldom.
class Turn {
public:
  void begin() { since = getTime(); }
  void offer() {
    int64_t now = getTime();
    if (now - since < length)
      return;
    ::sched_yield();
    begin();
    length = since - now > takenAway ? 0 : std::min(most, length + most / 64);
  }

private:
  static constexpr int64_t most = 500'000; // nanoseconds
  int64_t length = most, since = getTime();
};
} // namespace

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

static constexpr uint32_t openBit = 1u << 31;

/// Inside work of a pool, where loops run on the thread that meets them.
static thread_local bool isInside = false;

StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads, int team,
                                                         std::function<void()> onStart) {
  team = std::max(threads, team);
  std::unique_ptr<ThreadPool> pool(new ThreadPool(threads, team));
  try {
    for (int self = 1; self < team; ++self)
      pool->workers.push_back(startWithoutSignals([pool = pool.get(), self, onStart] {
        if (onStart)
          onStart();
        pool->ready.fetch_add(1);
        wakeSleepers(pool->ready, 1);
        pool->work(self);
      }));
  } catch (const std::system_error &error) {
    return environmentError("the system lets the run start " +
                            std::to_string(pool->workers.size() + 1) + " of " +
                            std::to_string(team) + " threads (" + error.what() +
                            "); raise the limit (ulimit -u, or that of a control group)");
  }
  // What threads do at their start, such as taking memory, is done before any step.
  for (uint32_t ready; (ready = pool->ready.load()) < pool->workers.size();)
    sleepWhile(pool->ready, ready);
  return pool;
}

int memopt::countStartableThreads(int wanted) {
  std::mutex hold;
  hold.lock();
  std::vector<pthread_t> started;
  for (pthread_t thread; int(started.size()) < wanted; started.push_back(thread)) {
    // All of them live at once: that is what is limited.
    auto wait = [](void *mutex) -> void * {
      std::lock_guard<std::mutex> guard(*static_cast<std::mutex *>(mutex));
      return nullptr;
    };
    if (::pthread_create(&thread, nullptr, wait, &hold) != 0)
      break;
  }
  hold.unlock();
  for (pthread_t thread : started)
    ::pthread_join(thread, nullptr);
  return int(started.size());
}

ThreadPool::~ThreadPool() {
  isEnding = true;
  wake(loopSignal, INT_MAX);
  wake(teamSignal, INT_MAX);
  for (std::thread &worker : workers)
    worker.join();
}

void ThreadPool::wake(Signal &signal, int64_t most) {
  signal.count.fetch_add(1);
  if (signal.sleepers.load() > 0)
    wakeSleepers(signal.count, most);
}

void ThreadPool::work(int self) {
  isInside = true;
  Signal &signal = self < threads ? loopSignal : teamSignal;
  Patience patience;
  Turn turn;
  for (uint32_t seen = 0;;) {
    auto isWork = [&] { return signal.count.load(std::memory_order_acquire) != seen; };
    if (self >= threads || !patience.waitFor(isWork)) {
      signal.sleepers.fetch_add(1);
      while (signal.count.load() == seen)
        sleepWhile(signal.count, seen);
      signal.sleepers.fetch_sub(1);
      turn.begin();
    }
    seen = signal.count.load();
    if (isEnding)
      return;
    if (!tryJoin())
      continue; // it was done before we came
    if (controls != FloatControls::get())
      controls.set();
    takeParts(self);
    leave();
    turn.offer();
  }
}

bool ThreadPool::tryJoin() {
  uint32_t state = gate.load();
  while (state & openBit)
    if (gate.compare_exchange_weak(state, state + 1))
      return true;
  return false;
}

void ThreadPool::leave() {
  if (gate.fetch_sub(1) == 1 && isCallerAsleep.load())
    wakeSleepers(gate, 1);
}

//===----------------------------------------------------------------------===//
// Work
//===----------------------------------------------------------------------===//

void ThreadPool::begin(int64_t parts, int newWidth, Part newRun, void *newData,
                       bool isCallerFirst) {
  run = newRun;
  data = newData;
  width = newWidth;
  controls = FloatControls::get();
  for (int i = 0; i < width; ++i) {
    shares[size_t(i)].next.store(i * parts / width, std::memory_order_relaxed);
    shares[size_t(i)].end = (i + 1) * parts / width;
  }
  if (isCallerFirst)
    shares[0].next.store(1, std::memory_order_relaxed);
  gate.store(openBit);
  wake(loopSignal, parts - 1);
  if (width > threads)
    wake(teamSignal, INT_MAX);
}

void ThreadPool::takeParts(int self) {
  for (int i = 0; i < width; ++i) {
    Share &share = shares[size_t((self + i) % width)];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      int64_t part = share.next.fetch_add(1, std::memory_order_relaxed);
      if (part >= share.end)
        break;
      run(data, part);
    }
  }
}

/// Nobody joins from now on; those who have joined are waited for.
void ThreadPool::finish() {
  Patience patience;
  uint32_t state = gate.fetch_and(~openBit) & ~openBit;
  if (state == 0 || patience.waitFor([&] { return gate.load(std::memory_order_acquire) == 0; }))
    return;
  isCallerAsleep.store(true);
  while ((state = gate.load()) != 0)
    sleepWhile(gate, state);
  isCallerAsleep.store(false);
}

namespace {
struct Loop {
  int64_t count, pieces;
  memopt_loop_body body;
  void *closure;

  static void runPiece(void *data, int64_t piece) {
    const Loop &loop = *static_cast<const Loop *>(data);
    int64_t size = loop.count / loop.pieces, larger = loop.count % loop.pieces;
    int64_t begin = piece * size + std::min(piece, larger);
    loop.body(loop.closure, begin, begin + size + (piece < larger ? 1 : 0));
  }
};
} // namespace

void ThreadPool::parallelFor(int64_t count, int64_t grain, memopt_loop_body body, void *closure) {
  // More pieces than threads, so that whoever comes late finds some left.
  constexpr int64_t piecesPerThread = 4;
  if (count <= 0)
    return;
  int64_t pieces = std::min(count / std::max<int64_t>(1, grain), threads * piecesPerThread);
  if (pieces <= 1 || threads == 1 || isInside)
    return body(closure, 0, count);
  Loop loop{count, pieces, body, closure};
  begin(pieces, int(std::min<int64_t>(threads, pieces)), &Loop::runPiece, &loop,
        /*isCallerFirst=*/false);
  isInside = true;
  takeParts(0);
  isInside = false;
  finish();
}

void ThreadPool::beginTeam(int64_t count, Part run, void *data, bool waitForEachOther) {
  auto most = int64_t(waitForEachOther ? shares.size() : size_t(threads));
  begin(count, int(std::min(count, most)), run, data, /*isCallerFirst=*/true);
  isInside = true;
}

void ThreadPool::endTeam() {
  takeParts(0);
  isInside = false;
  finish();
}
