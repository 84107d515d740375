//===- SlotTasks.h - tasks that need memory of their own ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_KERNELS_OWN_SLOTTASKS_H
#define MEMOPT_RUNTIME_KERNELS_OWN_SLOTTASKS_H

#include "memopt-runtime/threads/ThreadPool.h"
#include <atomic>

namespace memopt::libraries {

/// Runs task(number, memory) for numbers [0, count) on at most `slots` threads, each with its part
/// of the workspace. Which thread takes which task is left to chance: tasks share nothing.
template <typename Task>
void runTasks(ThreadPool &pool, int64_t count, int slots, int64_t slotBytes, void *workspace,
              Task &&task) {
  std::atomic<int64_t> next = 0;
  pool.parallelFor(slots, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot)
      for (int64_t number; (number = next.fetch_add(1)) < count;)
        task(number, static_cast<char *>(workspace) + slot * slotBytes);
  });
}

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_KERNELS_OWN_SLOTTASKS_H
