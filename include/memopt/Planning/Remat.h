//===- Remat.h - what to recompute, and in which order to run --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rematerialization: given ops with costs and results with bytes, find an order, in which ops may
// run again, that meets a budget on the bytes alive and costs the least. With recomputation
// switched off the same solver orders ops for memory. Both are NP-hard.
//
// Meaning. An operand is the latest earlier instance of its op. While the instance at position p
// runs, alive are its own results, its workspace, and every result of an earlier instance that is
// used at p or later. A result that nothing uses is alive only while it is computed. Every op runs
// at least once. Residents are alive always.
//
// In place. Where an op permits it, a result takes over the bytes of an operand that is used for
// the last time, and while the op runs the two count once. Results choose in their order, each the
// first of its operands that ends here and that none took before.
//
// solveRemat starts from the given order, from a greedy plan and from segments of the order, and
// anneals each over a sequence of slots (after FastSA, NeurIPS 2023, with its own moves); small
// problems are solved exactly. Starts are fixed by the options and not by the threads, and all work
// is counted in moves: same problem and options, same answer, on any number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_REMAT_H
#define MEMOPT_PLANNING_REMAT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace memopt::planning {

/// One result of one op.
struct RematValue {
  int32_t op = 0;
  int32_t result = 0;
  bool operator==(const RematValue &other) const {
    return op == other.op && result == other.result;
  }
};

/// `result` may be written over `operand`, an input of the same op with at least its bytes.
struct RematInPlace {
  int32_t result = 0;
  RematValue operand;
};

struct RematOp {
  std::vector<int64_t> results;   ///< bytes of each result, each with a life of its own
  int64_t cost = 0;               ///< in any unit, such as nanoseconds
  std::vector<RematValue> inputs; ///< results of earlier ops; repeats count once
  int64_t workspace = 0;          ///< bytes needed besides, only while it runs
  bool pinned = false;            ///< runs exactly once: state writes, reductions across ranks, I/O
  /// Ops of which every instance, clones included, must come before any instance of this op: say
  /// all readers of a variable before its write. Earlier ops in the given order.
  std::vector<int32_t> after;
  std::vector<RematInPlace> inPlace; ///< results ascending; of one result, the preferred first
};

struct RematProblem {
  std::vector<RematOp> ops; ///< in a valid order, the given order
  int64_t resident = 0;     ///< bytes that are always alive
};

/// What an order costs.
struct RematMeasure {
  int64_t peak = 0; ///< bytes, residents included
  int64_t cost = 0;
  int64_t position = 0; ///< first position at which the peak stands
};

struct RematOptions {
  int64_t budget = 0; ///< bytes, residents included
  int64_t iterations =
      -1; ///< moves of the annealing over all starts; -1: by the size of the problem
  uint64_t seed = 1;
  int32_t threads = 1;    ///< for speed only
  bool keepOrder = false; ///< first instances stay in the given order
  bool recompute =
      true; ///< false: every op runs once, and the budget is a target for the order alone
};

struct RematSolution {
  bool feasible = false; ///< peak <= budget
  std::vector<int32_t>
      order; ///< op of every instance; if not feasible the plan of the smallest peak found
  int64_t peak = 0;
  int64_t cost = 0;
  int64_t peakLowerBound = 0; ///< proven: no order has a lower peak
  int64_t costLowerBound = 0; ///< proven: no order within the budget costs less (if any is within)
  std::vector<RematValue> binding; ///< alive at the peak, largest first
  int32_t bindingOp = -1;          ///< the op that runs there
  std::string method;              ///< what found it, for remarks
};

/// Fails when an op refers to itself or to a later one, when sizes are negative, when a permission
/// names what is no operand or too small, or when the sum of bytes or costs does not fit 62 bits.
/// The message names op and field.
llvm::Error checkRemat(const RematProblem &problem);

/// Judges an order from its meaning alone, sharing no code with the solver: fails with position,
/// expected and found when the order is no valid execution.
llvm::Expected<RematMeasure> measureRemat(const RematProblem &problem,
                                          llvm::ArrayRef<int32_t> order);

/// measureRemat, and the solution says the truth about its peak, cost, bounds and feasibility.
llvm::Error verifyRemat(const RematProblem &problem, const RematOptions &options,
                        const RematSolution &solution);

/// Solves after checkRemat, whose error it passes on.
llvm::Expected<RematSolution> solveRemat(const RematProblem &problem, const RematOptions &options);

/// Orders the ops for the lowest peak, each running once: list scheduling by bytes freed, then
/// local search. `options.budget` is where to stop; 0 goes for the least that the iterations find.
llvm::Expected<RematSolution> solveOrder(const RematProblem &problem, RematOptions options = {});

/// `order`, in which each op runs once, without detours that the peak does not show: ops that
/// allocate more bytes than they free are moved as late as they can run, then those that free more
/// as early, weight updates right behind their gradients. A step that would raise the peak is not
/// taken. The peak need not fall, but whatever is recomputed later finds the room.
llvm::Expected<std::vector<int32_t>> tidyOrder(const RematProblem &problem,
                                               std::vector<int32_t> order);

struct RematFrontier {
  struct Point {
    std::vector<int32_t> order; ///< op of every instance
    int64_t peak = 0, cost = 0;
  };
  std::vector<Point> points;  ///< ascending in peak, descending in cost; the last repeats no op
  int64_t peakLowerBound = 0; ///< proven: no order has a lower peak
};

struct RematFrontierOptions {
  int64_t iterations = -1; ///< moves of the annealing in all; -1: by the size of the problem
  uint64_t seed = 1;
  int32_t threads = 1; ///< for speed only
};

/// Solves for a ladder of budgets, from the peak of the given order down to the smallest that is
/// found, each rung beginning with the plans of its neighbours: a plan for fewer bytes is also one
/// for more. The ladder follows from the problem alone, so whoever takes the cheapest point within
/// a budget never gets a slower plan for more bytes. Passes on checkRemat's error.
llvm::Expected<RematFrontier> solveRematFrontier(const RematProblem &problem,
                                                 const RematFrontierOptions &options = {});

/// Every point's order is valid and has the figures that it says, and the points ascend in peak and
/// descend in cost.
llvm::Error verifyRematFrontier(const RematProblem &problem, const RematFrontier &frontier);

/// A proven lower bound on the peak of any order, clones allowed.
int64_t rematPeakLowerBound(const RematProblem &problem);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_REMAT_H
