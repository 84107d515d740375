//===- Forms.h - forms of a step, and what plans them -*- C++ -*- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A form is what may be chosen of a whole step before it is planned: its batch, how it is cut, its
// precision, where state lies. A FormPlanner plans a step in a form; searches know nothing else of
// it, so that a test gives them a planner of its own.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_SEARCH_FORMS_H
#define MEMOPT_SEARCH_FORMS_H

#include "memopt-runtime/base/Status.h"
#include "memopt/Pipelines/Pipelines.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace mlir::memopt {

using ::memopt::StatusCode;

/// Parts into which a search cuts wide layers: as many as there are tiles.
inline constexpr int64_t kMostParts = 1024;

/// What a search over plans may vary of the pipeline's options.
struct Form {
  int64_t batch = 0; ///< samples; 0: as exported
  int64_t microBatches = 1;
  std::string precision, activationDtype;
  std::vector<int64_t> activations; ///< numbers of those kept in that type; empty: all
  bool tilesLayers = false;         ///< wide layers between ops that mix tokens run tile by tile
  OffloadTier offloadOptimizer = {}, offloadParam = {};

  bool operator==(const Form &other) const;

  static Form of(const PipelineOptions &options);
  void apply(PipelineOptions &options) const;
};

/// A form planned under the budgets.
struct Trial {
  Form form;
  StatusCode code = StatusCode::Ok; ///< DoesNotFit: bytes are those of the smallest plan found
  bool isHopeless = false;          ///< left before it was planned: no plan would be fast enough
  int64_t bytes = 0;                ///< of the device
  double seconds = 0;               ///< of a step, predicted
  double leastSeconds = 0;          ///< the same without a budget
  /// Numbers of the wide activations that a plan of this form would narrow to meet the budget, where
  /// the pipeline asks (activationChoice).
  std::vector<int64_t> chosenActivations;
  std::string message;                            ///< unless Ok
  std::shared_ptr<OwningOpRef<ModuleOp>> planned; ///< if Ok
  std::string remarks;                            ///< what was said on the way

  /// Neither planned nor too large: the form is not possible, and the message says why.
  bool isRefused() const { return code != StatusCode::Ok && code != StatusCode::DoesNotFit; }
};

/// Plans one step in any form, and leaves the step as it was.
class FormPlanner {
public:
  virtual ~FormPlanner() = default;

  /// The form and the options that the user asked for.
  virtual Form getForm() const = 0;
  virtual const PipelineOptions &getPipelineOptions() const = 0;
  /// How many samples the imported batch has. Fails where that cannot be told.
  virtual FailureOr<int64_t> getExportedBatch() = 0;

  /// Plans the step in a form, unless its instructions alone, nothing recomputed or waited for,
  /// take as long as `worthSeconds`.
  virtual Trial tryForm(const Form &form,
                        double worthSeconds = std::numeric_limits<double>::infinity()) = 0;
  /// The same under changed options.
  virtual Trial tryOptions(llvm::function_ref<void(PipelineOptions &)> change,
                           double worthSeconds = std::numeric_limits<double>::infinity()) = 0;
};

/// What a search found.
struct SearchResult {
  StatusCode code = StatusCode::Ok;
  Trial best;                ///< if Ok
  std::string remark;        ///< if Ok: what was chosen and what it was chosen from, for people
  std::string message;       ///< unless Ok: the last thing that the user should read
  std::string remarks;       ///< DoesNotFit: what was said of the form that message is about
  int64_t smallestBytes = 0; ///< DoesNotFit: of the device, the least that a trial needs
};

} // namespace mlir::memopt

#endif // MEMOPT_SEARCH_FORMS_H
