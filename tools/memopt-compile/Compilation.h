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
#include "memopt/Report/PlanPage.h"
#include "memopt/Search/Forms.h"
#include "memopt/Support/Cache.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Timer.h"

#include <chrono>
#include <map>
#include <memory>

namespace memopt::tool {

struct Stage;

/// One compilation, which searches plan in other forms.
class Compilation final : public mlir::memopt::FormPlanner {
public:
  Compilation(mlir::MLIRContext &context, CompileOptions &options);
  /// One of several, whose errors are collected together.
  Compilation(mlir::MLIRContext &context, CompileOptions &options, ErrorCollector &errors);

  int calibrate(const char *program);
  int run();

  //===--------------------------------------------------------------------===//
  // One of several programs of a package (PackageCompilation.h)
  //===--------------------------------------------------------------------===//

  /// Reads the model.
  StatusCode begin();
  /// Goes on to the kernel graph, where the variables are known.
  StatusCode prepare();
  /// The rest, up to the plan.
  StatusCode plan();
  mlir::ModuleOp getModule() { return *module; }
  /// Says in the package that it evaluates the average of the weights.
  void noteAveraged() { isAveraged = true; }
  mlir::memopt::ProgramToWrite describeProgram(llvm::StringRef name);
  mlir::memopt::PlanPageOptions describePage() const;
  /// Adds to the facts of a report how techniques compare, where they were compared.
  void addTechniques(llvm::json::Object &facts) const;
  /// Processes that run the program together: of an evaluation those that share out what it reads.
  int64_t countRanks();
  /// The message on a plan that does not fit, in full.
  StatusCode reportMisfit();
  /// Report and page, behind what they tell of.
  StatusCode writeSides();
  void reportCache();

  mlir::memopt::Form getForm() const override { return mlir::memopt::Form::of(options.pipeline); }
  const mlir::memopt::PipelineOptions &getPipelineOptions() const override {
    return options.pipeline;
  }
  llvm::FailureOr<int64_t> getExportedBatch() override;
  mlir::memopt::Trial tryForm(const mlir::memopt::Form &form, double worthSeconds) override;
  mlir::memopt::Trial tryOptions(llvm::function_ref<void(mlir::memopt::PipelineOptions &)> change,
                                 double worthSeconds) override;

private:
  StatusCode compile();
  StatusCode explainTechniques();
  StatusCode openCache();
  StatusCode load();
  llvm::Error readModel();
  llvm::Error parseModel();
  llvm::FailureOr<std::string> resolveTarget();
  mlir::Attribute describeTarget();
  void setTarget();
  ::memopt::StatusCode checkForeignCalls();
  StatusCode keep(llvm::Error error);

  /// Takes over what a search found: the form that is compiled, or what is said last.
  StatusCode take(mlir::memopt::SearchResult result);
  void markFrozen();
  StatusCode runStage(const Stage &stage);
  std::optional<StatusCode> runStages();
  bool isOverBudget();

  StatusCode print();
  StatusCode finishOutput();
  void summarize();
  void report();
  std::string makePage(std::optional<llvm::json::Object> frontier);
  void explainOverhead(int64_t overhead);
  StatusCode writeEstimate();
  StatusCode writeFrontier();
  StatusCode writeText(const std::string &path, llvm::StringRef text);
  StatusCode writePackage();
  mlir::memopt::ManifestOptions describeManifest();
  llvm::json::Object describeOptimizer() const;
  int finish(StatusCode code);

  class StageScope;
  /// The time of a stage, when it is asked for.
  llvm::Timer *getTimer(llvm::StringRef stage, llvm::StringRef description);

  mlir::MLIRContext &context;
  CompileOptions &options;
  std::optional<ErrorCollector> ownErrors;
  ErrorCollector &errors;
  mlir::memopt::ProgramOptions program;
  ::memopt::Cache *cache = nullptr; ///< where plans and code are found again, or null
  std::string targetName;
  bool isAveraged = false;
  std::chrono::steady_clock::time_point beginTime = std::chrono::steady_clock::now();
  /// Paths and what will be written there.
  std::vector<std::pair<std::string, std::string>> sides;
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
