//===- OpenMpTeam.cpp - a library's OpenMP on a session's threads -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/kernels/onednn/OpenMpTeam.h"
#include <dlfcn.h>
#include <sched.h>

using namespace memopt;
using namespace memopt::libraries;

namespace {
/// What OpenMP is on this thread; no scope: what libgomp says.
struct Place {
  OpenMpScope *scope = nullptr;
  int64_t member = 0;
  int depth = 0; ///< regions around this code; inner ones have one member
};
thread_local Place place;
} // namespace

OpenMpScope::OpenMpScope(int members, ThreadPool *pool, bool waitForEachOther)
    : members(members), pool(pool), waitForEachOther(waitForEachOther) {
  place = {this, 0, 0};
}

OpenMpScope::~OpenMpScope() { place = Place(); }

void OpenMpScope::runMember(void *opaque, int64_t member) {
  auto *scope = static_cast<OpenMpScope *>(opaque);
  Place before = place;
  place = {scope, member, 1};
  scope->function(scope->data);
  place = before;
}

/// The caller goes on as member 0.
void OpenMpScope::beginRegion(void (*newFunction)(void *), void *newData, unsigned asked) {
  if (++place.depth > 1)
    return;
  function = newFunction;
  data = newData;
  count = asked ? asked : unsigned(members);
  if (pool && count > 1)
    pool->beginTeam(count, &OpenMpScope::runMember, this, waitForEachOther);
}

void OpenMpScope::endRegion() {
  if (--place.depth > 0)
    return;
  if (pool && count > 1)
    return pool->endTeam();
  for (int64_t member = 1; member < count; ++member)
    runMember(this, member);
}

void OpenMpScope::waitForAll() {
  if (place.depth != 1)
    return;
  uint32_t mine = passed.load();
  if (waiting.fetch_add(1) + 1 == count) {
    waiting.store(0);
    passed.fetch_add(1);
    return;
  }
  // Between two parts of one primitive, of which nobody has little to do.
  for (int i = 0; passed.load(std::memory_order_acquire) == mine; ++i)
    if (i > 1000)
      ::sched_yield();
}

//===----------------------------------------------------------------------===//
// libgomp's functions
//===----------------------------------------------------------------------===//

/// The function of that name behind ours; looked up once.
template <typename Function> static Function *findNext(Function *, const char *name) {
  return reinterpret_cast<Function *>(::dlsym(RTLD_NEXT, name));
}

namespace memopt::libraries {
/// The same for code that runs in a scope.
struct OpenMpCalls {
  static bool isOurs() { return place.scope; }
  static int getMostThreads() {
    if (!place.scope->isAsked.load(std::memory_order_relaxed)) // members share its cache line
      place.scope->isAsked.store(true, std::memory_order_relaxed);
    return place.scope->members;
  }
  static int getThreads() { return place.depth == 1 ? int(place.scope->count) : 1; }
  static int getThread() { return place.depth == 1 ? int(place.member) : 0; }
  static void begin(void (*function)(void *), void *data, unsigned count) {
    place.scope->beginRegion(function, data, count);
  }
  static void end() { place.scope->endRegion(); }
  static void wait() { place.scope->waitForAll(); }
};
} // namespace memopt::libraries
using Calls = OpenMpCalls;

#define MEMOPT_PASS_ON(name, ...)                                                                  \
  do {                                                                                             \
    static auto *const next = findNext(&name, #name);                                              \
    return next(__VA_ARGS__);                                                                      \
  } while (false)

extern "C" {
int omp_get_max_threads() {
  if (Calls::isOurs())
    return Calls::getMostThreads();
  MEMOPT_PASS_ON(omp_get_max_threads);
}

int omp_get_num_threads() {
  if (Calls::isOurs())
    return Calls::getThreads();
  MEMOPT_PASS_ON(omp_get_num_threads);
}

int omp_get_thread_num() {
  if (Calls::isOurs())
    return Calls::getThread();
  MEMOPT_PASS_ON(omp_get_thread_num);
}

int omp_in_parallel() {
  if (Calls::isOurs())
    return place.depth > 0;
  MEMOPT_PASS_ON(omp_in_parallel);
}

void GOMP_parallel_start(void (*function)(void *), void *data, unsigned count) {
  if (Calls::isOurs())
    return Calls::begin(function, data, count);
  MEMOPT_PASS_ON(GOMP_parallel_start, function, data, count);
}

void GOMP_parallel_end() {
  if (Calls::isOurs())
    return Calls::end();
  MEMOPT_PASS_ON(GOMP_parallel_end);
}

void GOMP_parallel(void (*function)(void *), void *data, unsigned count, unsigned flags) {
  if (Calls::isOurs()) {
    Calls::begin(function, data, count);
    function(data);
    return Calls::end();
  }
  MEMOPT_PASS_ON(GOMP_parallel, function, data, count, flags);
}

void GOMP_barrier() {
  if (Calls::isOurs())
    return Calls::wait();
  MEMOPT_PASS_ON(GOMP_barrier);
}
}
