//===- PlanPage.h - a plan as a page for browsers ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_REPORT_PLANPAGE_H
#define MEMOPT_REPORT_PLANPAGE_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

#include <optional>
#include <string>

namespace mlir::memopt {

/// What the page says besides the plan.
struct PlanPageOptions {
  std::string title;                         ///< the model's name
  std::array<int64_t, kNumSpaces> budgets{}; ///< bytes that each space may have; negative: any
  int64_t microBatches = 1;
  std::optional<llvm::json::Object> frontier; ///< as Frontier::toJson() gives it
  /// [{"option", "on", "bytes", "saved", "seconds"}, ...]: techniques that were compared.
  std::optional<llvm::json::Array> techniques;
};

/// One of the programs that a page shows.
struct PlanPageProgram {
  std::string name; ///< in its package; nothing where it is alone
  ModuleOp planned;
  PlanPageOptions options;
};

/// One HTML file that needs no other: memory over the step by kind and module, every value where it
/// lies, what is alive at the peak, what was computed again, predicted time against the rate of
/// matrix products, and the frontier. Of several programs it shows the one that a reader chooses.
/// Names from the model are data in it, never markup.
std::string makePlanPage(llvm::ArrayRef<PlanPageProgram> programs);

} // namespace mlir::memopt

#endif // MEMOPT_REPORT_PLANPAGE_H
