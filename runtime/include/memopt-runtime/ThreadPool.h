//===- ThreadPool.h - the parallel loop of the CPU device ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The threads are libgomp's, the ones that oneDNN's primitives run on, so a process has one pool
// and no core runs two. A loop is cut into contiguous pieces, one for each thread; bodies whose
// work on an iteration does not depend on the piece give the same bits on any number of threads.
// Sums across iterations belong in chunks whose count follows from shapes, never from the number of
// threads.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_THREADPOOL_H
#define MEMOPT_RUNTIME_THREADPOOL_H

#include "memopt-runtime/ProgramInterface.h"
#include "memopt-runtime/Status.h"
#include <cstdint>
#include <type_traits>

namespace memopt {

/// The number of threads that parallel loops, and OpenMP regions of libraries, use from now on
/// (at least 1). Called before a package's library calls are created, never during a step.
void setThreadCount(int threads);

/// Sets the number and starts the threads, so that they and their stacks do not come during a step.
/// An Environment error when the system does not let so many start.
Status startThreads(int threads);

/// How many of `wanted` threads the system lets this process start beside those that it has. The
/// pool itself ends the process when it gets none.
int countStartableThreads(int wanted);

int getThreadCount();

/// Runs body(closure, begin, end) on disjoint pieces that cover [0, count), each of at least
/// `grain` iterations except when count itself is smaller; returns when all are done. Inside a
/// parallel region it runs the whole loop on the calling thread. A body must not throw.
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

} // namespace memopt

#endif // MEMOPT_RUNTIME_THREADPOOL_H
