//===- KeepAlive.cpp - a rank that is busy by itself ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/KeepAlive.h"
#include <chrono>
#include <csignal>
#include <system_error>

using namespace memopt;

/// Signals are for the threads that expect them.
static void blockSignals() {
  sigset_t all;
  ::sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    ::sigdelset(&all, fault);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

KeepAlive::KeepAlive(Communicator *communicator) {
  if (!communicator)
    return;
  auto say = [this, communicator] {
    blockSignals();
    constexpr std::chrono::milliseconds pause(100);
    std::unique_lock<std::mutex> lock(mutex);
    while (!ending.wait_for(lock, pause, [this] { return isOver; }))
      if (works)
        communicator->keepAlive();
  };
  try {
    thread = std::thread(say);
  } catch (const std::system_error &) {
    // Without a thread the others wait as long as they do for anything.
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
