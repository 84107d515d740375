//===- FormSearch.h - the form of a step that meets a budget -*- C++ -*- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_SEARCH_FORMSEARCH_H
#define MEMOPT_SEARCH_FORMSEARCH_H

#include "memopt/Search/Forms.h"

namespace mlir::memopt {

/// What a search may choose to meet the budgets; what changes results is off unless asked for.
struct FormChoices {
  bool recompute = true, accumulate = false, tile = false, precision = false, batch = false,
       offload = false;
  bool activations = false;             ///< kept in fewer bits, by an option of their own
  std::string activationDtype = "bf16"; ///< in which
  /// Where parameters and optimizer state lie is searched, among the spaces that there are.
  bool searchesPlacements = false, hasHost = false, hasDisk = false;
};

/// The largest batch that fits the budgets. `progress` gets a line for each batch that is tried.
SearchResult findLargestBatch(FormPlanner &planner, llvm::raw_ostream &progress);

/// The form with the shortest predicted step of those that `choices` allow and the budgets have
/// room for. Its remark says what fewer bytes would cost, and what was not allowed.
SearchResult chooseForm(FormPlanner &planner, const FormChoices &choices,
                        llvm::raw_ostream &progress);

} // namespace mlir::memopt

#endif // MEMOPT_SEARCH_FORMSEARCH_H
