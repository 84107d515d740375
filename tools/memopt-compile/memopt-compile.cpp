//===- memopt-compile.cpp - training graph in, package out -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Calibrate.h"
#include "Options.h"

#include "memopt/Conversion/ObjectEmission.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Import/Pt2.h"
#include "memopt/Package/Package.h"
#include "memopt/Package/PlanReport.h"
#include "memopt/Package/Program.h"
#include "memopt/Pipelines/Pipelines.h"
#include "memopt/Transforms/Frontier.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace ::memopt::tool;

namespace {
enum ExitCode { kDone = 0, kBadInput = 1, kDoesNotFit = 2, kEnvironment = 3 };

/// Notes and remarks go out as they come; the error itself is kept for the last line.
class ErrorCollector {
public:
  explicit ErrorCollector(MLIRContext &context)
      : handler(&context, [this](Diagnostic &diagnostic) { return take(diagnostic); }) {}

  std::string last;

private:
  LogicalResult take(Diagnostic &diagnostic) {
    std::string text;
    llvm::raw_string_ostream out(text);
    if (!isa<UnknownLoc>(diagnostic.getLocation()) &&
        diagnostic.getSeverity() == DiagnosticSeverity::Error)
      out << diagnostic.getLocation() << ": ";
    out << diagnostic;
    for (Diagnostic &note : diagnostic.getNotes())
      llvm::errs() << "note: " << note << "\n";
    if (diagnostic.getSeverity() != DiagnosticSeverity::Error) {
      llvm::errs() << (diagnostic.getSeverity() == DiagnosticSeverity::Warning ? "warning: "
                                                                               : "remark: ")
                   << text << "\n";
      return success();
    }
    if (!last.empty())
      llvm::errs() << "error: " << last << "\n";
    last = text;
    return success();
  }

  ScopedDiagnosticHandler handler;
};

/// One compilation from the command line's options to files.
class Compilation {
public:
  Compilation(MLIRContext &context, const CompileOptions &options)
      : context(context), options(options), errors(context) {}

  int calibrate(const char *program) {
    std::string error;
    int code = ::memopt::tool::calibrate(context, options, program, error);
    if (errors.last.empty())
      errors.last = error;
    return finish(static_cast<ExitCode>(code));
  }

  int run() {
    if (failed(load()) || failed(runPasses(mlir::memopt::buildBatchPipeline)) ||
        (options.emit == Emit::Graph && failed(print())))
      return finish(kBadInput);
    if (options.emit == Emit::Graph)
      return finish(kDone);
    if (!options.evaluate && failed(runPasses(mlir::memopt::buildJointPipeline)))
      return finish(kBadInput);
    if (options.emit == Emit::Joint)
      return finish(succeeded(print()) ? kDone : kBadInput);
    if (failed(runPasses(mlir::memopt::buildKernelPipeline)))
      return finish(kBadInput);
    if (options.emit == Emit::Kernels)
      return finish(succeeded(print()) ? kDone : kBadInput);
    if (failed(runPasses(mlir::memopt::buildSchedulePipeline)))
      return finish(kBadInput);
    if (options.frontierPoints > 0)
      return finish(succeeded(writeFrontier()) ? kDone : kEnvironment);
    if (failed(runPasses(mlir::memopt::buildPlanPipeline)))
      return finish(isOverBudget() ? kDoesNotFit : kBadInput);
    if (failed(report()))
      return finish(kEnvironment);
    if (options.emit == Emit::Planned)
      return finish(succeeded(print()) ? kDone : kBadInput);
    return finish(succeeded(writePackage()) ? kDone : kEnvironment);
  }

private:
  LogicalResult load() {
    if (failed(readModel()))
      return failure();
    setTarget();
    return success();
  }

  void setTarget() {
    DictionaryAttr profile = options.profile ? options.profile->toAttribute(&context) : nullptr;
    (*module)->setAttr(mlir::memopt::MemoptDialect::kTargetAttr,
                       mlir::memopt::CpuAttr::get(&context, options.targetFeatures,
                                                  options.runThreads, options.reference, profile));
  }

  LogicalResult readModel() {
    if (StringRef(options.input).ends_with(".mlir")) {
      module = parseSourceFile<ModuleOp>(options.input, &context);
      if (!module && errors.last.empty())
        errors.last = options.input + ": cannot be read";
      return success(static_cast<bool>(module));
    }
    ::memopt::pt2::ImportOptions import;
    import.loss = options.loss;
    import.evaluate = options.evaluate;
    import.dropout = options.dropout;
    auto imported = ::memopt::pt2::importPt2(context, options.input, import);
    if (!imported) {
      errors.last = llvm::toString(imported.takeError());
      return failure();
    }
    module = std::move(*imported);
    return success();
  }

  LogicalResult runPasses(void (*build)(OpPassManager &, const mlir::memopt::PipelineOptions &)) {
    PassManager manager(&context);
    build(manager, options.pipeline);
    return manager.run(*module);
  }

  bool isOverBudget() {
    using namespace mlir::memopt;
    auto planned = (*module)->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr);
    return planned && options.deviceBudget >= 0 &&
           planned.getArenaBytesOf(Space::Device) > options.deviceBudget;
  }

  LogicalResult print() {
    OpPrintingFlags flags;
    flags.elideLargeElementsAttrs(16).elideLargeResourceString(16).enableDebugInfo(false);
    module->print(llvm::outs(), flags);
    llvm::outs() << "\n";
    return success();
  }

  LogicalResult report() {
    if (options.explain)
      llvm::errs() << mlir::memopt::explainPlan(*module);
    if (options.reportPath.empty())
      return success();
    return writeText(
        options.reportPath,
        llvm::formatv("{0:2}\n", llvm::json::Value(mlir::memopt::describePlan(*module))).str());
  }

  LogicalResult writeFrontier() {
    FailureOr<mlir::memopt::Frontier> frontier = mlir::memopt::Frontier::compute(
        *module, mlir::memopt::BudgetOptions(), options.frontierPoints);
    if (failed(frontier))
      return failure();
    llvm::outs() << frontier->toText();
    if (options.frontierPath.empty())
      return success();
    std::string json = llvm::formatv("{0:2}\n", llvm::json::Value(frontier->toJson())).str();
    return success(succeeded(writeText(options.frontierPath + ".json", json)) &&
                   succeeded(writeText(options.frontierPath + ".svg", frontier->toSvg())));
  }

  LogicalResult writeText(const std::string &path, StringRef text) {
    std::error_code error;
    llvm::raw_fd_ostream out(path, error);
    if (!error) {
      out << text;
      out.close();
      error = out.error();
      out.clear_error();
    }
    if (error)
      errors.last = path + ": " + error.message();
    return success(!error);
  }

  LogicalResult writePackage() {
    mlir::memopt::ProgramOptions program;
    program.threads = options.compilerThreads;
    program.isInstrumented = options.isInstrumented;
    if (options.emit == Emit::Llvm)
      return mlir::memopt::printProgram(*module, program, llvm::outs());
    FailureOr<std::string> processor =
        mlir::memopt::resolveProcessor(options.targetFeatures, errors.last);
    if (failed(processor))
      return failure();
    if (std::error_code error = llvm::sys::fs::create_directories(options.output)) {
      errors.last = options.output + ": cannot make the package's folder: " + error.message();
      return failure();
    }
    mlir::memopt::ManifestOptions manifest;
    manifest.mode = options.evaluate ? "eval" : "train";
    manifest.targetFeatures = *processor;
    manifest.isInstrumented = options.isInstrumented;
    manifest.microBatches = options.pipeline.microBatches;
    manifest.planText = mlir::memopt::explainPlan(*module);
    if (!options.evaluate)
      manifest.optimizer = llvm::json::Object{{"name", options.pipeline.optimizer.getValue()},
                                              {"lr", options.learningRate}};
    if (failed(mlir::memopt::writePackageData(*module, manifest, options.output)))
      return failure();
    SmallString<128> path(options.output);
    llvm::sys::path::append(path, "program.so");
    return mlir::memopt::writeProgram(*module, program, path);
  }

  int finish(ExitCode code) {
    if (code != kDone)
      llvm::errs() << "memopt-compile: error: "
                   << (errors.last.empty() ? "compilation failed" : errors.last) << "\n";
    return code;
  }

  MLIRContext &context;
  const CompileOptions &options;
  ErrorCollector errors;
  OwningOpRef<ModuleOp> module;
};
} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  llvm::Expected<std::unique_ptr<CompileOptions>> options = parseCompileOptions(argc, argv);
  if (!options) {
    llvm::errs() << "memopt-compile: error: " << llvm::toString(options.takeError()) << "\n";
    return kBadInput;
  }
  DialectRegistry registry;
  mlir::memopt::registerMemoptDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  std::unique_ptr<llvm::ThreadPoolInterface> pool;
  if ((*options)->compilerThreads != 1) {
    pool = std::make_unique<llvm::DefaultThreadPool>(
        llvm::hardware_concurrency((*options)->compilerThreads));
    context.setThreadPool(*pool);
  }
  // Messages go to people: they name the place, and leave out the text of a whole module.
  context.printOpOnDiagnostic(false);
  context.loadAllAvailableDialects();
  Compilation compilation(context, **options);
  return (*options)->isCalibration ? compilation.calibrate(argv[0]) : compilation.run();
}
