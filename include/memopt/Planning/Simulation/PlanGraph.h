//===- PlanGraph.h - planning problems in flat arrays ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything that can stand in a plan is an action that reads values and makes values: ops, the
// transfers of ways, and the ends of regions, under the numbers that plans use. A transfer makes
// values that are no results of ops: the copy that a store leaves, and what a start holds until its
// wait. With those as ordinary values, and the wait as their reader, the lives of all bytes follow
// from one rule.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_SIMULATION_PLANGRAPH_H
#define MEMOPT_PLANNING_SIMULATION_PLANGRAPH_H

#include "memopt/Planning/Problem/PlanProblem.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/SmallVector.h"

namespace memopt::planning::search {

/// Rows of integers of different lengths.
struct Rows {
  /// While they grow; most are short.
  using Row = llvm::SmallVector<int32_t, 4>;
  std::vector<int32_t> start{0}, items;
  llvm::ArrayRef<int32_t> operator[](int32_t row) const {
    return llvm::ArrayRef(items).slice(start[row], start[row + 1] - start[row]);
  }
  int32_t size() const { return start.size() - 1; }
  static Rows from(llvm::ArrayRef<Row> lists);
};

enum class ActionKind : uint8_t {
  Plain,
  Start, ///< returns at once; `partner` waits for it
  Wait,
  Enter, ///< a region
  Leave
};

/// A checked problem.
struct Graph {
  explicit Graph(const PlanProblem &problem);

  int32_t numOps = 0;     ///< ops are actions 0 to numOps - 1
  int32_t numActions = 0; ///< then transfers, then ends of regions
  int32_t numResults = 0; ///< results of ops are values 0 to numResults - 1, op by op
  int32_t numValues = 0;  ///< then copies and what starts hold
  int32_t numSpaces = 1, numResources = 1, numRegions = 0;
  bool hasStarts = false, hasInPlace = false;

  /// By action.
  std::vector<ActionKind> kind;
  std::vector<int64_t> cost;
  std::vector<int32_t> resource;
  std::vector<int32_t> partner; ///< of a start its wait, of a wait its start; else -1
  std::vector<uint8_t> pinned;  ///< stands exactly once in a plan
  std::vector<uint8_t> mayGo;  ///< instances beyond the first of an op, or of a fetch, may go alone
  std::vector<int32_t> region; ///< where it belongs, -1 for the top; of Enter and Leave the parent
  std::vector<std::vector<int64_t>> workspaces; ///< by space and action
  Rows inputs;           ///< values, each once; of a wait all that its start holds
  Rows makes;            ///< values
  Rows before;           ///< actions of which every instance comes earlier
  Rows behind;           ///< the reverse: actions that come after every instance
  Rows inPlace;          ///< result, operand, result, operand, ...; values
  Rows takeableOperands; ///< operands of those, each once
  Rows takeableNumbers;  ///< by pair of those: the number of its operand among takeableOperands

  /// By value.
  std::vector<int64_t> size;
  std::vector<int32_t> space;
  std::vector<int64_t> bytes;    ///< in space 0
  std::vector<int32_t> opOf;     ///< the action that makes it first: an op but for transfers
  Rows users;                    ///< ops that read it, ascending; their waits left out
  Rows waysTo;                   ///< numbers of ways, by result
  std::vector<uint8_t> takeable; ///< some op may write a result over it
  /// Instances are listed by action; a value with several makers has a list of its own behind them.
  std::vector<int32_t> listOf;
  int32_t numLists = 0;
  std::vector<int32_t> firstValue; ///< by op, one past the end at the back

  /// By way.
  struct Way {
    int32_t value, copy;            ///< copy: -1 with a home
    int32_t storeStart, fetchStart; ///< actions; their waits are the next ones
  };
  std::vector<Way> ways;
  /// Of a transfer.
  const Way &wayOf(int32_t action) const { return ways[(action - numOps) / 4]; }
  bool isFetchStart(int32_t action) const {
    return isOptional(action) && wayOf(action).fetchStart == action;
  }

  /// By region.
  std::vector<int32_t> parent; ///< -1 for the top
  std::vector<int64_t> count;  ///< of runs, those of the regions around it included
  std::vector<int32_t> enter;  ///< actions; Leave is the next one

  int64_t resident = 0;           ///< in space 0
  std::vector<int64_t> residents; ///< by space
  std::vector<int64_t> budgets;   ///< by space; unlimited ones and that of space 0 are huge
  int64_t baseCost = 0;           ///< no plan costs less
  static constexpr int64_t unlimited = int64_t(1) << 62;                  ///< bytes
  static constexpr int64_t tooLong = std::numeric_limits<int64_t>::max(); ///< cost beyond 63 bits

  /// Whether all there is to decide is the order of ops and which of them run again.
  bool isPlain() const { return !hasStarts && !numRegions && numSpaces == 1; }
  /// A plan does without it.
  bool isOptional(int32_t action) const {
    return action >= numOps &&
           (kind[action] == ActionKind::Start || kind[action] == ActionKind::Wait);
  }
  /// Whether `inner` is `outer` or lies in it; -1 is the top.
  bool isInside(int32_t inner, int32_t outer) const {
    while (inner >= 0 && inner != outer)
      inner = parent[inner];
    return inner == outer;
  }
  int64_t countOf(int32_t inRegion) const { return inRegion < 0 ? 1 : count[inRegion]; }
  std::vector<int32_t> givenOrder() const;
  /// Of a value that is a result.
  PlanValue resultOf(int32_t value) const { return {opOf[value], value - firstValue[opOf[value]]}; }

  /// Bytes of a space that count once while `op` runs because a result takes over an operand for
  /// which `ends(operand)` holds. More operands that end never make it less.
  template <typename Ends> int64_t bytesTakenOver(int32_t op, int32_t inSpace, Ends ends) const {
    llvm::ArrayRef<int32_t> pairs = inPlace[op], operands = takeableOperands[op],
                            numbers = takeableNumbers[op];
    enum Fate : uint8_t { Unasked, Ending, Stays };
    // An op may have hundreds of pairs of few operands, and what it asks for is slow to say.
    llvm::SmallVector<Fate, 64> fates(operands.size(), Unasked);
    llvm::SmallBitVector matched(makes[op].size());
    int64_t sum = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      int32_t result = pairs[2 * i], ordinal = result - firstValue[op];
      Fate &fate = fates[numbers[i]];
      if (fate == Stays || space[result] != inSpace || matched.test(ordinal))
        continue;
      if (fate == Unasked)
        fate = ends(operands[numbers[i]]) ? Ending : Stays;
      if (fate == Stays)
        continue;
      fate = Stays; // taken
      matched.set(ordinal);
      sum += size[result];
    }
    return sum;
  }
  bool mayTakeOver(int32_t op, int32_t operand) const {
    return llvm::is_contained(takeableOperands[op], operand);
  }

private:
  struct Lists;
  void addOps(const PlanProblem &problem, Lists &lists);
  void addWaits(const PlanProblem &problem, Lists &lists);
  void addWays(const PlanProblem &problem, Lists &lists);
  void addRegions(const PlanProblem &problem);
  int32_t addValue(const PlanBuffer &buffer, int32_t maker);
  int32_t addAction(ActionKind kind, int64_t cost, int32_t resource, int32_t region, Lists &lists);
  int32_t addTransfer(const PlanTransfer &transfer, int32_t region, Lists &lists);
};

} // namespace memopt::planning::search

#endif // MEMOPT_PLANNING_SIMULATION_PLANGRAPH_H
