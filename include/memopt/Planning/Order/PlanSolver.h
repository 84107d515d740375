//===- PlanSolver.h - what to recompute, in which order to run*- C++ -*-===//
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
// solvePlan starts from the given order, from a greedy plan and from segments of the order, and
// anneals each over a sequence of slots (after FastSA, NeurIPS 2023, with its own moves); small
// problems are solved exactly. Starts are fixed by the options and not by the threads, and all work
// is counted in moves: same problem and options, same answer, on any number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_ORDER_PLANSOLVER_H
#define MEMOPT_PLANNING_ORDER_PLANSOLVER_H

#include "memopt/Planning/Problem/PlanSolution.h"

namespace memopt::planning {

/// Solves after checkPlanProblem, whose error it passes on.
llvm::Expected<PlanSolution> solvePlan(const PlanProblem &problem, const PlanOptions &options);

/// Orders the ops for the lowest peak, each running once: list scheduling by bytes freed, then
/// local search. `options.budget` is where to stop; 0 goes for the least that the iterations find.
llvm::Expected<PlanSolution> solveOrder(const PlanProblem &problem, PlanOptions options = {});

/// `order`, in which each op runs once, without detours that the peak does not show: ops that
/// allocate more bytes than they free are moved as late as they can run, then those that free more
/// as early, weight updates right behind their gradients. A step that would raise the peak is not
/// taken. The peak need not fall, but whatever is recomputed later finds the room.
llvm::Expected<std::vector<int32_t>> tidyOrder(const PlanProblem &problem,
                                               std::vector<int32_t> order);

/// `order`, in which each op runs once, with work between the starts of transfers and their waits:
/// starts move towards the front, waits and what only waits for them towards the back, while the
/// plan gets faster and no peak higher. With `room` what is put off in space 0 fills as many bytes
/// and not up to the peak: more where there is a budget, less where the arena has gaps. Of what is
/// computed to be sent alone the share `early`, from the back, moves towards the front, too, if that
/// is faster and the bytes allow it. An order with regions, or without starts, stays as it is.
llvm::Expected<std::vector<int32_t>> overlapTransfers(const PlanProblem &problem,
                                                      std::vector<int32_t> order, int64_t room = 0,
                                                      double early = 0);

/// Solves for a ladder of budgets, from the peak of the given order down to the smallest that is
/// found, each rung beginning with the plans of its neighbours: a plan for fewer bytes is also one
/// for more. The ladder follows from the problem alone, so whoever takes the cheapest point within
/// a budget never gets a slower plan for more bytes. Passes on the errors of checkPlanProblem, and
/// of measurePlan for what is known.
llvm::Expected<PlanFrontier> solvePlanFrontier(const PlanProblem &problem,
                                               const PlanFrontierOptions &options = {});

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_ORDER_PLANSOLVER_H
