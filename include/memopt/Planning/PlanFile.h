//===- PlanFile.h - planning problems and plans as JSON --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Problem: {"format": "memopt-remat-problem", "version": 1, "ops": [{"bytes": N, "cost": N,
// "inputs": [op, ...]}, ...]}. Besides, for ops with several results "bytes" may be a list and an
// input a pair [op, result]; "workspace": bytes, "pinned": true, "after": [op, ...] per op and
// "resident": bytes for all are optional; other keys are ignored. Meanings are those of
// memopt/Planning/PlanSolver.h.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_PLANFILE_H
#define MEMOPT_PLANNING_PLANFILE_H

#include "memopt/Planning/PlanSolver.h"

#include "llvm/ADT/StringRef.h"

namespace memopt::planning {

/// Reads a problem. Errors name the file and the place in it.
llvm::Expected<PlanProblem> readPlanProblem(llvm::StringRef path);

llvm::Error writePlanProblem(llvm::StringRef path, const PlanProblem &problem);

llvm::Error writePlan(llvm::StringRef path, const PlanOptions &options,
                      const PlanSolution &solution);

llvm::Error writePlanFrontier(llvm::StringRef path, const PlanFrontier &frontier);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_PLANFILE_H
