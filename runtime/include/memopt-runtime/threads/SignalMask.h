//===- SignalMask.h - threads that leave signals to others ---- -*- C++ -*- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_THREADS_SIGNALMASK_H
#define MEMOPT_RUNTIME_THREADS_SIGNALMASK_H

#include <csignal>
#include <pthread.h>
#include <thread>
#include <utility>

namespace memopt {

/// Starts a thread that no signal to the process is delivered to: those are for the threads of
/// whoever the process belongs to. Faults of the thread's own are no such signals, and reach it.
/// Throws std::system_error where no thread can be started.
template <typename... Call> std::thread startWithoutSignals(Call &&...call) {
  // A thread begins with the mask of the one that starts it.
  struct Mask {
    Mask() {
      sigset_t others;
      ::sigfillset(&others);
      for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
        ::sigdelset(&others, fault);
      ::pthread_sigmask(SIG_SETMASK, &others, &before);
    }
    ~Mask() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  } mask;
  return std::thread(std::forward<Call>(call)...);
}

} // namespace memopt

#endif // MEMOPT_RUNTIME_THREADS_SIGNALMASK_H
