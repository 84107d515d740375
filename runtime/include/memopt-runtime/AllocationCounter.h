//===- AllocationCounter.h - what is allocated during steps -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A compiled step allocates nothing, and neither may a library behind its back. An executable that
// replaces the allocator (tools/memopt-run/AllocationHook.cpp) reports every allocation here; while
// counting is on, those of 4 KiB or more by any thread are counted. Libraries may keep books in
// smaller ones.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_ALLOCATIONCOUNTER_H
#define MEMOPT_RUNTIME_ALLOCATIONCOUNTER_H

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace memopt {

struct AllocationCounter {
  static constexpr size_t threshold = 4096; ///< bytes

  static std::atomic<bool> isCounting;
  static std::atomic<int64_t> count;
  static std::atomic<int64_t> bytes;

  /// Called by the hook, on any thread, before an allocation of `size` bytes. Allocates nothing.
  static void note(size_t size) {
    if (size < threshold || !isCounting.load(std::memory_order_relaxed))
      return;
    count.fetch_add(1, std::memory_order_relaxed);
    bytes.fetch_add(int64_t(size), std::memory_order_relaxed);
  }
};

/// Counts while it lives.
class CountAllocations {
public:
  CountAllocations() { AllocationCounter::isCounting = true; }
  ~CountAllocations() { AllocationCounter::isCounting = false; }
  CountAllocations(const CountAllocations &) = delete;
  CountAllocations &operator=(const CountAllocations &) = delete;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_ALLOCATIONCOUNTER_H
