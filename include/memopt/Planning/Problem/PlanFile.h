//===- PlanFile.h - planning problems and plans as JSON --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A problem is "memopt-plan-problem", version 2, or "memopt-remat-problem", version 1, which has
// one space, one resource, and neither ways nor regions. docs/Planning.md has both with all keys;
// meanings are those of PlanProblem.h. Plans and frontiers are written in the version of their
// problem.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_PROBLEM_PLANFILE_H
#define MEMOPT_PLANNING_PROBLEM_PLANFILE_H

#include "memopt/Planning/Problem/PlanSolution.h"

#include "llvm/ADT/StringRef.h"

namespace memopt::planning {

struct PlanFile {
  PlanProblem problem;
  int64_t version = 2;
};

/// Reads a problem. Errors name the file and the place in it.
llvm::Expected<PlanFile> readPlanFile(llvm::StringRef path);
/// The same for its text.
llvm::Expected<PlanFile> parsePlanFile(llvm::StringRef text, llvm::StringRef path);

/// Writes a problem in version 2.
llvm::Error writePlanProblem(llvm::StringRef path, const PlanProblem &problem);

/// The text of such a file: all that a problem says.
std::string printPlanProblem(const PlanProblem &problem);

llvm::Error writePlan(llvm::StringRef path, const PlanFile &file, const PlanOptions &options,
                      const PlanSolution &solution);

llvm::Error writePlanFrontier(llvm::StringRef path, const PlanFile &file,
                              const PlanFrontier &frontier);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_PROBLEM_PLANFILE_H
