//===- Techniques.h - what each technique saves on a model --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_SEARCH_TECHNIQUES_H
#define MEMOPT_SEARCH_TECHNIQUES_H

#include "memopt/Search/Forms.h"

#include "llvm/Support/JSON.h"

namespace mlir::memopt {

/// A technique, taken by itself beside what the command line asks for.
struct TechniqueTrial {
  std::string option; ///< as one writes it
  bool isOn;          ///< on the command line: the trial is without it
  Trial trial;        ///< not Ok: its message says why not
};

/// What each technique makes of the step, without a budget.
struct TechniqueTable {
  Trial asked; ///< the command line's own options
  std::vector<TechniqueTrial> techniques;
  int64_t smallestBytes = 0; ///< that recomputation was found to need of the device

  /// [{"option", "on", "bytes", "saved", "seconds"} or {"option", "on", "refused"}, ...]
  llvm::json::Array toJson() const;
  void print(llvm::raw_ostream &out) const;
};

/// Plans the step once for each technique, so it takes that many times a plan's seconds. Fails
/// where the planner's own options do; `message` says why.
FailureOr<TechniqueTable> compareTechniques(FormPlanner &planner, std::string &message);

} // namespace mlir::memopt

#endif // MEMOPT_SEARCH_TECHNIQUES_H
