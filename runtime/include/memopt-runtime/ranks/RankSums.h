//===- RankSums.h - sums in the order of ranks ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_RANKSUMS_H
#define MEMOPT_RUNTIME_RANKS_RANKSUMS_H

#include "memopt-runtime/numbers/DType.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <functional>

namespace memopt {

/// to[i - begin] = 0 + source(0)[i] + source(1)[i] + ..., in this order, for i in [begin, end).
/// `to` may be what one of the sources has from `begin` on. Elements are f32, f64, i32 or i64, sums
/// of integers wrap around.
void addRanks(DType type, int64_t ranks, const std::function<const char *(int64_t)> &source,
              int64_t begin, int64_t end, char *to, ThreadPool &pool);

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_RANKSUMS_H
