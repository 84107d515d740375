//===- PlanReport.h - a plan for programs and for people -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_REPORT_PLANREPORT_H
#define MEMOPT_REPORT_PLANREPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

#include <optional>
#include <string>

namespace mlir::memopt {

struct Buffer;

/// What a report counts a buffer's bytes as: a variable's role, or input, activation, sent,
/// workspace.
StringRef getKindName(const Buffer &buffer);

/// How often a step runs an instruction: as often as the loops around it turn.
int64_t getRuns(Operation *op);

/// Numbers of a planned module: peak, bound, instructions, recomputation, and bytes at the peak by
/// kind and module.
llvm::json::Object describePlan(ModuleOp planned);

/// What a budget of device memory fell short of: the smallest that would do, and where a plan of
/// that size is in place (it was refused last), its bound and its peak.
llvm::json::Object describeMisfit(ModuleOp module, ArrayRef<int64_t> budgets,
                                  ArrayRef<int64_t> smallest);

/// Seconds that no order and no plan of a kernel graph's instructions is predicted below: what runs
/// in turn, or what the busiest resource does.
double getLeastSeconds(ModuleOp kernels);

/// The same as describePlan in words.
std::string explainPlan(ModuleOp planned);

} // namespace mlir::memopt

#endif // MEMOPT_REPORT_PLANREPORT_H
