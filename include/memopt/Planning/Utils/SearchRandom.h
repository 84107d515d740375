//===- SearchRandom.h - the same random numbers everywhere -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_UTILS_SEARCHRANDOM_H
#define MEMOPT_PLANNING_UTILS_SEARCHRANDOM_H

#include <cstdint>

namespace memopt::planning {

/// A small fast generator with the same numbers on every platform, which the distributions of the
/// standard library do not promise (splitmix64, Steele et al. 2014).
class SearchRandom {
public:
  explicit SearchRandom(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 0x1234567) {}
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, bound), bound > 0.
  uint32_t below(uint32_t bound) { return (uint64_t(uint32_t(next() >> 32)) * bound) >> 32; }
  /// Uniform in [0, 1).
  double unit() { return double(next() >> 11) * 0x1.0p-53; }
  bool chance(double probability) { return unit() < probability; }

private:
  uint64_t state;
};

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_UTILS_SEARCHRANDOM_H
