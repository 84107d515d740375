//===- Random.h - counter-based random numbers ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). Bits follow from a key and a counter alone, so the order in which numbers are drawn never
// matters.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_NUMBERS_RANDOM_H
#define MEMOPT_RUNTIME_NUMBERS_RANDOM_H

#include <array>
#include <cstdint>
#include <string_view>

namespace memopt {

/// Ten rounds of Philox: four words for a key and a 128-bit counter.
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counterLow, uint64_t counterHigh);

/// A number in [0, bound); bound is at least 1. The bias is below bound / 2^64.
uint64_t drawBelow(uint64_t bound, uint64_t key, uint64_t counterLow, uint64_t counterHigh);

/// Two independent numbers of the standard normal distribution (Box and Muller).
std::array<double, 2> drawNormal(uint64_t key, uint64_t counterLow, uint64_t counterHigh);

/// FNV-1a: a fixed number for a name.
uint64_t hashName(std::string_view name);

} // namespace memopt

#endif // MEMOPT_RUNTIME_NUMBERS_RANDOM_H
