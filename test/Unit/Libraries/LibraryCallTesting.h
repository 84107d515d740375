//===- LibraryCallTesting.h - running calls on test data ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_UNIT_LIBRARIES_LIBRARYCALLTESTING_H
#define MEMOPT_TEST_UNIT_LIBRARIES_LIBRARYCALLTESTING_H

#include "memopt-runtime/descriptors/ElementTypes.h"
#include "memopt-runtime/descriptors/LibraryCalls.h"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace memopt::librarytest {

/// Bytes at a 64-byte aligned address, with others around them.
class Buffer {
public:
  Buffer() = default;
  explicit Buffer(int64_t bytes) : storage(bytes + 64 + 2 * aroundBytes), size(bytes) {}

  Buffer(const Buffer &other) : Buffer(other.size) {
    std::memcpy(data(), const_cast<Buffer &>(other).data(), size);
  }
  Buffer(Buffer &&) = default;
  Buffer &operator=(Buffer &&) = default;

  template <typename T> static Buffer of(const std::vector<T> &values) {
    Buffer buffer(static_cast<int64_t>(values.size() * sizeof(T)));
    if (!values.empty())
      std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
    return buffer;
  }

  char *data() {
    auto address = reinterpret_cast<uintptr_t>(storage.data());
    return storage.data() + (64 - address % 64) % 64 + aroundBytes;
  }
  /// Sets all bytes in front and behind.
  void surround(char byte) {
    std::memset(data() - aroundBytes, byte, aroundBytes);
    std::memset(data() + size, byte, aroundBytes);
  }
  bool isSurroundedBy(char byte) {
    auto isByte = [byte](char other) { return other == byte; };
    return std::all_of(data() - aroundBytes, data(), isByte) &&
           std::all_of(data() + size, data() + size + aroundBytes, isByte);
  }
  template <typename T> std::vector<T> values() {
    std::vector<T> result(size / sizeof(T));
    std::memcpy(result.data(), data(), result.size() * sizeof(T));
    return result;
  }

private:
  static constexpr int64_t aroundBytes = 4096;
  std::vector<char> storage;
  int64_t size = 0;
};

/// By how much `value` may differ from a result within `tolerance`, for `T` rounds it.
template <typename T> double withRounding(double tolerance, double value) {
  constexpr bool isHalf = libraries::isHalf<T>;
  double last = std::is_same_v<T, libraries::BFloat16> ? 0x1p-8 : 0x1p-11;
  return isHalf ? tolerance + std::abs(value) * last + 0x1p-25 : tolerance;
}

/// Uniform numbers in [-1, 1), the same for the same seed.
template <typename T> std::vector<T> randomValues(int64_t count, uint64_t seed) {
  std::vector<T> values(count);
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (T &value : values) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    value = static_cast<T>(static_cast<double>(state >> 11) / double(1ull << 52) - 1.0);
  }
  return values;
}

/// Runs the call `descriptor`, created for `createdFor` threads, on a pool of `running`, over
/// `buffers` (operands and results), after a warm-up. Fails the test when a buffer or the workspace
/// is overrun, when it matters what was in the workspace before or lies around buffers, or when
/// running allocates 4 KiB or more. Gives the implementation.
std::string runCall(const nlohmann::json &descriptor, std::vector<Buffer> &buffers,
                    int createdFor = 2, int running = 2);
/// The same with a call at hand.
void runCall(LibraryCall &call, std::vector<Buffer> &buffers, int running = 2);

/// Runs the call once over `buffers` (operands), with the result in place of the last of them.
void runInPlace(const nlohmann::json &descriptor, std::vector<Buffer> &buffers);

/// The message with which creation refuses `descriptor`; empty when it does not.
std::string refusal(const nlohmann::json &descriptor);

/// Largest size of an allocation since the last call of this function.
int64_t takeLargestAllocation();

} // namespace memopt::librarytest

#endif // MEMOPT_TEST_UNIT_LIBRARIES_LIBRARYCALLTESTING_H
