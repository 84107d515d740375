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

#include "memopt-runtime/Status.h"
#include "memopt/Package/Package.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Timer.h"

#include <chrono>
#include <map>
#include <memory>

namespace memopt::tool {

struct Stage;

/// What a search over plans may vary of the pipeline's options.
struct Form {
  int64_t batch = 0; ///< samples; 0: as exported
  int64_t microBatches = 1;
  std::string precision;
  bool offloadOptimizer = false, offloadParam = false;
};

/// A form planned under the budget.
struct Trial {
  Form form;
  StatusCode code; ///< DoesNotFit: bytes are those of the smallest plan found
  int64_t bytes = 0;
  double seconds = 0;  ///< of a step, predicted
  std::string message; ///< unless Ok
};

/// One compilation.
class Compilation {
public:
  Compilation(mlir::MLIRContext &context, CompileOptions &options);

  int calibrate(const char *program);
  int run();

  // For searches, which leave the module as it was loaded.
  const CompileOptions &getOptions() const { return options; }
  /// Plans a copy of the module.
  Trial tryForm(const Form &form);
  /// The same under changed options, which are put back.
  Trial tryOptions(llvm::function_ref<void(mlir::memopt::PipelineOptions &)> change);
  Form getForm() const;
  void setForm(const Form &form);
  /// How many samples the imported batch has. Fails where that cannot be told.
  llvm::FailureOr<int64_t> getExportedBatch();
  /// What is said last if nothing goes well; of a budget that is too small, also the smallest that
  /// a trial found to do.
  void setMessage(std::string message) { errors.last = std::move(message); }
  void setSmallest(int64_t bytes) { smallestBytes = bytes; }

private:
  StatusCode compile();
  StatusCode explainTechniques();
  StatusCode load();
  llvm::Error readModel();
  llvm::Error parseModel();
  llvm::FailureOr<std::string> resolveTarget();
  void setTarget();
  StatusCode keep(llvm::Error error);

  StatusCode runStage(const Stage &stage);
  bool isOverBudget();

  StatusCode print();
  StatusCode finishOutput();
  void summarize();
  StatusCode report();
  StatusCode writePage(std::optional<llvm::json::Object> frontier);
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
  std::string targetName;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::optional<llvm::json::Array> techniques; ///< for the report, when they were compared
  int64_t smallestBytes = 0;                   ///< of all forms that were tried, when none fits
  mlir::OwningOpRef<mlir::ModuleOp> module;
  llvm::TimerGroup times;
  std::map<std::string, std::unique_ptr<llvm::Timer>> timers;
};

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_COMPILATION_H
