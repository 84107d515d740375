//===- AllocationCounter.h - what is allocated during steps -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A compiled step allocates nothing, and neither may a library behind its back. An executable that
// replaces the allocator (tools/memopt-run/AllocationHook.cpp) reports every allocation here. While
// a session counts, those of 4 KiB or more by its threads are its own; those of threads that belong
// to no session, such as a library's, count for every session that counts meanwhile. Libraries may
// keep books in smaller ones.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_MEMORY_ALLOCATIONCOUNTER_H
#define MEMOPT_RUNTIME_MEMORY_ALLOCATIONCOUNTER_H

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace memopt {

/// Of one session.
struct AllocationCounter {
  static constexpr size_t threshold = 4096; ///< bytes

  std::atomic<int64_t> count{0}, bytes{0};
  std::atomic<bool> isCounting{false};

  /// The counter of the session that this thread works for, or null.
  static thread_local AllocationCounter *ofThread;

  /// Called by the hook, on any thread, before an allocation of `size` bytes. Allocates nothing.
  static void note(size_t size) {
    if (size < threshold)
      return;
    if (!ofThread)
      strays.add(size);
    else if (ofThread->isCounting.load(std::memory_order_relaxed))
      ofThread->add(size);
  }

private:
  friend class CountAllocations;
  static AllocationCounter strays; ///< by threads of no session

  void add(size_t size) {
    count.fetch_add(1, std::memory_order_relaxed);
    bytes.fetch_add(int64_t(size), std::memory_order_relaxed);
  }
};

/// Counts while it lives; the thread that makes it belongs to the session meanwhile.
class CountAllocations {
public:
  explicit CountAllocations(AllocationCounter &counter)
      : counter(counter), before(AllocationCounter::ofThread),
        strayCount(AllocationCounter::strays.count), strayBytes(AllocationCounter::strays.bytes) {
    AllocationCounter::ofThread = &counter;
    counter.isCounting = true;
  }
  ~CountAllocations() {
    counter.isCounting = false;
    AllocationCounter::ofThread = before;
    counter.count += AllocationCounter::strays.count - strayCount;
    counter.bytes += AllocationCounter::strays.bytes - strayBytes;
  }
  CountAllocations(const CountAllocations &) = delete;
  CountAllocations &operator=(const CountAllocations &) = delete;

private:
  AllocationCounter &counter;
  AllocationCounter *before;
  int64_t strayCount, strayBytes;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_MEMORY_ALLOCATIONCOUNTER_H
