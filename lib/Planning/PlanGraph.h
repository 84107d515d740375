//===- PlanGraph.h - remat problems in flat arrays ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_PLANGRAPH_H
#define MEMOPT_LIB_PLANNING_PLANGRAPH_H

#include "memopt/Planning/PlanSolver.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

namespace memopt::planning::search {

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
  explicit Graph(const PlanProblem &problem);

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
  Rows inPlace;                    ///< by op: result, operand, result, operand, ...; values
  std::vector<uint8_t> takeable;   ///< by value: some op may write a result over it
  bool hasInPlace = false;
  int64_t resident = 0;
  int64_t baseCost = 0; ///< of running each op once

  /// Bytes that count once while `op` runs because a result takes over an operand for which
  /// `ends(operand)` holds. More operands that end never make it less.
  template <typename Ends> int64_t bytesTakenOver(int32_t op, Ends ends) const {
    llvm::ArrayRef<int32_t> pairs = inPlace[op];
    int64_t sum = 0;
    llvm::SmallVector<int32_t, 8> matched; // results and operands: numbers of values, all distinct
    for (size_t i = 0; i < pairs.size(); i += 2) {
      int32_t result = pairs[i], operand = pairs[i + 1];
      if (llvm::is_contained(matched, result) || llvm::is_contained(matched, operand) ||
          !ends(operand))
        continue;
      matched.push_back(result);
      matched.push_back(operand);
      sum += bytes[result];
    }
    return sum;
  }
  bool mayTakeOver(int32_t op, int32_t operand) const {
    llvm::ArrayRef<int32_t> pairs = inPlace[op];
    for (size_t i = 1; i < pairs.size(); i += 2)
      if (pairs[i] == operand)
        return true;
    return false;
  }
};

} // namespace memopt::planning::search

#endif // MEMOPT_LIB_PLANNING_PLANGRAPH_H
