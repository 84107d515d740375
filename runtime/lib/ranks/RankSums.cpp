//===- RankSums.cpp - sums in the order of ranks --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/RankSums.h"
#include <algorithm>

using namespace memopt;

using Source = std::function<const char *(int64_t)>;

/// A block of sums stays in the first cache while the ranks pass by.
template <typename T>
static void addBlock(int64_t ranks, const Source &source, int64_t first, int64_t count, T *to) {
  constexpr int64_t most = 1024;
  T sums[most];
  std::fill_n(sums, count, T(0));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const T *terms = reinterpret_cast<const T *>(source(rank)) + first;
    for (int64_t i = 0; i < count; ++i)
      sums[i] += terms[i];
  }
  std::copy_n(sums, count, to);
}

template <typename T>
static void addAll(int64_t ranks, const Source &source, int64_t begin, int64_t end, char *to,
                   ThreadPool &pool) {
  constexpr int64_t block = 1024, grain = 64 * block;
  T *sums = reinterpret_cast<T *>(to);
  pool.parallelFor(end - begin, grain, [&](int64_t low, int64_t high) {
    for (int64_t i = low; i < high; i += block)
      addBlock(ranks, source, begin + i, std::min(block, high - i), sums + i);
  });
}

void memopt::addRanks(DType type, int64_t ranks, const Source &source, int64_t begin, int64_t end,
                      char *to, ThreadPool &pool) {
  switch (type) {
  case DType::F32:
    return addAll<float>(ranks, source, begin, end, to, pool);
  case DType::F64:
    return addAll<double>(ranks, source, begin, end, to, pool);
  case DType::I32:
    return addAll<uint32_t>(ranks, source, begin, end, to, pool);
  default:
    return addAll<uint64_t>(ranks, source, begin, end, to, pool);
  }
}
