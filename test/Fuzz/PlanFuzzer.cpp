//===- PlanFuzzer.cpp - any text may be a planning problem -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first byte says what the others are: 0 a rematerialization problem, 1 an arena problem. Small
// ones are solved with little effort, and the answer is judged.
//
//===----------------------------------------------------------------------===//

#include "ArenaFile.h"
#include "Fuzzing.h"
#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Planning/Problem/PlanFile.h"

using namespace memopt::planning;
using namespace memopt::testing;

/// Larger problems take longer than they teach.
static constexpr size_t largestSolved = 40;

static void solve(const PlanProblem &problem) {
  int64_t bound = planPeakLowerBound(problem);
  std::vector<int32_t> order(problem.ops.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = int32_t(i);
  PlanMeasure given = llvm::cantFail(measurePlan(problem, order));
  require(bound <= given.peak);
  PlanOptions options;
  options.budget = bound + (given.peak - bound) / 2;
  options.iterations = 2000;
  PlanSolution solution = llvm::cantFail(solvePlan(problem, options));
  llvm::cantFail(verifyPlan(problem, options, solution));
}

static void solve(const ArenaProblem &problem) {
  ArenaOptions options;
  options.iterations = 2000;
  ArenaSolution solution = llvm::cantFail(solveArena(problem, options));
  llvm::cantFail(verifyArena(problem, solution));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1)
    return 0;
  llvm::StringRef text = toText(data + 1, size - 1);
  if (data[0] == 0) {
    auto problem = parsePlanFile(text, "problem");
    if (!problem)
      require(!llvm::toString(problem.takeError()).empty());
    else if (problem->problem.ops.size() <= largestSolved)
      solve(problem->problem);
    return 0;
  }
  auto file = parseArenaFile(text, "problem");
  if (!file)
    require(!llvm::toString(file.takeError()).empty());
  else if (file->problem.buffers.size() <= largestSolved)
    solve(file->problem);
  return 0;
}
