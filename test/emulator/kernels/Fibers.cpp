//===- Fibers.cpp - the threads of a block --------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/kernels/Fibers.h"
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

using namespace memopt::emulator;

static constexpr size_t stackBytes = size_t(256) << 10, guardBytes = 4096;

/// Saves the registers that a call keeps on the stack, stores its pointer in *from, and goes on
/// with the stack `to`.
extern "C" void memopt_emulate_switch(void **from, void *to);
#if defined(__x86_64__)
asm(R"(
  .hidden memopt_emulate_switch
  .globl memopt_emulate_switch
memopt_emulate_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
static constexpr int savedRegisters = 6;
#else
#error "the emulator switches stacks on x86-64 only"
#endif

Fibers::~Fibers() {
  if (stacks)
    ::munmap(stacks, bytes);
}

void Fibers::start(int count, void (*body)()) {
  if (bytes < size_t(count) * stackBytes) {
    if (stacks)
      ::munmap(stacks, bytes);
    bytes = size_t(count) * stackBytes;
    void *room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
      std::fputs("emulator: error: there is no memory for the threads' stacks\n", stderr);
      std::abort();
    }
    stacks = static_cast<char *>(room);
    for (int fiber = 0; fiber < count; ++fiber)
      ::mprotect(stacks + size_t(fiber) * stackBytes, guardBytes, PROT_NONE);
  }
  tops.resize(size_t(count));
  for (int fiber = 0; fiber < count; ++fiber) {
    // At the begin of a function the stack is 8 bytes off a multiple of 16.
    auto **top = reinterpret_cast<void **>(stacks + size_t(fiber + 1) * stackBytes - 64);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(body);
    for (int i = 0; i < savedRegisters; ++i)
      *--top = nullptr;
    tops[size_t(fiber)] = top;
  }
}

void Fibers::resume(int fiber) {
  current = fiber;
  memopt_emulate_switch(&resumer, tops[size_t(fiber)]);
}

void Fibers::yield() { memopt_emulate_switch(&tops[size_t(current)], resumer); }
