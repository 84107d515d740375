//===- ThreadShadow.h - which threads touched which byte --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two threads of a kernel may touch a byte, one of them writing, when a barrier of their block, or
// of their warp, lies between. Nothing orders threads of different blocks.
//
// A copy that goes on behind its instruction has written its bytes at no time yet, so that nothing
// is in order with it, its own thread neither, until that thread has waited.
//
// Time is a count that goes on at every barrier. An access is known by its thread and time; blocks
// run one after another, so the time says the block as well.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_THREADSHADOW_H
#define MEMOPT_EMULATOR_THREADSHADOW_H

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace memopt::emulator {

class ThreadShadow {
public:
  void beginKernel() {
    pages.clear();
    lastPage = nullptr;
  }
  void beginBlock(int threads) {
    blockBegin = blockBarrier = ++now;
    warpBarriers.assign(size_t(threads + 31) / 32, now);
  }
  void passBlockBarrier() { blockBarrier = ++now; }
  void passWarpBarrier(int warp) { warpBarriers[size_t(warp)] = ++now; }

  struct Conflict {
    bool isThere = false, isSecondWrite = false, isFirstWrite = false, isOtherBlock = false;
    uintptr_t at = 0;
    uint32_t thread = 0; ///< in its block
  };
  /// Takes note of an access by a thread of the block that runs; the first byte where it meets
  /// another's without order. Shared memory is new to each block.
  Conflict touch(uint32_t thread, uintptr_t address, size_t bytes, bool isWrite, bool isShared) {
    uint32_t oldest = isShared ? blockBegin : 1;
    Conflict conflict;
    for (size_t i = 0; i < bytes; ++i) {
      Byte &byte = get(address + i);
      bool hitsWriter = isUnordered(byte.writer, thread, oldest),
           hitsReader = isWrite && isUnordered(byte.reader, thread, oldest);
      if (!conflict.isThere && (hitsWriter || hitsReader)) {
        const Touch &other = hitsWriter ? byte.writer : byte.reader;
        conflict = {true, isWrite, hitsWriter, other.time < blockBegin, address + i, other.thread};
      }
      if (isWrite)
        byte.writer = {thread, now};
      else
        byte.reader = {isUnordered(byte.reader, thread, oldest) ? joinReaders(byte.reader, thread)
                                                                : thread,
                       now};
    }
    return conflict;
  }

  /// A copy of the thread begins to write, or is done; touch() says whether it may.
  void beginCopy(uint32_t thread, uintptr_t address, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      get(address + i).writer = {thread, never};
  }
  void endCopy(uint32_t thread, uintptr_t address, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      get(address + i).writer = {thread, now};
  }

private:
  struct Touch {
    uint32_t thread, time; ///< time 0: never
  };
  struct Byte {
    Touch writer, reader;
  };
  static constexpr size_t pageBytes = 1024;
  static constexpr uint32_t several = uint32_t(1) << 31, never = ~uint32_t(0);
  using Page = std::array<Byte, pageBytes>;

  /// Several readers that nothing orders: no thread of its own, but of a warp if they are of one.
  static uint32_t joinReaders(const Touch &before, uint32_t thread) {
    return getWarp(before.thread) == getWarp(thread) ? several | (thread / 32 * 32) : ~0u;
  }
  static uint32_t getWarp(uint32_t thread) { return (thread & ~several) / 32; }

  bool isUnordered(const Touch &other, uint32_t thread, uint32_t oldest) const {
    if (other.time == never)
      return true; // the thread's own, too
    if (other.time < oldest)
      return false;
    if (other.time < blockBegin)
      return true; // of another block
    bool isSameWarp = getWarp(other.thread) == getWarp(thread);
    return other.thread != thread && other.time >= blockBarrier &&
           !(isSameWarp && other.time < warpBarriers[thread / 32]);
  }

  Byte &get(uintptr_t address) {
    uintptr_t number = address / pageBytes;
    if (!lastPage || number != lastNumber) {
      auto &page = pages[number];
      if (!page)
        page = std::make_unique<Page>(Page{});
      lastPage = page.get();
      lastNumber = number;
    }
    return (*lastPage)[address % pageBytes];
  }

  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
  Page *lastPage = nullptr;
  uintptr_t lastNumber = 0;
  uint32_t now = 0, blockBegin = 0, blockBarrier = 0;
  std::vector<uint32_t> warpBarriers;
};

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_THREADSHADOW_H
