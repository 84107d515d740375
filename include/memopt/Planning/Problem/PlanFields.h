//===- PlanFields.h - plans in a SolutionCache -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_PROBLEM_PLANFIELDS_H
#define MEMOPT_PLANNING_PROBLEM_PLANFIELDS_H

#include "memopt/Planning/Problem/PlanSolution.h"

namespace memopt::planning {

template <typename Fields> void passFields(Fields &fields, PlanValue &value) {
  fields(value.op, value.result);
}
template <typename Fields> void passFields(Fields &fields, PlanSolution &solution) {
  fields(solution.feasible, solution.order, solution.peak, solution.cost, solution.otherPeaks,
         solution.peakLowerBound, solution.costLowerBound, solution.binding, solution.bindingOp,
         solution.method);
}
template <typename Fields> void passFields(Fields &fields, PlanFrontier::Point &point) {
  fields(point.order, point.peak, point.cost, point.otherPeaks);
}
template <typename Fields> void passFields(Fields &fields, PlanFrontier &frontier) {
  fields(frontier.points, frontier.peakLowerBound);
}

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_PROBLEM_PLANFIELDS_H
