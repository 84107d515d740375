//===- Allocation.cpp - memory of the emulator itself ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The books of the emulator are no allocations of the program that runs on it: they go to the C
// library past whoever counts those in the process (memopt-run --check-memory).
//
//===----------------------------------------------------------------------===//

#include <cstdlib>
#include <new>

extern "C" void *__libc_malloc(size_t size);
extern "C" void __libc_free(void *block);

void *operator new(size_t size) {
  void *block = __libc_malloc(size ? size : 1);
  if (!block)
    std::abort();
  return block;
}
void operator delete(void *block) noexcept { __libc_free(block); }
void operator delete(void *block, size_t) noexcept { __libc_free(block); }
