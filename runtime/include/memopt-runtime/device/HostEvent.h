//===- HostEvent.h - an event of streams on the host ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_HOSTEVENT_H
#define MEMOPT_RUNTIME_DEVICE_HOSTEVENT_H

#include "memopt-runtime/device/Device.h"
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace memopt {

/// Counts how often it was recorded and how often that place was reached; for streams that are
/// threads. Any thread may call it.
class HostEvent final : public Event {
public:
  Status synchronize() override {
    std::unique_lock<std::mutex> lock(mutex);
    waitUntil(lock, recorded);
    return copyOf(failure);
  }

  uint64_t record() {
    std::lock_guard<std::mutex> lock(mutex);
    return ++recorded;
  }
  uint64_t getRecorded() {
    std::lock_guard<std::mutex> lock(mutex);
    return recorded;
  }
  /// `status`: of the work before that place.
  void reach(uint64_t number, const Status &status = Status::ok()) {
    std::lock_guard<std::mutex> lock(mutex);
    reached = number;
    failure = copyOf(status);
    isReached.notify_all();
  }
  void waitFor(uint64_t number) {
    std::unique_lock<std::mutex> lock(mutex);
    waitUntil(lock, number);
  }

  /// What is told to everybody who asks.
  static Status copyOf(const Status &status) {
    return status.isOk() ? Status::ok() : Status(status.getCode(), status.getMessage());
  }

private:
  void waitUntil(std::unique_lock<std::mutex> &lock, uint64_t number) {
    isReached.wait(lock, [&] { return reached >= number; });
  }

  std::mutex mutex;
  std::condition_variable isReached;
  uint64_t recorded = 0, reached = 0;
  Status failure;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_HOSTEVENT_H
