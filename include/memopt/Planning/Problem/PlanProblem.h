//===- PlanProblem.h - what runs, and what it takes ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step as plain integers: ops with costs, results with bytes in memory spaces, resources that ops
// occupy, repeated bodies, and for each value the ways to have it again. A plan is a list of
// actions: ops that run, and may run again, and transfers that start and are waited for. This
// header says what plans mean: whether they are valid, what they need and what they cost, and which
// arena problem is left once the order is chosen. PlanSolver.h finds them.
//
// Bytes. They follow from positions alone, whatever takes how long. An operand is the latest
// earlier instance of its value. While the action at position p runs, alive are its own results,
// its workspaces, and every value of an earlier instance that is used at p or later. A value that
// nothing uses is alive only while it is made. Residents are alive always. Every op runs at least
// once.
//
// In place. Where an op permits it, a result takes over the bytes of an operand that is used for
// the last time, and while the op runs the two count once. Results choose in their order, each the
// first of its operands that ends here and that none took before.
//
// In flight. An op that another one waits for is a start: it returns at once, and all that it reads
// and makes, its workspaces included, stays as it is until its wait. Behind the wait its results
// may be used. Every start has its wait before it starts again, in the same region.
//
// Ways. A value with a way can be fetched instead of computed again: from a home, which is always
// there (shards of a parameter, state on the host), or from a copy that the plan has stored. A
// fetch is a start that makes the value, behind the first run of its op, and a wait; a store is a
// start that makes the copy and a wait. The copy lives from the start of the store to the wait of
// the last fetch.
//
// Regions. The body of a region runs `count` times. What was made in front of it and is used inside
// lives until it ends, for the next iteration reads it again; what is made inside is gone behind
// it. Ops of the body never leave it. Ops from outside may run again inside: they cost `count`
// times as much there.
//
// Time. The cost of a plan is its makespan. Every resource serves one action at a time, in the
// order of the plan. A start takes its place in the queue of its resource and the plan goes on; any
// other op and every wait holds the plan up until it is done. With one resource and no starts that
// is the sum of the costs. In a region all costs count as often as the body runs.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_PROBLEM_PLANPROBLEM_H
#define MEMOPT_PLANNING_PROBLEM_PLANPROBLEM_H

#include "memopt/Planning/Arena/Arena.h"

#include <optional>

namespace memopt::planning {

/// One result of one op.
struct PlanValue {
  int32_t op = 0;
  int32_t result = 0;
  bool operator==(const PlanValue &other) const { return op == other.op && result == other.result; }
};

/// `result` may be written over `operand`, an input of the same op with at least its bytes in the
/// same space.
struct PlanInPlace {
  int32_t result = 0;
  PlanValue operand;
};

/// Bytes that lie in one piece.
struct PlanBuffer {
  int64_t bytes = 0;
  int64_t alignment = 1; ///< of its offset in an arena; the bytes alive do not count it
  int32_t space = 0;     ///< in PlanProblem::spaces
};

struct PlanOp {
  std::vector<PlanBuffer> results; ///< each with a life of its own
  int64_t cost = 0;                ///< time on its resource in any unit, such as nanoseconds
  std::vector<PlanValue> inputs;   ///< results of earlier ops; repeats count once
  /// Needed besides, only while it runs; those of a start until its wait.
  std::vector<PlanBuffer> workspaces;
  bool pinned = false; ///< runs exactly once: state writes, reductions across ranks, I/O
  /// Ops of which every instance, clones and fetches of their results included, must come before
  /// any instance of this op: say all readers of a variable before its write. Earlier ops in the
  /// given order.
  std::vector<int32_t> after;
  std::vector<PlanInPlace> inPlace; ///< results ascending; of one result, the preferred first
  int32_t resource = 0;             ///< in PlanProblem::resources
  /// The start that this op waits for, an earlier op of the same region that nothing else waits
  /// for; -1: none. A wait makes nothing and goes with its start: it is pinned if that is, and
  /// where the start runs again so does the wait.
  int32_t waitsFor = -1;
  /// The part of a model that whoever keeps only the inputs of such parts would compute again as a
  /// whole, such as a layer, for ops of its forward pass; -1: none. Parts are numbered in the given
  /// order. Plans mean the same without; searches look at what these make (PlanSegments.cpp).
  int32_t block = -1;
};

/// Bytes on their way from one place to another.
struct PlanTransfer {
  int32_t resource = 0;               ///< the link
  int64_t cost = 0;                   ///< time on the link: latency plus bytes by bandwidth
  std::vector<PlanBuffer> workspaces; ///< staging besides both ends, from the start to the wait
};

/// Another way to have a value than to run its op again.
struct PlanWay {
  PlanValue value;
  PlanTransfer fetch;
  /// How the plan makes the copy that is fetched; without it there is a home, whose bytes, if any,
  /// are among the residents.
  std::optional<PlanTransfer> store;
  PlanBuffer copy; ///< what a stored copy takes
  /// A value of an earlier or a later op, of no bytes, that a fetch reads besides: what must not be
  /// made from fetched values comes first.
  std::optional<PlanValue> behind;
};

/// The ops [begin, end) of the given order run `count` times.
struct PlanRegion {
  int32_t begin = 0, end = 0;
  int64_t count = 1;
};

struct PlanSpace {
  std::string name;
  /// Bytes that may be alive here, residents included; -1 for no limit. Solvers take the limit of
  /// space 0 from their options.
  int64_t budget = -1;
};

struct PlanProblem {
  std::vector<PlanOp> ops;                       ///< in a valid order, the given order
  std::vector<PlanBuffer> residents;             ///< always alive
  std::vector<PlanSpace> spaces{{"device"}};     ///< space 0 is the one that is short
  std::vector<std::string> resources{"compute"}; ///< each a queue
  std::vector<PlanWay> ways;
  std::vector<PlanRegion> regions; ///< disjoint or one inside the other, the outer one first
};

/// What a plan does at one position.
struct PlanAction {
  enum Kind : uint8_t {
    Run,        ///< an op, starts and waits among ops included
    StoreStart, ///< of a way
    StoreWait,
    FetchStart,
    FetchWait,
    Enter, ///< a region
    Leave
  } kind = Run;
  int32_t index = 0; ///< of the op, the way or the region
};

/// A plan writes actions as numbers: op i is i; then come the four transfers of each way, in the
/// order of PlanAction::Kind, and Enter and Leave of each region. So without ways and regions a
/// plan is a list of ops.
int32_t getNumActions(const PlanProblem &problem);
PlanAction getAction(const PlanProblem &problem, int32_t number);
int32_t getNumber(const PlanProblem &problem, PlanAction action);

/// Every op once, in the order of the problem, regions entered and left where they begin and end.
std::vector<int32_t> getGivenOrder(const PlanProblem &problem);

/// What a plan takes.
struct PlanMeasure {
  int64_t peak = 0;                ///< bytes of space 0, residents included
  int64_t cost = 0;                ///< makespan
  int64_t position = 0;            ///< first position at which the peak stands
  std::vector<int64_t> otherPeaks; ///< of space 1, 2, ...
};

/// What a plan does to have a value more than once. Values that it only keeps have no entry.
struct PlanFate {
  PlanValue value;
  int32_t recomputed = 0; ///< runs of its op beyond the first
  int32_t fetched = 0;    ///< from a home
  int32_t swapped = 0;    ///< fetched from a stored copy
};

/// Fails when an op refers to itself or to a later one, when sizes are negative, when a permission
/// names what is no operand or too small, when starts, ways and regions contradict what stands
/// above, or when the sum of bytes or costs does not fit 62 bits. The message names op and field.
llvm::Error checkPlanProblem(const PlanProblem &problem);

/// Simulates a plan: the one meaning of plans that solvers, reports and tests share. Fails with
/// position, expected and found when it is no valid execution. Requires a checked problem, as all
/// that follow.
llvm::Expected<PlanMeasure> measurePlan(const PlanProblem &problem, llvm::ArrayRef<int32_t> order);
/// By position of such a plan, the bytes of space 0 while its action runs, residents included.
llvm::Expected<std::vector<int64_t>> measureLoads(const PlanProblem &problem,
                                                  llvm::ArrayRef<int32_t> order);

/// The same from the meaning above alone, sharing no code with the simulator and the solvers:
/// regions are run twice, and who needs what is read off that trace.
llvm::Expected<PlanMeasure> judgePlan(const PlanProblem &problem, llvm::ArrayRef<int32_t> order);

/// The fates of the values in a valid plan, by op and result.
std::vector<PlanFate> getPlanFates(const PlanProblem &problem, llvm::ArrayRef<int32_t> order);

/// The buffers of a plan in one space, each with its live range, positions being times: the
/// residents, pinned at the bottom, then of each action the values it makes and the workspaces.
/// A result that may take over an operand's bytes has the permission; regions are loops. Fails as
/// measurePlan does.
llvm::Expected<ArenaProblem> buildArenaProblem(const PlanProblem &problem,
                                               llvm::ArrayRef<int32_t> order, int32_t space = 0);

/// A proven lower bound on the peak of any plan in a space. What can be fetched counts where it is
/// used alone.
int64_t planPeakLowerBound(const PlanProblem &problem, int32_t space = 0);

/// A proven lower bound on the peak in space 0 of any plan that runs every op once and transfers
/// nothing: what comes from an ancestor of an op and goes to a descendant is alive while it runs.
/// O(ops * edges) steps of 64 ops each.
int64_t orderPeakLowerBound(const PlanProblem &problem);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_PROBLEM_PLANPROBLEM_H
