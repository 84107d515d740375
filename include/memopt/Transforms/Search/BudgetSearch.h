//===- BudgetSearch.h - the cheapest order within a number of bytes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Planning's solvePlanFrontier works on plain integers and knows nothing of gaps between buffers.
// This search places its points in an arena and takes the cheapest whose arena is within the user's
// budget. The kernels come in two forms: as they stand, and with values computed in their readers
// where these stand in the way of a small arena. Where values may be swapped, the first form is
// searched with and without, so that no plan is worse for it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_SEARCH_BUDGETSEARCH_H
#define MEMOPT_TRANSFORMS_SEARCH_BUDGETSEARCH_H

#include "memopt/Analysis/CostModel.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Kernels/ActivationCodes.h"

#include "mlir/IR/BuiltinOps.h"

#include <limits>
#include <optional>
#include <vector>

namespace memopt {
class Cache;
} // namespace memopt

namespace mlir::memopt {

struct BudgetOptions {
  int64_t iterations = -1;          ///< moves of the search for all budgets; -1: by size
  int32_t threads = 1;              ///< for speed only
  ::memopt::Cache *cache = nullptr; ///< where answers are found again, or null; for speed only
  int64_t hostBudget = -1;          ///< bytes of the host's arena; -1: no limit
  bool swaps = false;               ///< values may be stored on the host and fetched again
  /// The number of the loop over micro-batches whose body is searched, and whose time the arena is
  /// of; none: the main block (OrderProblem), and the whole step.
  std::optional<size_t> loop;
  /// What activations might wait in (findActivations); plans of this graph leave them as they are.
  std::optional<ActivationForm> activations;
};

/// An order of the step's instructions, with repeats where they run again, and what it needs.
struct BudgetPlan {
  std::vector<int32_t> order;
  int64_t bytes = std::numeric_limits<int64_t>::max();       ///< height of the device's arena
  int64_t hostBytes = 0;                                     ///< of the host's
  int64_t nanoseconds = std::numeric_limits<int64_t>::max(); ///< predicted
  int64_t clones = 0;
  int64_t swapped = 0; ///< values that are stored on the host and fetched again
  int64_t inlined = 0; ///< values computed in their readers; the order is of that form
  /// By library call of the form that has several implementations: the number of the one taken.
  SmallVector<int32_t> implementations;
  int64_t leanCalls = 0; ///< that take less workspace than the preferred implementation wants
};

/// Searches orders of one kernel graph whose writes have their copies (createOrderableStep), for
/// all budgets at once and only when the first is asked for. The module is not changed before
/// apply.
class BudgetSearch {
public:
  BudgetSearch(const StepModel &step, BudgetOptions options);
  ~BudgetSearch();

  /// The plan of the order as it stands.
  FailureOr<BudgetPlan> getGivenPlan();

  /// The cheapest plan found whose arena is at most `budget` bytes, and that of the host within its
  /// own; where there is none, the lowest. A larger budget never gets a slower plan.
  FailureOr<BudgetPlan> findPlan(int64_t budget);
  bool fits(const BudgetPlan &plan, int64_t budget) const;

  /// The numbers of the activations that the cheapest plan within `budget` would keep in fewer bits,
  /// or the lowest plan where none is within: a search of its own, with these as one more way to
  /// have a value, which begins with what findPlan has found. None where the options name no form.
  FailureOr<SmallVector<int64_t>> findActivations(int64_t budget);

  /// Proven once findPlan has searched: no order of these instructions needs less.
  int64_t getLowerBound() const;

  /// Rewrites the module; the search is used up.
  void apply(const BudgetPlan &plan);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_SEARCH_BUDGETSEARCH_H
