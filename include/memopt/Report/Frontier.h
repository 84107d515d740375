//===- Frontier.h - the curve of time against bytes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_REPORT_FRONTIER_H
#define MEMOPT_REPORT_FRONTIER_H

#include "memopt/Transforms/Search/BudgetSearch.h"

#include "llvm/Support/JSON.h"

namespace mlir::memopt {

/// Plans of one kernel graph from the smallest arena found to that of the given order, by
/// increasing bytes and decreasing predicted time: a plan for fewer bytes is also one for more, so
/// none that is beaten stays.
class Frontier {
public:
  /// Solves `points` budgets, spread evenly between the smallest and the given order's.
  static FailureOr<Frontier> compute(ModuleOp module, const BudgetOptions &options, int points);

  ArrayRef<BudgetPlan> getPlans() const { return plans; }

  /// {"format": "memopt-frontier", "version": 1, "points": [{"bytes", "seconds", "recomputed",
  /// "overhead"}, ...]}
  llvm::json::Object toJson() const;
  /// A picture of it: bytes to the right, predicted step time upwards.
  std::string toSvg() const;
  /// One line a point.
  std::string toText() const;

private:
  std::vector<BudgetPlan> plans;
};

} // namespace mlir::memopt

#endif // MEMOPT_REPORT_FRONTIER_H
