//===- ParallelJobs.h - independent jobs on some threads -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_UTILS_PARALLELJOBS_H
#define MEMOPT_PLANNING_UTILS_PARALLELJOBS_H

#include "llvm/ADT/ArrayRef.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace memopt::planning {

/// Runs every job once, on some threads. Jobs write to places of their own, so that the outcome
/// does not depend on who ran what.
inline void runJobs(llvm::ArrayRef<std::function<void()>> jobs, int32_t threads) {
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t job; (job = next++) < jobs.size();)
      jobs[job]();
  };
  std::vector<std::thread> helpers;
  for (int32_t i = 1; i < std::min<int32_t>(threads, jobs.size()); ++i)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
}

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_UTILS_PARALLELJOBS_H
