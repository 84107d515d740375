//===- PlanProblem.h - what runs, and what it takes ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops with costs and results with bytes. A plan is an order of them in which ops may run again.
// This header says what plans mean: whether they are valid, what they need and what they cost, and
// which arena problem is left once the order is chosen. PlanSolver.h finds them.
//
// Meaning. An operand is the latest earlier instance of its op. While the instance at position p
// runs, alive are its own results, its workspaces, and every result of an earlier instance that is
// used at p or later. A result that nothing uses is alive only while it is computed. Every op runs
// at least once. Residents are alive always.
//
// In place. Where an op permits it, a result takes over the bytes of an operand that is used for
// the last time, and while the op runs the two count once. Results choose in their order, each the
// first of its operands that ends here and that none took before.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_PLANPROBLEM_H
#define MEMOPT_PLANNING_PLANPROBLEM_H

#include "memopt/Planning/Arena.h"

namespace memopt::planning {

/// One result of one op.
struct PlanValue {
  int32_t op = 0;
  int32_t result = 0;
  bool operator==(const PlanValue &other) const { return op == other.op && result == other.result; }
};

/// `result` may be written over `operand`, an input of the same op with at least its bytes.
struct PlanInPlace {
  int32_t result = 0;
  PlanValue operand;
};

/// Bytes that lie in one piece.
struct PlanBuffer {
  int64_t bytes = 0;
  int64_t alignment = 1; ///< of its offset in an arena; the bytes alive do not count it
};

struct PlanOp {
  std::vector<PlanBuffer> results;    ///< each with a life of its own
  int64_t cost = 0;                   ///< in any unit, such as nanoseconds
  std::vector<PlanValue> inputs;      ///< results of earlier ops; repeats count once
  std::vector<PlanBuffer> workspaces; ///< needed besides, only while it runs
  bool pinned = false; ///< runs exactly once: state writes, reductions across ranks, I/O
  /// Ops of which every instance, clones included, must come before any instance of this op: say
  /// all readers of a variable before its write. Earlier ops in the given order.
  std::vector<int32_t> after;
  std::vector<PlanInPlace> inPlace; ///< results ascending; of one result, the preferred first
};

struct PlanProblem {
  std::vector<PlanOp> ops;           ///< in a valid order, the given order
  std::vector<PlanBuffer> residents; ///< always alive
};

/// What an order costs.
struct PlanMeasure {
  int64_t peak = 0; ///< bytes, residents included
  int64_t cost = 0;
  int64_t position = 0; ///< first position at which the peak stands
};

/// Fails when an op refers to itself or to a later one, when sizes are negative, when a permission
/// names what is no operand or too small, or when the sum of bytes or costs does not fit 62 bits.
/// The message names op and field.
llvm::Error checkPlanProblem(const PlanProblem &problem);

/// Judges an order from its meaning alone, sharing no code with the solver: fails with position,
/// expected and found when the order is no valid execution.
llvm::Expected<PlanMeasure> measurePlan(const PlanProblem &problem, llvm::ArrayRef<int32_t> order);

/// The buffers of an order, each with its live range, positions being times: the residents, pinned
/// at the bottom, then of each instance the results and the workspaces. A result that may take over
/// an operand's bytes has the permission. Fails as measurePlan does.
llvm::Expected<ArenaProblem> buildArenaProblem(const PlanProblem &problem,
                                               llvm::ArrayRef<int32_t> order);

/// A proven lower bound on the peak of any order, clones allowed.
int64_t planPeakLowerBound(const PlanProblem &problem);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_PLANPROBLEM_H
