//===- memopt-compile.cpp - training graph in, package out -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Calibrate.h"
#include "Options.h"

#include "memopt-runtime/Files.h"
#include "memopt-runtime/ThreadPool.h"
#include "memopt/Conversion/ObjectEmission.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Import/Pt2.h"
#include "memopt/Package/Package.h"
#include "memopt/Package/PlanReport.h"
#include "memopt/Pipelines/Pipelines.h"
#include "memopt/Support/InputFile.h"
#include "memopt/Transforms/Frontier.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>
#include <cstring>
#include <new>
#include <unistd.h>

using namespace mlir;
using namespace ::memopt::tool;

namespace {
using ::memopt::StatusCode;

/// Notes and remarks go out as they come; the error itself is kept for the last line.
class ErrorCollector {
public:
  explicit ErrorCollector(MLIRContext &context)
      : handler(&context, [this](Diagnostic &diagnostic) { return take(diagnostic); }) {}

  std::string last;
  bool isQuiet = false; ///< only errors are kept, nothing is printed

private:
  LogicalResult take(Diagnostic &diagnostic) {
    if (isQuiet && diagnostic.getSeverity() != DiagnosticSeverity::Error)
      return success();
    std::string text;
    llvm::raw_string_ostream out(text);
    if (!isa<UnknownLoc>(diagnostic.getLocation()) &&
        diagnostic.getSeverity() == DiagnosticSeverity::Error)
      out << diagnostic.getLocation() << ": ";
    out << diagnostic;
    if (isQuiet) {
      last = text;
      return success();
    }
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
  Compilation(MLIRContext &context, CompileOptions &options)
      : context(context), options(options), errors(context) {}

  int calibrate(const char *program) {
    std::string error;
    StatusCode code = ::memopt::tool::calibrate(context, options, program, error);
    if (errors.last.empty())
      errors.last = error;
    return finish(code);
  }

  int run() { return finish(compile()); }

private:
  StatusCode compile() {
    if (StatusCode code = load(); code != StatusCode::Ok)
      return code;
    if (options.isBatchSearched)
      if (StatusCode code = findLargestBatch(); code != StatusCode::Ok)
        return code;
    if (failed(runPasses(mlir::memopt::buildGraphPipeline)))
      return StatusCode::BadInput;
    if (options.emit == Emit::Graph)
      return print();
    if (!options.evaluate && failed(runPasses(mlir::memopt::buildJointPipeline)))
      return StatusCode::BadInput;
    if (options.emit == Emit::Joint)
      return print();
    if (failed(runPasses(mlir::memopt::buildKernelPipeline)))
      return StatusCode::BadInput;
    if (options.emit == Emit::Kernels)
      return print();
    if (failed(runPasses(mlir::memopt::buildSchedulePipeline)))
      return StatusCode::BadInput;
    if (options.frontierPoints > 0)
      return writeFrontier();
    if (failed(runPasses(mlir::memopt::buildPlanPipeline)))
      return isOverBudget() ? StatusCode::DoesNotFit : StatusCode::BadInput;
    if (StatusCode code = report(); code != StatusCode::Ok)
      return code;
    return options.emit == Emit::Planned ? print() : writePackage();
  }

  /// Doubles the batch until a plan is over the budget, and closes in between: a larger batch never
  /// needs less. Micro-batches have whole samples.
  StatusCode findLargestBatch() {
    constexpr int64_t most = 1 << 20;
    int64_t unit = options.pipeline.microBatches, fits = 0, misses = most + 1, size = 1;
    std::string binding;
    while (fits + 1 < misses) {
      StatusCode code = tryBatch(size * unit);
      if (code != StatusCode::Ok && code != StatusCode::DoesNotFit)
        return code;
      llvm::errs() << "batch of " << size * unit
                   << (code == StatusCode::Ok ? " fits\n" : " does not fit\n");
      (code == StatusCode::Ok ? fits : misses) = size;
      if (code == StatusCode::DoesNotFit)
        binding = errors.last;
      size = misses > most ? std::min(2 * fits, most) : fits + (misses - fits) / 2;
    }
    errors.last = fits ? "" : binding;
    if (!fits)
      return StatusCode::DoesNotFit;
    llvm::errs() << "remark: the largest batch is " << fits * unit;
    if (!binding.empty())
      llvm::errs() << "; with " << misses * unit << " samples: " << binding;
    llvm::errs() << "\n";
    options.pipeline.batch = fits * unit;
    return StatusCode::Ok;
  }

  /// Plans a copy of the module.
  StatusCode tryBatch(int64_t size) {
    OwningOpRef<ModuleOp> original = module->clone();
    options.pipeline.batch = size;
    errors.isQuiet = true;
    StatusCode code = plan();
    errors.isQuiet = false;
    module = std::move(original);
    return code;
  }

  /// All stages, of a training step or an evaluation.
  StatusCode plan() {
    if (failed(runPasses(mlir::memopt::buildGraphPipeline)) ||
        (!options.evaluate && failed(runPasses(mlir::memopt::buildJointPipeline))) ||
        failed(runPasses(mlir::memopt::buildKernelPipeline)) ||
        failed(runPasses(mlir::memopt::buildSchedulePipeline)))
      return StatusCode::BadInput;
    if (failed(runPasses(mlir::memopt::buildPlanPipeline)))
      return isOverBudget() ? StatusCode::DoesNotFit : StatusCode::BadInput;
    return StatusCode::Ok;
  }

  StatusCode load() {
    FailureOr<std::string> resolved =
        mlir::memopt::resolveProcessor(options.targetFeatures, errors.last);
    if (failed(resolved))
      return StatusCode::BadInput;
    processor = *resolved;
    program.threads = options.compilerThreads;
    program.isInstrumented = options.isInstrumented;
    if (llvm::Error error = readModel())
      return keep(std::move(error));
    setTarget();
    return StatusCode::Ok;
  }

  void setTarget() {
    DictionaryAttr profile = options.profile ? options.profile->toAttribute(&context) : nullptr;
    (*module)->setAttr(mlir::memopt::MemoptDialect::kTargetAttr,
                       mlir::memopt::CpuAttr::get(&context, options.targetFeatures,
                                                  options.runThreads, options.reference, profile));
  }

  llvm::Error readModel() {
    if (StringRef(options.input).ends_with(".mlir"))
      return parseModel();
    ::memopt::pt2::ImportOptions import;
    import.loss = options.loss;
    import.evaluate = options.evaluate;
    import.dropout = options.dropout;
    return ::memopt::pt2::importPt2(context, options.input, import).moveInto(module);
  }

  llvm::Error parseModel() {
    auto text = ::memopt::readInputFile(options.input, /*isText=*/true);
    if (!text)
      return llvm::joinErrors(llvm::createStringError(options.input + ": cannot be read"),
                              text.takeError());
    module = parseSourceString<ModuleOp>((*text)->getBuffer(), &context, options.input);
    return module ? llvm::Error::success()
                  : llvm::createStringError(options.input + ": cannot be read");
  }

  /// Remembers what to print last; the diagnostics of a parser say more than an error.
  StatusCode keep(llvm::Error error) {
    std::string text;
    bool isMachine = false;
    llvm::handleAllErrors(std::move(error), [&](const llvm::StringError &part) {
      text += (text.empty() ? "" : ": ") + part.getMessage();
      isMachine |= ::memopt::isMachineError(part.convertToErrorCode());
    });
    if (errors.last.empty())
      errors.last = text;
    return isMachine ? StatusCode::Environment : StatusCode::BadInput;
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

  StatusCode print() {
    OpPrintingFlags flags;
    flags.elideLargeElementsAttrs(16).elideLargeResourceString(16).enableDebugInfo(false);
    module->print(llvm::outs(), flags);
    llvm::outs() << "\n";
    return finishOutput();
  }

  /// What was printed must have arrived.
  StatusCode finishOutput() {
    llvm::outs().flush();
    if (!llvm::outs().has_error())
      return StatusCode::Ok;
    errors.last = "standard output: " + llvm::outs().error().message();
    llvm::outs().clear_error();
    return StatusCode::Environment;
  }

  StatusCode report() {
    if (options.explain)
      llvm::errs() << mlir::memopt::explainPlan(*module);
    if (options.reportPath.empty())
      return StatusCode::Ok;
    return writeText(
        options.reportPath,
        llvm::formatv("{0:2}\n", llvm::json::Value(mlir::memopt::describePlan(*module))).str());
  }

  StatusCode writeFrontier() {
    FailureOr<mlir::memopt::Frontier> frontier = mlir::memopt::Frontier::compute(
        *module, mlir::memopt::BudgetOptions(), options.frontierPoints);
    if (failed(frontier))
      return StatusCode::BadInput;
    llvm::outs() << frontier->toText();
    if (options.frontierPath.empty())
      return finishOutput();
    std::string json = llvm::formatv("{0:2}\n", llvm::json::Value(frontier->toJson())).str();
    if (StatusCode code = writeText(options.frontierPath + ".json", json); code != StatusCode::Ok)
      return code;
    if (StatusCode code = writeText(options.frontierPath + ".svg", frontier->toSvg());
        code != StatusCode::Ok)
      return code;
    return finishOutput();
  }

  StatusCode writeText(const std::string &path, StringRef text) {
    llvm::outs().flush(); // the path may be that of the same file
    ::memopt::Status status = ::memopt::writeFileAtomically(path, text);
    if (!status.isOk())
      errors.last = status.getMessage();
    return status.getCode();
  }

  StatusCode writePackage() {
    if (options.emit == Emit::Llvm)
      return succeeded(mlir::memopt::printProgram(*module, program, llvm::outs()))
                 ? finishOutput()
                 : StatusCode::BadInput;
    mlir::memopt::ManifestOptions manifest;
    manifest.mode = options.evaluate ? "eval" : "train";
    manifest.targetFeatures = processor;
    manifest.isInstrumented = options.isInstrumented;
    manifest.microBatches = options.pipeline.microBatches;
    manifest.planText = mlir::memopt::explainPlan(*module);
    if (!options.evaluate)
      manifest.optimizer =
          llvm::json::Object{{"name", options.optimizerName}, {"lr", options.learningRate}};
    return mlir::memopt::writePackage(*module, manifest, program, options.output);
  }

  int finish(StatusCode code) {
    if (code != StatusCode::Ok)
      llvm::errs() << "memopt-compile: error: "
                   << (errors.last.empty() ? "compilation failed" : errors.last) << "\n";
    return static_cast<int>(code);
  }

  MLIRContext &context;
  CompileOptions &options;
  ErrorCollector errors;
  mlir::memopt::ProgramOptions program;
  std::string processor;
  OwningOpRef<ModuleOp> module;
};
} // namespace

//===----------------------------------------------------------------------===//
// The process
//===----------------------------------------------------------------------===//

/// Ends the process with a line; only what is safe in a signal handler.
[[noreturn]] static void leave(std::initializer_list<const char *> texts, StatusCode code) {
  (void)!::write(STDERR_FILENO, "memopt-compile: error: ", 23);
  for (const char *text : texts)
    (void)!::write(STDERR_FILENO, text, std::strlen(text));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::_exit(static_cast<int>(code));
}

static void onBusError(int signal, siginfo_t *facts, void *) {
  if (const char *file = ::memopt::findMappedFile(facts->si_addr))
    leave({"reading '", file, "': it became shorter meanwhile, or its disk failed"},
          StatusCode::BadInput);
  ::signal(signal, SIG_DFL); // the repeated access ends the process
}

/// What the machine may refuse ends with a message and exit code 3, not with a signal.
static void prepareProcess() {
  auto onNoMemory = [] { leave({"this machine is out of memory"}, StatusCode::Environment); };
  std::set_new_handler(onNoMemory);
  llvm::install_bad_alloc_error_handler(
      [](void *, const char *, bool) {
        leave({"this machine is out of memory"}, StatusCode::Environment);
      },
      nullptr);
  ::signal(SIGXFSZ, SIG_IGN); // a file beyond the limit is a failed write
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = onBusError;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

/// As many threads as asked for, or as the system gives: passes and code generation each have some.
static int countThreads(int wanted) {
  if (wanted == 0)
    wanted = static_cast<int>(llvm::hardware_concurrency().compute_thread_count());
  return wanted == 1 ? 1 : std::max(1, ::memopt::countStartableThreads(2 * wanted) / 2);
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  prepareProcess();
  llvm::Expected<std::unique_ptr<CompileOptions>> options = parseCompileOptions(argc, argv);
  if (!options) {
    llvm::errs() << "memopt-compile: error: " << llvm::toString(options.takeError()) << "\n";
    return static_cast<int>(StatusCode::BadInput);
  }
  DialectRegistry registry;
  mlir::memopt::registerMemoptDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  (*options)->compilerThreads = countThreads((*options)->compilerThreads);
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
