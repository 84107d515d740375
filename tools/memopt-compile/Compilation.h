//===- Compilation.h - from the command line's options to files -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_COMPILATION_H
#define MEMOPT_TOOLS_COMPILE_COMPILATION_H

#include "ErrorCollector.h"
#include "Options.h"

#include "memopt-runtime/base/Status.h"
#include "memopt/Package/Package.h"
#include "memopt/Support/Cache.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Timer.h"

#include <chrono>
#include <limits>
#include <map>
#include <memory>

namespace memopt::tool {

struct Stage;

/// What a search over plans may vary of the pipeline's options.
struct Form {
  int64_t batch = 0; ///< samples; 0: as exported
  int64_t microBatches = 1;
  std::string precision, activationDtype;
  int64_t activationShare = 100; ///< percent of the bytes of kept activations in that type
  mlir::memopt::OffloadTier offloadOptimizer = {}, offloadParam = {};
};

/// A form planned under the budget.
struct Trial {
  Form form;
  StatusCode code = StatusCode::Ok; ///< DoesNotFit: bytes are those of the smallest plan found
  bool isHopeless = false;          ///< left before it was planned: no plan would be fast enough
  int64_t bytes = 0;
  double seconds = 0;      ///< of a step, predicted
  double leastSeconds = 0; ///< the same without a budget
  std::string message;     ///< unless Ok
  /// If Ok: the planned step, and what was said on the way.
  std::shared_ptr<mlir::OwningOpRef<mlir::ModuleOp>> planned;
  std::string remarks;
};

/// One compilation.
class Compilation {
public:
  Compilation(mlir::MLIRContext &context, CompileOptions &options);

  int calibrate(const char *program);
  int run();

  // For searches, which leave the module as it was loaded.
  const CompileOptions &getOptions() const { return options; }
  /// Plans a copy of the module, unless its instructions alone, nothing recomputed or waited for,
  /// take as long as `worthSeconds`.
  Trial tryForm(const Form &form, double worthSeconds = std::numeric_limits<double>::infinity());
  /// The same under changed options, which are put back.
  Trial tryOptions(llvm::function_ref<void(mlir::memopt::PipelineOptions &)> change,
                   double worthSeconds = std::numeric_limits<double>::infinity());
  Form getForm() const;
  /// The form that is compiled, unless another one is adopted.
  void adopt(const Trial &trial);
  /// How many samples the imported batch has. Fails where that cannot be told.
  llvm::FailureOr<int64_t> getExportedBatch();
  /// What is said last if nothing goes well; of a budget that is too small, also the smallest that
  /// a trial found to do.
  void setMessage(std::string message) { errors.last = std::move(message); }
  void setSmallest(int64_t bytes) { smallestBytes = bytes; }

private:
  StatusCode compile();
  StatusCode explainTechniques();
  StatusCode openCache();
  void reportCache();
  StatusCode load();
  llvm::Error readModel();
  llvm::Error parseModel();
  llvm::FailureOr<std::string> resolveTarget();
  void setTarget();
  StatusCode keep(llvm::Error error);

  void setForm(const Form &form);
  StatusCode runStage(const Stage &stage);
  std::optional<StatusCode> runStages();
  bool isOverBudget();

  StatusCode print();
  StatusCode finishOutput();
  void summarize();
  StatusCode report();
  StatusCode writePage(std::optional<llvm::json::Object> frontier);
  void explainOverhead(int64_t overhead);
  StatusCode reportMisfit();
  StatusCode writeEstimate();
  StatusCode writeFrontier();
  StatusCode writeText(const std::string &path, llvm::StringRef text);
  StatusCode writePackage();
  int finish(StatusCode code);

  class StageScope;
  /// The time of a stage, when it is asked for.
  llvm::Timer *getTimer(llvm::StringRef stage, llvm::StringRef description);

  mlir::MLIRContext &context;
  CompileOptions &options;
  ErrorCollector errors;
  mlir::memopt::ProgramOptions program;
  ::memopt::Cache *cache = nullptr; ///< where plans and code are found again, or null
  std::string targetName;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::optional<llvm::json::Array> techniques; ///< for the report, when they were compared
  int64_t smallestBytes = 0;                   ///< of all forms that were tried, when none fits
  mlir::OwningOpRef<mlir::ModuleOp> module;
  /// The adopted form's plan, and what was said on the way; null where there is none.
  std::shared_ptr<mlir::OwningOpRef<mlir::ModuleOp>> planned;
  std::string remarks;
  llvm::TimerGroup times;
  std::map<std::string, std::unique_ptr<llvm::Timer>> timers;
};

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_COMPILATION_H
