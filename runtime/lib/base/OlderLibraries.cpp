//===- OlderLibraries.cpp - functions that older systems lack -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a program is linked against asks for the versions of symbols that the building machine has.
// Where one alone keeps programs from an older system, it is replaced here, by the linker's --wrap.
//
//===----------------------------------------------------------------------===//

#include <condition_variable>
#include <mutex>
#include <pthread.h>

/// std::condition_variable::wait, whose symbol is of GCC 12 (GLIBCXX_3.4.30).
extern "C" void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE( // NOLINT
    std::condition_variable *condition, std::unique_lock<std::mutex> *lock) {
  ::pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle());
}
