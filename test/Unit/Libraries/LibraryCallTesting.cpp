//===- LibraryCallTesting.cpp - running calls on test data ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LibraryCallTesting.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <atomic>
#include <cerrno>

using namespace memopt;
using namespace memopt::librarytest;

//===----------------------------------------------------------------------===//
// The allocator, with a memory of the largest request
//===----------------------------------------------------------------------===//

static std::atomic<size_t> largestAllocation;

static void note(size_t bytes) {
  size_t largest = largestAllocation.load();
  while (bytes > largest && !largestAllocation.compare_exchange_weak(largest, bytes))
    ;
}

int64_t librarytest::takeLargestAllocation() {
  return static_cast<int64_t>(largestAllocation.exchange(0));
}

#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  note(count * bytes);
  return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
  note(bytes);
  return __libc_realloc(old, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **result, size_t alignment, size_t bytes) {
  *result = memalign(alignment, bytes);
  return *result ? 0 : ENOMEM;
}
}
#endif

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

static constexpr int64_t guardBytes = 4096;

static void runOnce(LibraryCall &call, std::vector<Buffer> &buffers, ThreadPool &pool, int poison) {
  Buffer workspace(call.workspaceBytes() + guardBytes);
  std::memset(workspace.data(), poison, call.workspaceBytes() + guardBytes);
  std::vector<void *> addresses;
  for (Buffer &buffer : buffers) {
    buffer.surround(static_cast<char>(poison));
    addresses.push_back(buffer.data());
  }
  addresses.push_back(workspace.data());
  takeLargestAllocation();
  Status status = call.run(addresses.data(), pool);
  int64_t largest = takeLargestAllocation();
  EXPECT_TRUE(status.isOk()) << status.getMessage();
  EXPECT_LT(largest, 4096) << "allocated while running " << call.implementation();
  for (size_t i = 0; i < buffers.size(); ++i)
    EXPECT_TRUE(buffers[i].isSurroundedBy(static_cast<char>(poison)))
        << call.implementation() << " writes beside buffer " << i;
  for (int64_t i = 0; i < guardBytes; ++i)
    if (static_cast<unsigned char>(workspace.data()[call.workspaceBytes() + i]) != poison) {
      ADD_FAILURE() << call.implementation() << " writes " << i << " bytes behind its workspace";
      break;
    }
}

/// As a session does: operands and results may lie over each other.
static void warmUp(LibraryCall &call, std::vector<Buffer> &buffers, ThreadPool &pool) {
  int64_t largest = 0;
  for (Buffer &buffer : buffers)
    largest = std::max(largest, int64_t(buffer.values<char>().size()));
  Buffer shared(largest), workspace(call.workspaceBytes());
  std::vector<void *> addresses(buffers.size(), shared.data());
  addresses.push_back(workspace.data());
  Status status = call.warmUp(addresses.data(), pool);
  EXPECT_TRUE(status.isOk()) << status.getMessage();
}

std::string librarytest::runCall(const nlohmann::json &descriptor, std::vector<Buffer> &buffers,
                                 int createdFor, int running) {
  auto call = LibraryCall::create(descriptor, createdFor);
  if (!call.isOk()) {
    ADD_FAILURE() << call.getMessage();
    return "";
  }
  runCall(**call, buffers, running);
  return (*call)->implementation();
}

void librarytest::runCall(LibraryCall &call, std::vector<Buffer> &buffers, int running) {
  auto pool = ThreadPool::create(running, call.getTeam());
  if (!pool.isOk()) {
    ADD_FAILURE() << pool.getMessage();
    return;
  }
  // Poison: NaN in every type, then zeros.
  warmUp(call, buffers, **pool);
  std::vector<Buffer> first = buffers;
  runOnce(call, first, **pool, 0xFF);
  runOnce(call, buffers, **pool, 0);
  for (size_t i = 0; i < buffers.size(); ++i)
    EXPECT_TRUE(first[i].values<char>() == buffers[i].values<char>())
        << "bits of buffer " << i << " differ between runs of " << call.implementation();
}

void librarytest::runInPlace(const nlohmann::json &descriptor, std::vector<Buffer> &buffers) {
  auto call = LibraryCall::create(descriptor, 2);
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  Buffer workspace((*call)->workspaceBytes());
  std::vector<void *> addresses;
  for (Buffer &buffer : buffers)
    addresses.push_back(buffer.data());
  addresses.push_back(buffers.back().data());
  addresses.push_back(workspace.data());
  auto pool = ThreadPool::create(2, (*call)->getTeam());
  ASSERT_TRUE(pool.isOk() && (*call)->run(addresses.data(), **pool).isOk());
}

std::string librarytest::refusal(const nlohmann::json &descriptor) {
  auto call = LibraryCall::create(descriptor, 2);
  return call.isOk() ? "" : call.getMessage();
}
