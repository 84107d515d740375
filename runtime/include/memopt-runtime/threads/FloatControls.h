//===- FloatControls.h - how a thread computes with floats ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_THREADS_FLOATCONTROLS_H
#define MEMOPT_RUNTIME_THREADS_FLOATCONTROLS_H

#include <cstdint>

namespace memopt {

/// The processor's settings for floats of one thread: rounding, traps, and whether denormal numbers
/// count as zero. A new thread has those of the thread that starts it.
class FloatControls {
public:
#if defined(__x86_64__)
  static FloatControls get() { return FloatControls(__builtin_ia32_stmxcsr() & ~exceptionFlags); }
  void set() const { __builtin_ia32_ldmxcsr(static_cast<uint32_t>(bits)); }
#elif defined(__aarch64__)
  static FloatControls get() {
    uint64_t bits;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return FloatControls(bits);
  }
  void set() const { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#else
#error "say how this processor flushes denormal numbers"
#endif

  /// The same, but for denormal numbers: as operands and as results they count as zero.
  FloatControls withoutDenormals() const { return FloatControls(bits | flushing); }

  bool operator!=(const FloatControls &other) const { return bits != other.bits; }

private:
  explicit FloatControls(uint64_t bits) : bits(bits) {}

#if defined(__x86_64__)
  static constexpr uint32_t exceptionFlags = 0x3f;      // of what has happened, no setting
  static constexpr uint64_t flushing = 0x8000 | 0x0040; // results, operands
#else
  static constexpr uint64_t flushing = uint64_t(1) << 24; // both
#endif
  uint64_t bits;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_THREADS_FLOATCONTROLS_H
