//===- AllocationHook.cpp - the allocator, watched ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An executable's own malloc takes the place of the C library's for everything in the process,
// libraries included. These pass each request on and report its size to the counter. New threads'
// stacks and the C library's own growth of the heap do not come by here; both happen for a reason
// that does.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/memory/AllocationCounter.h"
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMOPT_SANITIZED // the sanitizer's allocator is the one that must stand there
#endif
#endif

#ifndef MEMOPT_SANITIZED
using memopt::AllocationCounter;

extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

void *malloc(size_t size) {
  AllocationCounter::note(size);
  return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
  size_t bytes;
  if (!__builtin_mul_overflow(count, size, &bytes))
    AllocationCounter::note(bytes);
  return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
  AllocationCounter::note(size);
  return __libc_realloc(block, size);
}

void free(void *block) { __libc_free(block); }

void *memalign(size_t alignment, size_t size) {
  AllocationCounter::note(size);
  return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
  if (alignment % sizeof(void *) || (alignment & (alignment - 1)) || alignment == 0)
    return EINVAL;
  void *result = memalign(alignment, size);
  if (!result)
    return ENOMEM;
  *block = result;
  return 0;
}

void *valloc(size_t size) { return memalign(size_t(::sysconf(_SC_PAGESIZE)), size); }

void *mmap(void *address, size_t length, int protection, int flags, int descriptor,
           off_t offset) noexcept {
  AllocationCounter::note(length);
  return reinterpret_cast<void *>(
      ::syscall(SYS_mmap, address, length, protection, flags, descriptor, offset));
}

void *mmap64(void *address, size_t length, int protection, int flags, int descriptor,
             off64_t offset) noexcept {
  return mmap(address, length, protection, flags, descriptor, offset);
}

void *mremap(void *address, size_t oldLength, size_t length, int flags, ...) noexcept {
  AllocationCounter::note(length);
  va_list arguments;
  va_start(arguments, flags);
  void *target = flags & MREMAP_FIXED ? va_arg(arguments, void *) : nullptr;
  va_end(arguments);
  return reinterpret_cast<void *>(::syscall(SYS_mremap, address, oldLength, length, flags, target));
}
}
#endif
