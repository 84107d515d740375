//===- Philox.h - counter-based random bits -----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC 2011. The words of random op `id` in step `step` under `seed` are numbered: word n is word
// n mod 4 of
//
//   counter (low 32 bits of n / 4, high 32 bits of n / 4, step, id), key (low, high 32 bits of
//   seed)
//
// so that any can be made again at any time, by any thread, and four neighbours for the price of
// one. An element that needs k words takes those from k times its number on. Functions here are
// `static`: objects compiled for different instruction sets each need their own.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_NUMBERS_PHILOX_H
#define MEMOPT_RUNTIME_NUMBERS_PHILOX_H

#include <cstdint>

namespace memopt {

struct PhiloxWords {
  uint32_t word[4];
};

[[maybe_unused]] static constexpr PhiloxWords philox4x32(PhiloxWords counter, uint32_t key0,
                                                         uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t(0xD2511F53u) * counter.word[0];
    uint64_t product1 = uint64_t(0xCD9E8D57u) * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// Word number `number`, as described above.
[[maybe_unused]] static constexpr uint32_t philoxWord(int64_t number, int64_t step, int64_t id,
                                                      int64_t seed) {
  auto low = [](int64_t value) { return static_cast<uint32_t>(value); };
  auto high = [](int64_t value) {
    return static_cast<uint32_t>(static_cast<uint64_t>(value) >> 32);
  };
  int64_t counter = static_cast<int64_t>(static_cast<uint64_t>(number) >> 2);
  return philox4x32({{low(counter), high(counter), low(step), low(id)}}, low(seed), high(seed))
      .word[number & 3];
}

/// Dropout keeps an element when its word is at least this: probability * 2^32, rounded up.
[[maybe_unused]] static inline uint64_t dropoutThreshold(double probability) {
  return static_cast<uint64_t>(__builtin_ceil(probability * 4294967296.0));
}

} // namespace memopt

#endif // MEMOPT_RUNTIME_NUMBERS_PHILOX_H
