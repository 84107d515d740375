//===- Random.cpp - counter-based random numbers --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/numbers/Random.h"
#include <cmath>

using namespace memopt;

std::array<uint32_t, 4> memopt::philox(uint64_t key, uint64_t counterLow, uint64_t counterHigh) {
  std::array<uint32_t, 4> c = {uint32_t(counterLow), uint32_t(counterLow >> 32),
                               uint32_t(counterHigh), uint32_t(counterHigh >> 32)};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t(0xD2511F53) * c[0], b = uint64_t(0xCD9E8D57) * c[2];
    c = {uint32_t(b >> 32) ^ c[1] ^ k0, uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ k1, uint32_t(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

uint64_t memopt::drawBelow(uint64_t bound, uint64_t key, uint64_t counterLow,
                           uint64_t counterHigh) {
  std::array<uint32_t, 4> bits = philox(key, counterLow, counterHigh);
  uint64_t number = uint64_t(bits[1]) << 32 | bits[0];
  return uint64_t(static_cast<unsigned __int128>(number) * bound >> 64);
}

std::array<double, 2> memopt::drawNormal(uint64_t key, uint64_t counterLow, uint64_t counterHigh) {
  std::array<uint32_t, 4> bits = philox(key, counterLow, counterHigh);
  uint64_t a = uint64_t(bits[1]) << 32 | bits[0], b = uint64_t(bits[3]) << 32 | bits[2];
  // (0, 1], so that the logarithm is finite.
  double u = (double(a >> 11) + 1) * 0x1p-53, v = double(b >> 11) * 0x1p-53;
  double radius = std::sqrt(-2 * std::log(u)), angle = 2 * M_PI * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

uint64_t memopt::hashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : name)
    hash = (hash ^ c) * 0x100000001b3;
  return hash;
}
