//===- RematGraph.h - remat problems in flat arrays ------------*- C++ -*-===//
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

} // namespace memopt::planning::remat

#endif // MEMOPT_LIB_PLANNING_REMATGRAPH_H
