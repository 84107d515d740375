//===- KeepAlive.cpp - a rank that is busy by itself ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/KeepAlive.h"
#include "memopt-runtime/threads/SignalMask.h"
#include <chrono>
#include <system_error>

using namespace memopt;

KeepAlive::KeepAlive(Communicator *communicator) {
  if (!communicator)
    return;
  auto say = [this, communicator] {
    constexpr std::chrono::milliseconds pause(100);
    std::unique_lock<std::mutex> lock(mutex);
    while (!ending.wait_for(lock, pause, [this] { return isOver; }))
      if (works)
        communicator->keepAlive();
  };
  try {
    thread = startWithoutSignals(say);
  } catch (const std::system_error &) {
    isOver = true; // without a thread the others wait as long as they do for anything
  }
}

KeepAlive::~KeepAlive() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isOver = true;
  }
  ending.notify_all();
  if (thread.joinable())
    thread.join();
}
