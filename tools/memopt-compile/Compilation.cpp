//===- Compilation.cpp - from the command line's options to files -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Compilation.h"
#include "Calibrate.h"

#include "memopt/Analysis/BatchModel.h"
#include "memopt/Analysis/FrozenVariable.h"
#include "memopt/Conversion/Objects/ObjectEmission.h"
#include "memopt/Dialect/ApartOps.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Dialect/Program.h"
#include "memopt/Import/Graph/Pt2.h"
#include "memopt/Package/SharedState.h"
#include "memopt/Pipelines/Pipelines.h"
#include "memopt/Report/Estimate.h"
#include "memopt/Report/Frontier.h"
#include "memopt/Report/PlanReport.h"
#include "memopt/Search/FormSearch.h"
#include "memopt/Search/Techniques.h"
#include "memopt/Support/InputFile.h"
#include "memopt/Target/Cuda/CudaTarget.h"
#include "memopt/Transforms/Optimizers/Optimizers.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace ::memopt::tool;
using ::memopt::StatusCode;

Compilation::Compilation(MLIRContext &context, CompileOptions &options)
    : context(context), options(options), ownErrors(std::in_place, context), errors(*ownErrors),
      times("memopt", "Time by stage") {}

Compilation::Compilation(MLIRContext &context, CompileOptions &options, ErrorCollector &errors)
    : context(context), options(options), errors(errors), times("memopt", "Time by stage") {}

int Compilation::calibrate(const char *program) {
  std::string error;
  StatusCode code = ::memopt::tool::calibrate(context, options, program, error);
  if (errors.last.empty())
    errors.last = error;
  return finish(code);
}

int Compilation::run() {
  StatusCode code = compile();
  if (code == StatusCode::DoesNotFit)
    code = reportMisfit();
  if (options.isTimed)
    times.print(llvm::errs(), /*ResetAfterPrint=*/true);
  if (cache)
    reportCache();
  return finish(code);
}

int Compilation::finish(StatusCode code) {
  if (code != StatusCode::Ok)
    llvm::errs() << "memopt-compile: error: "
                 << (errors.last.empty() ? "compilation failed" : errors.last) << "\n";
  return static_cast<int>(code);
}

/// While it lives a stage is timed, when that is asked for, and a terminal shows it in a line that
/// goes with it.
class Compilation::StageScope {
public:
  StageScope(Compilation &compilation, StringRef name, StringRef description)
      : isShown(!compilation.options.isQuiet && !compilation.errors.isQuiet &&
                llvm::errs().is_displayed()),
        time(compilation.getTimer(name, description)) {
    if (isShown)
      llvm::errs() << description << " ...";
  }
  ~StageScope() {
    constexpr llvm::StringLiteral clearLine = "\r\033[K";
    if (isShown)
      llvm::errs() << clearLine;
  }

private:
  bool isShown;
  llvm::TimeRegion time;
};

llvm::Timer *Compilation::getTimer(StringRef stage, StringRef description) {
  if (!options.isTimed)
    return nullptr;
  std::unique_ptr<llvm::Timer> &timer = timers[stage.str()];
  if (!timer)
    timer = std::make_unique<llvm::Timer>(stage, description, times);
  return timer.get();
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

struct ::memopt::tool::Stage {
  llvm::StringLiteral name, description;
  void (*build)(OpPassManager &, const mlir::memopt::PipelineOptions &);
  enum Mode { Both, Training, Evaluation } mode;
  std::optional<Emit> emit; ///< what may be printed behind it
};

static const Stage kGraph = {"graph", "graph: batch size, fusion, precision",
                             mlir::memopt::buildGraphPipeline, Stage::Both, Emit::Graph};
static const Stage kJoint = {"joint", "joint: gradients, update, accumulation",
                             mlir::memopt::buildJointPipeline, Stage::Training, Emit::Joint};
static const Stage kState = {"state", "state: in the form that the training keeps it",
                             mlir::memopt::buildStatePipeline, Stage::Evaluation, std::nullopt};
static const Stage kKernels = {"kernels", "kernels: layouts, lowering, fusion",
                               mlir::memopt::buildKernelPipeline, Stage::Both, Emit::Kernels};
static const Stage kSchedule = {"schedule", "schedule: the order of the step",
                                mlir::memopt::buildSchedulePipeline, Stage::Both, std::nullopt};
static const Stage kPlan = {"plan", "plan: recomputation, addresses",
                            mlir::memopt::buildPlanPipeline, Stage::Both, Emit::Planned};
static const Stage *const kStages[] = {&kGraph, &kJoint, &kState, &kKernels, &kSchedule, &kPlan};

StatusCode Compilation::compile() {
  if (StatusCode code = begin(); code != StatusCode::Ok)
    return code;
  if (options.isBatchSearched)
    if (StatusCode code = take(mlir::memopt::findLargestBatch(*this, llvm::errs()));
        code != StatusCode::Ok)
      return code;
  if (options.isFormSearched)
    if (StatusCode code = take(mlir::memopt::chooseForm(*this, options.automatic, llvm::errs()));
        code != StatusCode::Ok)
      return code;
  if (options.explainsTechniques)
    if (StatusCode code = explainTechniques(); code != StatusCode::Ok)
      return code;
  if (planned) {
    module = std::move(*planned);
    llvm::errs() << remarks;
  } else if (std::optional<StatusCode> end = runStages()) {
    return *end;
  }
  report();
  StatusCode code = options.emit == Emit::Planned ? print() : writePackage();
  if (code == StatusCode::Ok && options.emit == Emit::Package && !options.isQuiet)
    summarize();
  return code == StatusCode::Ok ? writeSides() : code;
}

/// What the compilation ends with, where it ends with a stage.
std::optional<StatusCode> Compilation::runStages() {
  for (const Stage *stage : kStages) {
    if (stage == &kPlan && options.frontierPoints > 0)
      return writeFrontier();
    if (StatusCode code = runStage(*stage); code != StatusCode::Ok)
      return code;
    if (stage == &kJoint && options.isEstimate)
      return writeEstimate();
    if (options.emit == stage->emit && options.emit != Emit::Planned)
      return print();
  }
  return std::nullopt;
}

StatusCode Compilation::begin() {
  if (StatusCode code = openCache(); code != StatusCode::Ok)
    return code;
  return load();
}

StatusCode Compilation::prepare() {
  // So that plans of a search count the state as it will lie.
  (*module)->setAttr(mlir::memopt::kSharesStateAttr, UnitAttr::get(&context));
  if (options.isBatchSearched)
    if (StatusCode code = take(mlir::memopt::findLargestBatch(*this, llvm::errs()));
        code != StatusCode::Ok)
      return code;
  if (options.isFormSearched)
    if (StatusCode code = take(mlir::memopt::chooseForm(*this, options.automatic, llvm::errs()));
        code != StatusCode::Ok)
      return code;
  if (options.explainsTechniques)
    if (StatusCode code = explainTechniques(); code != StatusCode::Ok)
      return code;
  planned.reset(); // it is made again, behind the variables of the other programs
  for (const Stage *stage : {&kGraph, &kJoint, &kState, &kKernels})
    if (StatusCode code = runStage(*stage); code != StatusCode::Ok)
      return code;
  return StatusCode::Ok;
}

StatusCode Compilation::plan() {
  for (const Stage *stage : {&kSchedule, &kPlan})
    if (StatusCode code = runStage(*stage); code != StatusCode::Ok)
      return code;
  report();
  return StatusCode::Ok;
}

StatusCode Compilation::explainTechniques() {
  FailureOr<mlir::memopt::TechniqueTable> table =
      mlir::memopt::compareTechniques(*this, errors.last);
  if (failed(table))
    return StatusCode::BadInput;
  table->print(llvm::errs());
  techniques = table->toJson();
  return StatusCode::Ok;
}

/// Says of frozen parameters which form they will have: what will be codes ranks do not share out.
void Compilation::markFrozen() {
  using namespace mlir::memopt;
  auto form = FrozenForm::parse(options.pipeline.frozenWeights, options.pipeline.frozenScales,
                                [&] { return mlir::emitError(UnknownLoc::get(&context)); });
  if (failed(form) || !*form)
    return;
  for (auto variable : module->getOps<VariableOp>())
    if ((*form)->suits(variable))
      (*form)->attachOfState(variable);
}

StatusCode Compilation::runStage(const Stage &stage) {
  if (stage.mode == (options.evaluate ? Stage::Training : Stage::Evaluation))
    return StatusCode::Ok;
  StageScope scope(*this, stage.name, stage.description);
  if (&stage == &kJoint)
    markFrozen();
  PassManager manager(&context);
#ifdef NDEBUG
  // With asserts a module is verified after each pass. What comes behind the joint graph is our own
  // and is verified once a stage: of long chains each pass would cost less than its verification.
  manager.enableVerifier(&stage == &kGraph || &stage == &kJoint || &stage == &kState);
#endif
  stage.build(manager, options.pipeline);
  if (succeeded(manager.run(*module)) && succeeded(mlir::verify(*module)))
    return StatusCode::Ok;
  if (mlir::memopt::isCudnnUnavailable())
    return StatusCode::Environment;
  return isOverBudget() ? StatusCode::DoesNotFit : StatusCode::BadInput;
}

bool Compilation::isOverBudget() {
  using namespace mlir::memopt;
  auto planned = (*module)->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr);
  auto isAbove = [&](Space space, int64_t budget) {
    return planned && budget >= 0 && planned.getArenaBytesOf(space) > budget;
  };
  return isAbove(Space::Device, options.deviceBudget) || isAbove(Space::Host, options.hostBudget) ||
         isAbove(Space::Disk, options.diskBudget);
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

mlir::memopt::Trial Compilation::tryForm(const mlir::memopt::Form &form, double worthSeconds) {
  mlir::memopt::Trial trial = tryOptions(
      [&](mlir::memopt::PipelineOptions &pipeline) { form.apply(pipeline); }, worthSeconds);
  trial.form = form;
  return trial;
}

mlir::memopt::Trial
Compilation::tryOptions(function_ref<void(mlir::memopt::PipelineOptions &)> change,
                        double worthSeconds) {
  using namespace mlir::memopt;
  OwningOpRef<ModuleOp> original = module->clone();
  PipelineOptions given;
  given.copyOptionValuesFrom(options.pipeline);
  change(options.pipeline);
  errors.isQuiet = true;
  errors.remarks.clear();
  Trial trial;
  for (const Stage *stage : kStages) {
    if (stage == &kPlan) {
      trial.leastSeconds = getLeastSeconds(*module);
      trial.isHopeless = trial.leastSeconds >= worthSeconds;
    }
    if (trial.isHopeless)
      break;
    if (trial.code = runStage(*stage); trial.code != StatusCode::Ok)
      break;
  }
  errors.isQuiet = false;
  trial.remarks = std::exchange(errors.remarks, "");
  if (trial.code != StatusCode::Ok)
    trial.message = std::exchange(errors.last, "");
  if (auto planned = (*module)->getAttrOfType<PlannedAttr>(MemoptDialect::kPlannedAttr))
    trial.bytes = planned.getArenaBytesOf(Space::Device);
  if (auto chosen =
          (*module)->getAttrOfType<DenseI64ArrayAttr>(MemoptDialect::kChosenActivationsAttr)) {
    trial.chosenActivations = chosen.asArrayRef().vec();
    (*module)->removeAttr(MemoptDialect::kChosenActivationsAttr);
  }
  if (trial.code == StatusCode::Ok && !trial.isHopeless) {
    trial.seconds = describePlan(*module).getNumber("predicted_seconds").value_or(0);
    trial.planned = std::make_shared<OwningOpRef<ModuleOp>>(std::move(module));
  }
  options.pipeline.copyOptionValuesFrom(given);
  module = std::move(original);
  return trial;
}

StatusCode Compilation::take(mlir::memopt::SearchResult result) {
  if (result.code != StatusCode::Ok) {
    llvm::errs() << result.remarks;
    errors.last = std::move(result.message);
    smallestBytes = result.smallestBytes;
    return result.code;
  }
  llvm::errs() << "remark: " << result.remark << "\n";
  result.best.form.apply(options.pipeline);
  options.pipeline.activationChoice = "f32"; // it is made
  // What is asked for before there is a plan is made again.
  if (options.emit < Emit::Planned || options.frontierPoints > 0 || options.isEstimate)
    return StatusCode::Ok;
  planned = result.best.planned;
  remarks = std::move(result.best.remarks);
  return StatusCode::Ok;
}

FailureOr<int64_t> Compilation::getExportedBatch() {
  using namespace mlir::memopt;
  errors.isQuiet = true;
  FailureOr<StepModel> step = StepModel::create(*module);
  FailureOr<BatchModel> batch = failure();
  if (succeeded(step))
    batch = BatchModel::create(*step);
  errors.isQuiet = false;
  errors.last.clear();
  if (failed(batch))
    return failure();
  return batch->getBatchSize();
}

//===----------------------------------------------------------------------===//
// Input
//===----------------------------------------------------------------------===//

/// What a folder of results may grow to. Those of a model take a few megabytes.
static std::optional<uint64_t> getCacheLimit() {
  const char *chosen = std::getenv("MEMOPT_CACHE_BYTES");
  uint64_t bytes = uint64_t(1) << 30;
  if (chosen && StringRef(chosen).getAsInteger(10, bytes))
    return std::nullopt;
  return bytes;
}

StatusCode Compilation::openCache() {
  if (options.pipeline.cache.empty())
    return StatusCode::Ok;
  if (!getCacheLimit()) {
    errors.last = "MEMOPT_CACHE_BYTES is the size of caches, a number of bytes";
    return StatusCode::BadInput;
  }
  llvm::Expected<::memopt::Cache *> opened = ::memopt::Cache::open(options.pipeline.cache);
  if (!opened) {
    errors.last = llvm::toString(opened.takeError());
    return StatusCode::Environment;
  }
  cache = program.cache = *opened;
  return StatusCode::Ok;
}

void Compilation::reportCache() {
  if (!cache)
    return;
  for (const std::string &complaint : cache->takeComplaints())
    llvm::errs() << "remark: " << complaint << "\n";
  cache->prune(*getCacheLimit());
  if (!options.isTimed)
    return;
  llvm::errs() << "Cache:";
  for (const auto &[kind, counts] : cache->getCounts())
    llvm::errs() << llvm::formatv(" {0} {1} of {2} found;", kind, counts.found,
                                  counts.found + counts.made);
  llvm::errs() << " in " << options.pipeline.cache << "\n";
}

/// The name of what is compiled for: a device, or a processor that LLVM knows.
FailureOr<std::string> Compilation::resolveTarget() {
  if (options.device)
    return options.device->name;
  return mlir::memopt::resolveProcessor(options.targetFeatures, errors.last);
}

StatusCode Compilation::load() {
  FailureOr<std::string> resolved = resolveTarget();
  if (failed(resolved))
    return StatusCode::BadInput;
  targetName = *resolved;
  program.threads = options.pipeline.threads = options.compilerThreads;
  program.isInstrumented = options.isInstrumented;
  StageScope scope(*this, "import", "import: the file and its operators");
  if (llvm::Error error = readModel())
    return keep(std::move(error));
  setTarget();
  return checkForeignCalls();
}

/// C source runs on processors alone.
StatusCode Compilation::checkForeignCalls() {
  mlir::memopt::ForeignCallOp call;
  if (options.device)
    (*module)->walk([&](mlir::memopt::ForeignCallOp op) { call = op; });
  if (!call)
    return StatusCode::Ok;
  errors.last = "the operator '" + call.getFunction().str() +
                "' is given in C, which does not run on a GPU; give it as a function of MLIR";
  return StatusCode::BadInput;
}

/// What gathers and scattered sums take in the mean: the plan decides when either may begin.
static ::memopt::planning::RankLink getMeanLink(const ::memopt::planning::RankLevel &level) {
  const ::memopt::planning::RankLink &gathers = level.link, sums = level.sums.value_or(gathers);
  return {(gathers.latency + sums.latency) / 2,
          2 / (1 / gathers.bytesPerSecond + 1 / sums.bytesPerSecond)};
}

/// Latencies in whole nanoseconds, rates in whole bytes a second.
static mlir::memopt::NetworkAttr describeNetwork(MLIRContext *context,
                                                 const ::memopt::planning::RankNetwork &network) {
  SmallVector<int64_t> members, latencies, rates;
  for (const ::memopt::planning::RankLevel &level : network.levels) {
    ::memopt::planning::RankLink link = getMeanLink(level);
    members.push_back(level.members);
    latencies.push_back(std::llround(link.latency * 1e9));
    rates.push_back(std::max<int64_t>(1, std::llround(std::min(link.bytesPerSecond, 1e18))));
  }
  return mlir::memopt::NetworkAttr::get(context, members, latencies, rates);
}

Attribute Compilation::describeTarget() {
  if (options.device)
    return options.device->toAttribute(&context);
  DictionaryAttr profile = options.profile ? options.profile->toAttribute(&context) : nullptr;
  return mlir::memopt::CpuAttr::get(&context, options.targetFeatures, options.runThreads,
                                    options.reference, profile);
}

void Compilation::setTarget() {
  if (options.pipeline.ranks > 1 && !options.network.levels.empty())
    (*module)->setAttr(mlir::memopt::MemoptDialect::kNetworkAttr,
                       describeNetwork(&context, options.network));
  (*module)->setAttr(mlir::memopt::MemoptDialect::kTargetAttr, describeTarget());
}

llvm::Error Compilation::readModel() {
  if (StringRef(options.input).ends_with(".mlir"))
    return parseModel();
  ::memopt::pt2::ImportOptions import;
  import.loss = options.loss;
  import.evaluate = options.evaluate;
  import.dropout = options.dropout;
  import.allowsC = options.allowsC;
  context.loadDialect<mlir::memopt::MemoptDialect>();
  import.target = describeTarget();
  import.dimensions = options.dimensions;
  return ::memopt::pt2::importPt2(context, options.input, import).moveInto(module);
}

llvm::Error Compilation::parseModel() {
  auto text = ::memopt::readInputFile(options.input, /*isText=*/true);
  if (!text)
    return llvm::joinErrors(llvm::createStringError(options.input + ": cannot be read"),
                            text.takeError());
  module = parseSourceString<ModuleOp>((*text)->getBuffer(), &context, options.input);
  return module ? llvm::Error::success()
                : llvm::createStringError(options.input + ": cannot be read");
}

/// Remembers what to print last; the diagnostics of a parser say more than an error.
StatusCode Compilation::keep(llvm::Error error) {
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

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

/// State is read off the joint graph, which knows what parameters are for, activations off the
/// kernel graph, which knows what is kept.
StatusCode Compilation::writeEstimate() {
  FailureOr<mlir::memopt::Estimate> estimate = mlir::memopt::Estimate::create(*module);
  if (failed(estimate) || runStage(kKernels) != StatusCode::Ok ||
      failed(estimate->addActivations(*module)))
    return StatusCode::BadInput;
  llvm::outs() << estimate->toText();
  if (StatusCode code = finishOutput(); code != StatusCode::Ok || options.reportPath.empty())
    return code;
  return writeText(options.reportPath,
                   llvm::formatv("{0:2}\n", llvm::json::Value(estimate->toJson())).str());
}

StatusCode Compilation::writeFrontier() {
  mlir::memopt::BudgetOptions search;
  search.threads = options.compilerThreads;
  search.cache = cache;
  FailureOr<mlir::memopt::Frontier> frontier =
      mlir::memopt::Frontier::compute(*module, search, options.frontierPoints);
  if (failed(frontier))
    return StatusCode::BadInput;
  llvm::outs() << frontier->toText();
  if (!options.pagePath.empty()) {
    if (StatusCode code = runStage(kPlan); code != StatusCode::Ok)
      return code;
    if (StatusCode code = writeText(options.pagePath, makePage(frontier->toJson()));
        code != StatusCode::Ok)
      return code;
  }
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

StatusCode Compilation::writePackage() {
  if (options.emit == Emit::Ptx) {
    StatusCode code = mlir::memopt::printDeviceText(*module, llvm::outs());
    return code == StatusCode::Ok ? finishOutput() : code;
  }
  if (options.emit == Emit::Llvm)
    return succeeded(mlir::memopt::printProgram(*module, program, llvm::outs()))
               ? finishOutput()
               : StatusCode::BadInput;
  StageScope scope(*this, "code", "code: kernels, machine code, the package");
  return mlir::memopt::writePackage(*module, describeManifest(), program, options.output);
}

mlir::memopt::ProgramToWrite Compilation::describeProgram(StringRef name) {
  return {name.str(), *module, describeManifest(), program};
}

int64_t Compilation::countRanks() {
  return options.evaluate ? mlir::memopt::countRanks(*module) : int64_t(options.pipeline.ranks);
}

/// Without a rate where a host program has it.
llvm::json::Object Compilation::describeOptimizer() const {
  llvm::json::Object facts{{"name", options.optimizerName}};
  auto plan = // the words were read before
      llvm::cantFail(mlir::memopt::OptimizerPlan::parse(options.pipeline.optimizer));
  if (!plan.isSetByHost())
    facts["lr"] = options.learningRate;
  return facts;
}

mlir::memopt::ManifestOptions Compilation::describeManifest() {
  mlir::memopt::ManifestOptions manifest;
  manifest.mode = options.evaluate ? "eval" : "train";
  manifest.isAveraged = isAveraged;
  manifest.targetFeatures = targetName;
  manifest.overheadBytes = options.device ? options.device->overheadBytes : 0;
  manifest.isInstrumented = options.isInstrumented;
  manifest.microBatches = options.pipeline.microBatches;
  manifest.ranks = countRanks();
  manifest.diskFolder = options.diskFolder;
  manifest.planText = mlir::memopt::explainPlan(*module);
  if (!options.evaluate)
    manifest.optimizer = describeOptimizer();
  return manifest;
}
