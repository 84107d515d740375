//===- RematGraph.h - the rematerialization problem in flat arrays --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_REMATGRAPH_H
#define MEMOPT_LIB_PLANNING_REMATGRAPH_H

#include "memopt/Planning/Remat.h"

namespace memopt::planning::remat {

/// Rows of integers of different lengths.
struct Rows {
  std::vector<int32_t> start{0}, items;
  llvm::ArrayRef<int32_t> operator[](int32_t row) const {
    return llvm::ArrayRef(items).slice(start[row], start[row + 1] - start[row]);
  }
  int32_t size() const { return start.size() - 1; }
  static Rows from(const std::vector<std::vector<int32_t>> &lists);
};

/// A checked problem. Values are numbered through: op by op, result by result.
struct Graph {
  explicit Graph(const RematProblem &problem);

  int32_t numOps = 0, numValues = 0;
  std::vector<int64_t> cost, workspace; ///< by op
  std::vector<uint8_t> pinned;
  std::vector<int32_t> firstValue; ///< by op, one past the end at the back
  std::vector<int64_t> bytes;      ///< by value
  std::vector<int32_t> opOf;       ///< by value
  Rows inputs;                     ///< values by op, each once
  Rows users;                      ///< ops by value, ascending
  Rows before;                     ///< by op: ops of which every instance comes earlier
  Rows behind;                     ///< the reverse: ops that come after every instance
  int64_t resident = 0;
  int64_t baseCost = 0; ///< of running each op once
};

/// A small fast generator with the same numbers on every platform (splitmix64, Steele et al. 2014).
class Random {
public:
  explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 0x1234567) {}
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, bound), bound > 0.
  uint32_t below(uint32_t bound) { return (uint64_t(uint32_t(next() >> 32)) * bound) >> 32; }
  /// Uniform in [0, 1).
  double unit() { return (next() >> 11) * 0x1.0p-53; }
  bool chance(double probability) { return unit() < probability; }

private:
  uint64_t state;
};

} // namespace memopt::planning::remat

#endif // MEMOPT_LIB_PLANNING_REMATGRAPH_H
