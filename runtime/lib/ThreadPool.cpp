//===- ThreadPool.cpp - the parallel loop of the CPU device ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ThreadPool.h"
#include <algorithm>
#include <mutex>
#include <pthread.h>
#include <vector>

// libgomp by its own interface: clang's -fopenmp would bring libomp, a second pool in the process.
extern "C" {
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_get_max_threads(void);
int omp_in_parallel(void);
void omp_set_num_threads(int threads);
void omp_set_dynamic(int dynamic);
}

// ThreadSanitizer does not see libgomp's futexes; the two orders that a parallel region promises
// are told to it by hand.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
extern "C" {
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}
#define MEMOPT_TSAN_ACQUIRE(address) __tsan_acquire(address)
#define MEMOPT_TSAN_RELEASE(address) __tsan_release(address)
#endif
#endif
#ifndef MEMOPT_TSAN_ACQUIRE
#define MEMOPT_TSAN_ACQUIRE(address) ((void)(address))
#define MEMOPT_TSAN_RELEASE(address) ((void)(address))
#endif

using namespace memopt;

namespace {
struct Loop {
  int64_t count;
  int64_t pieces; ///< at most
  memopt_loop_body body;
  void *closure;
};
} // namespace

static void runPiece(void *data) {
  MEMOPT_TSAN_ACQUIRE(data);
  const Loop &loop = *static_cast<const Loop *>(data);
  // The pool may give fewer threads than asked for; the pieces follow what is there.
  int64_t pieces = std::min<int64_t>(loop.pieces, omp_get_num_threads());
  int64_t piece = omp_get_thread_num();
  int64_t size = loop.count / pieces, larger = loop.count % pieces;
  int64_t begin = piece * size + std::min(piece, larger);
  int64_t end = begin + size + (piece < larger ? 1 : 0);
  if (piece < pieces && begin < end)
    loop.body(loop.closure, begin, end);
  MEMOPT_TSAN_RELEASE(data);
}

void memopt::setThreadCount(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(std::max(1, threads));
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

Status memopt::startThreads(int threads) {
  setThreadCount(threads);
  int others = getThreadCount() - 1, startable = countStartableThreads(others);
  if (startable < others)
    return environmentError("the system lets the run start " + std::to_string(startable + 1) +
                            " of " + std::to_string(others + 1) +
                            " threads (ulimit -u, or the limit of a control group); raise it, or "
                            "set OMP_NUM_THREADS=" +
                            std::to_string(startable + 1));
  parallelFor(getThreadCount(), 1, [](int64_t, int64_t) {});
  return Status::ok();
}

int memopt::getThreadCount() { return omp_get_max_threads(); }

void memopt::parallelFor(int64_t count, int64_t grain, memopt_loop_body body, void *closure) {
  if (count <= 0)
    return;
  int64_t pieces = std::min<int64_t>(count / std::max<int64_t>(1, grain), omp_get_max_threads());
  if (pieces <= 1 || omp_in_parallel())
    return body(closure, 0, count);
  Loop loop{count, pieces, body, closure};
  MEMOPT_TSAN_RELEASE(&loop);
  // Always the whole team, even where some of it has no piece: libgomp ends the threads that a
  // smaller team leaves over, and starts them again for the next larger one.
  GOMP_parallel(runPiece, &loop, /*threads=*/0, /*flags=*/0);
  MEMOPT_TSAN_ACQUIRE(&loop);
}
