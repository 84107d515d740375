//===- KeepAlive.h - a rank that is busy by itself --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How long ranks wait for one another, and how one that writes a large file to a slow server makes
// them wait longer.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_KEEPALIVE_H
#define MEMOPT_RUNTIME_RANKS_KEEPALIVE_H

#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/ranks/Communicator.h"
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace memopt {

/// Lets the other ranks hear now and then that this one is at work. A thread says so, for a call
/// that flushes a file may take minutes.
class KeepAlive {
public:
  /// As long as it lives, the rank is at work by itself. Many may live at once.
  class Work {
  public:
    explicit Work(KeepAlive &owner) : owner(owner) { ++owner.works; }
    ~Work() { --owner.works; }
    Work(const Work &) = delete;
    Work &operator=(const Work &) = delete;

  private:
    KeepAlive &owner;
  };

  /// `communicator` may be null.
  explicit KeepAlive(Communicator *communicator);
  ~KeepAlive();
  KeepAlive(const KeepAlive &) = delete;
  KeepAlive &operator=(const KeepAlive &) = delete;

private:
  std::atomic<int> works{0};
  std::mutex mutex;
  std::condition_variable ending;
  bool isOver = false;
  std::thread thread;
};

/// A wait with a limit. It begins anew whenever a rank that is at work says so.
class Patience {
public:
  explicit Patience(double seconds) : seconds(seconds) {}

  /// To be asked many times a second. `signs` is Communicator::countSigns.
  bool isOver(uint32_t signs) {
    if (signs != lastSigns)
      waiting = Waiting();
    lastSigns = signs;
    waited = waiting.getSeconds();
    return waited > seconds;
  }
  double getWaited() const { return waited; }

private:
  double seconds, waited = 0;
  Waiting waiting;
  uint32_t lastSigns = 0;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_KEEPALIVE_H
