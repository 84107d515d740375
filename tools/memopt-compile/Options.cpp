//===- Options.cpp - the command line of memopt-compile -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "CommandLine.h"
#include "DeepSpeedConfig.h"
#include "OptionRules.h"

#include "memopt-runtime/PackageFormat.h"
#include "memopt/Transforms/Optimizers.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

using namespace memopt::tool;
using mlir::memopt::OffloadTier;
using mlir::memopt::stringifyOffloadTier;

llvm::Expected<int64_t> memopt::tool::parseBytes(llvm::StringRef option, llvm::StringRef text) {
  llvm::StringRef number = text.trim();
  int64_t unit = 1;
  for (auto [suffix, bytes] : {std::pair<const char *, int64_t>{"KiB", 1ll << 10},
                               {"MiB", 1ll << 20},
                               {"GiB", 1ll << 30},
                               {"TiB", 1ll << 40}})
    if (number.consume_back(suffix))
      unit = bytes;
  double value;
  if (number.rtrim().getAsDouble(value) || !(value >= 0) || value * unit > 9e18)
    return invalid("--" + option + " expects bytes such as 4096, 512MiB or 16GiB, found '" + text +
                   "'");
  return static_cast<int64_t>(std::floor(value * static_cast<double>(unit)));
}

/// Options by DeepSpeed's names, as if they had been given.
static llvm::Error addDeepSpeedConfig(CommandLine &line) {
  if (!line.isSet("deepspeed-config"))
    return llvm::Error::success();
  int64_t ranks;
  if (llvm::StringRef(line.get("ranks")).getAsInteger(10, ranks) || ranks < 1)
    return invalid("--ranks expects a number of at least 1, found '" + line.get("ranks") + "'");
  std::string path = line.get("deepspeed-config"), file = "--deepspeed-config=" + path + ": ";
  llvm::Expected<DeepSpeedConfig> config = readDeepSpeedConfig(path, ranks);
  if (!config)
    return invalid(file + llvm::toString(config.takeError()));
  for (const DeepSpeedConfig::Choice &choice : config->choices)
    if (line.isSet(choice.name))
      return invalid(file + "'" + choice.key + "' says what --" + choice.name +
                     " says too: give one");
  for (const DeepSpeedConfig::Choice &choice : config->choices) {
    const OptionRow *row = findOption(choice.name);
    bool isHyperparameter = llvm::StringRef(choice.key).starts_with("optimizer.params.");
    if (!row || (isHyperparameter && !row->isOfOptimizer))
      return invalid(file + "'" + choice.key + "' is no hyperparameter of our optimizers");
    // One configuration serves both modes.
    if (line.get("mode") == "eval" && isOfTraining(*row))
      continue;
    if (llvm::Error error = line.set(*row, choice.value))
      return invalid(file + "'" + choice.key + "': " + llvm::toString(std::move(error)));
  }
  if (!config->withoutEffect.empty())
    llvm::errs() << "remark: " << file
                 << "without effect here: " << llvm::join(config->withoutEffect, ", ") << "\n";
  return llvm::Error::success();
}

static llvm::Error fillOptimizer(const CommandLine &line, CompileOptions &options) {
  double norm;
  if (llvm::StringRef(line.get("max-grad-norm")).getAsDouble(norm) || !(norm >= 0))
    return invalid("--max-grad-norm expects a number of at least 0, or inf, found '" +
                   line.get("max-grad-norm") + "'");
  options.pipeline.maxGradNorm = norm;
  options.pipeline.optimizer = llvm::join(line.optimizerWords, " ");
  auto plan = mlir::memopt::OptimizerPlan::parse(options.pipeline.optimizer);
  if (!plan)
    return plan.takeError();
  options.optimizerName = plan->getOptimizerName().str();
  options.learningRate = plan->getRate();
  return llvm::Error::success();
}

static llvm::Error fillStage(llvm::StringRef emit, CompileOptions &options) {
  auto stage = llvm::StringSwitch<int>(emit)
                   .Case("graph", static_cast<int>(Emit::Graph))
                   .Case("joint", static_cast<int>(Emit::Joint))
                   .Case("kernels", static_cast<int>(Emit::Kernels))
                   .Case("planned", static_cast<int>(Emit::Planned))
                   .Case("llvm", static_cast<int>(Emit::Llvm))
                   .Case("ptx", static_cast<int>(Emit::Ptx))
                   .Case("package", static_cast<int>(Emit::Package))
                   .Default(-1);
  if (emit == "ptx" && !options.device)
    return invalid("--emit=ptx needs --target=cuda");
  if (stage < 0)
    return invalid("--emit expects graph, joint, kernels, planned, llvm, ptx or package, found '" +
                   emit + "'");
  options.emit = static_cast<Emit>(stage);
  return llvm::Error::success();
}

static llvm::Error fillExplanation(const CommandLine &line, CompileOptions &options) {
  std::string what = line.get("explain");
  if (!what.empty() && what != "techniques")
    return invalid("--explain expects nothing or techniques, found '" + what + "'");
  options.explain = line.isSet("explain");
  options.explainsTechniques = !what.empty();
  if (options.explainsTechniques && line.get("mode") == "eval")
    return invalid("--explain=techniques is of training steps, not of --mode=eval");
  return llvm::Error::success();
}

/// Choices of one of two words.
static llvm::Expected<bool> parseChoice(llvm::StringRef name, llvm::StringRef text,
                                        llvm::StringRef yes, llvm::StringRef no) {
  if (text == yes || text == no)
    return text == yes;
  return invalid("--" + name + " expects " + yes + " or " + no + ", found '" + text + "'");
}

/// Options of processors, which say nothing of a device.
static constexpr llvm::StringLiteral kOfProcessors[] = {"reference", "machine-profile",
                                                        "run-threads"};

/// And those of devices.
static constexpr llvm::StringLiteral kOfDevices[] = {"matmul-precision", "conv-precision",
                                                     "reduce"};

static llvm::Error fillPrecisions(const CommandLine &line,
                                  mlir::memopt::DeviceDescription &device) {
  device.matmulPrecision = line.get("matmul-precision");
  device.convPrecision = line.get("conv-precision");
  if (!llvm::is_contained({"highest", "high", "medium"}, device.matmulPrecision))
    return invalid("--matmul-precision expects highest, high or medium, found '" +
                   device.matmulPrecision + "'");
  if (!llvm::is_contained({"highest", "high"}, device.convPrecision))
    return invalid("--conv-precision expects highest or high, found '" + device.convPrecision +
                   "'");
  return llvm::Error::success();
}

/// Before all other options, which may depend on it.
static llvm::Error fillTarget(const CommandLine &line, CompileOptions &options) {
  options.targetFeatures = line.get("target-features");
  std::string target = line.get("target");
  if (target == "cpu") {
    for (llvm::StringRef name : kOfDevices)
      if (line.isSet(name))
        return invalid("--" + name + " is for --target=cuda");
    return llvm::Error::success();
  }
  if (target != "cuda")
    return invalid("--target expects cpu or cuda, found '" + target + "'");
  if (line.isSet("calibrate")) {
    options.isDeviceCalibrated = true;
    return line.isSet("target-features")
               ? invalid("--calibrate measures the device at hand, which --target-features does "
                         "not choose; leave it out")
               : llvm::Error::success();
  }
  if (!line.isSet("target-features"))
    return invalid("--target=cuda needs --target-features with " +
                   llvm::join(mlir::memopt::DeviceDescription::getNames(), ", ") +
                   " or a FILE.json that describes the device");
  for (llvm::StringRef name : kOfProcessors)
    if (line.isSet(name))
      return invalid("--" + name + " is for --target=cpu");
  auto device = mlir::memopt::DeviceDescription::find(options.targetFeatures);
  if (!device)
    return invalid("--target-features: " + llvm::toString(device.takeError()));
  options.device = std::move(*device);
  return fillPrecisions(line, *options.device);
}

/// With a budget whether activations are narrow is one more choice of the search for a form; the
/// largest batch is searched for with what was asked for.
static llvm::Error fillActivations(const CommandLine &line, CompileOptions &options) {
  std::string type = line.get("activation-dtype");
  if (type != "f32" && type != "bf16")
    return invalid("--activation-dtype expects f32 or bf16, found '" + type + "'");
  if (type == "f32")
    return llvm::Error::success();
  if (line.get("mode") == "eval")
    return invalid("--activation-dtype=bf16 is of what waits for the backward pass, which "
                   "--mode=eval has not");
  if (line.get("precision") == "fp16")
    return invalid("--activation-dtype=bf16 is for --precision=f32 and bf16; with fp16 activations "
                   "are f16");
  options.automatic.activations = line.isSet("device-memory") && line.get("batch") != "max";
  options.pipeline.activationDtype = options.automatic.activations ? "f32" : type;
  return llvm::Error::success();
}

static llvm::Error fillChoices(const CommandLine &line, CompileOptions &options) {
  std::string precision = line.get("precision");
  if (precision != "f32" && precision != "bf16" && precision != "fp16")
    return invalid("--precision expects f32, bf16 or fp16, found '" + precision + "'");
  options.pipeline.precision = precision;
  if (llvm::Error error = fillActivations(line, options))
    return error;
  llvm::Expected<bool> master =
      parseChoice("master-weights", line.get("master-weights"), "fp32", "none");
  if (!master)
    return master.takeError();
  if (!*master && precision != "bf16")
    return invalid("--master-weights=none needs --precision=bf16, the type that parameters get");
  options.pipeline.masterWeights = *master;
  llvm::Expected<bool> train = parseChoice("mode", line.get("mode"), "train", "eval");
  if (!train)
    return train.takeError();
  options.evaluate = !*train;
  llvm::Expected<bool> dropout = parseChoice("dropout", line.get("dropout"), "on", "off");
  if (!dropout)
    return dropout.takeError();
  options.dropout = *dropout;
  llvm::Expected<bool> instrument = parseChoice("instrument", line.get("instrument"), "on", "off");
  if (!instrument)
    return instrument.takeError();
  options.isInstrumented = *instrument;
  return llvm::Error::success();
}

static llvm::Error fillBudget(const CommandLine &line, llvm::StringRef name, int64_t &budget) {
  if (!line.isSet(name))
    return llvm::Error::success();
  llvm::Expected<int64_t> bytes = parseBytes(name, line.get(name));
  if (!bytes)
    return bytes.takeError();
  budget = *bytes;
  return llvm::Error::success();
}

/// A folder may have colons in its name; the last one comes before the bytes. It is looked for when
/// a run begins, on the machine where that is.
static llvm::Error fillDisk(const CommandLine &line, CompileOptions &options) {
  if (!line.isSet("disk"))
    return llvm::Error::success();
  if (options.device)
    return invalid("--disk: this version keeps nothing on disk with --target=cuda");
  std::string text = line.get("disk");
  auto [folder, room] = llvm::StringRef(text).rsplit(':');
  if (folder.empty() || room.empty())
    return invalid("--disk expects DIR:BYTES, a folder and what may lie there, found '" + text +
                   "'");
  llvm::Expected<int64_t> bytes = parseBytes("disk", room);
  if (!bytes)
    return bytes.takeError();
  options.diskBudget = *bytes;
  llvm::SmallString<128> path(folder);
  if (std::error_code error = llvm::sys::fs::make_absolute(path))
    return invalid("--disk=" + text + ": " + error.message());
  options.diskFolder = path.str().str();
  return llvm::Error::success();
}

static llvm::Error fillBudgets(const CommandLine &line, CompileOptions &options) {
  if (llvm::Error error = fillBudget(line, "device-memory", options.deviceBudget))
    return error;
  if (llvm::Error error = fillBudget(line, "host-memory", options.hostBudget))
    return error;
  if (llvm::Error error = fillDisk(line, options))
    return error;
  // The arena gets what is left.
  if (options.device && options.deviceBudget >= 0)
    options.deviceBudget =
        std::max<int64_t>(0, options.deviceBudget - options.device->overheadBytes);
  options.pipeline.budget = options.deviceBudget;
  options.pipeline.hostBudget = options.hostBudget;
  options.pipeline.diskBudget = options.diskBudget;
  return llvm::Error::success();
}

static llvm::Error fillCount(const CommandLine &line, llvm::StringRef name,
                             mlir::memopt::PipelineOptions::Option<int64_t> &option) {
  if (!line.isSet(name))
    return llvm::Error::success();
  int64_t number;
  constexpr int64_t most = 1 << 20;
  if (llvm::StringRef(line.get(name)).getAsInteger(10, number) || number < 1 || number > most)
    return invalid("--" + name + " expects a number from 1 to " + llvm::Twine(most) + ", found '" +
                   line.get(name) + "'");
  option = number;
  return llvm::Error::success();
}

static llvm::Error fillRanks(const CommandLine &line, CompileOptions &options) {
  if (llvm::Error error = fillCount(line, "ranks", options.pipeline.ranks))
    return error;
  if (options.pipeline.ranks > ::memopt::mostRanks)
    return invalid("--ranks expects at most " + llvm::Twine(::memopt::mostRanks) + ", found '" +
                   line.get("ranks") + "'");
  options.pipeline.syncBatchNorm = line.isSet("sync-batch-norm");
  options.pipeline.reduce = line.get("reduce");
  if (line.get("reduce") != "ranks" && line.get("reduce") != "nccl")
    return invalid("--reduce expects ranks or nccl, found '" + line.get("reduce") + "'");
  int64_t stage;
  if (llvm::StringRef(line.get("zero-stage")).getAsInteger(10, stage) || stage < 0 || stage > 3)
    return invalid("--zero-stage expects 0, 1, 2 or 3, found '" + line.get("zero-stage") + "'");
  if (stage && line.get("precision") == "fp16")
    return invalid("--zero-stage=" + line.get("zero-stage") +
                   ": gradients that overflow are looked for in whole ones; use --zero-stage=0 "
                   "with --precision=fp16");
  options.pipeline.zeroStage = stage;
  return llvm::Error::success();
}

static llvm::Error fillBatches(const CommandLine &line, CompileOptions &options) {
  mlir::memopt::PipelineOptions &pipeline = options.pipeline;
  if (line.isSet("accumulative-counts") && line.isSet("gradient-accumulation-steps"))
    return invalid("--accumulative-counts and --gradient-accumulation-steps are one option; give "
                   "one");
  options.isBatchSearched = line.get("batch") == "max";
  if (options.isBatchSearched && !line.isSet("device-memory"))
    return invalid("--batch=max needs --device-memory, which it fills");
  if (!options.isBatchSearched)
    if (llvm::Error error = fillCount(line, "batch", pipeline.batch))
      return error;
  for (llvm::StringRef name : {"accumulative-counts", "gradient-accumulation-steps"})
    if (llvm::Error error = fillCount(line, name, pipeline.accumulativeCounts))
      return error;
  if (llvm::Error error = fillCount(line, "micro-batches", pipeline.microBatches))
    return error;
  if (llvm::Error error = fillRanks(line, options))
    return error;
  std::string type = line.get("accumulate-dtype");
  if (type != "fp32" && type != "bf16")
    return invalid("--accumulate-dtype expects fp32 or bf16, found '" + type + "'");
  pipeline.accumulateDtype = type;
  return llvm::Error::success();
}

/// Of the loss: PyTorch's GradScaler, whose names and defaults these are.
static llvm::Error fillLossScale(const CommandLine &line, CompileOptions &options) {
  mlir::memopt::PipelineOptions &pipeline = options.pipeline;
  static constexpr llvm::StringLiteral dynamicOnly[] = {"init-scale", "growth-factor",
                                                        "backoff-factor", "growth-interval"};
  bool isHalf = line.get("precision") == "fp16";
  pipeline.dynamicLossScale = line.get("loss-scale") == "dynamic";
  if (!isHalf && line.isSet("loss-scale"))
    return invalid("--loss-scale is for --precision=fp16; other types need none");
  for (llvm::StringRef name : dynamicOnly)
    if (line.isSet(name) && !(isHalf && pipeline.dynamicLossScale))
      return invalid("--" + name + " is for --precision=fp16 with --loss-scale=dynamic");
  if (!isHalf)
    return llvm::Error::success();
  llvm::StringRef initial = pipeline.dynamicLossScale ? "init-scale" : "loss-scale";
  llvm::Expected<double> scale = line.getNumber(initial), growth = line.getNumber("growth-factor"),
                         backoff = line.getNumber("backoff-factor");
  if (!scale || !growth || !backoff)
    return llvm::joinErrors(scale.takeError(),
                            llvm::joinErrors(growth.takeError(), backoff.takeError()));
  if (!(*scale > 0 && *scale <= std::numeric_limits<float>::max()))
    return invalid("--" + initial + " expects a positive number below 3.4e38, found '" +
                   line.get(initial) + "'");
  if (!(*growth > 1))
    return invalid("--growth-factor expects a number above 1, found '" + line.get("growth-factor") +
                   "'");
  if (!(*backoff > 0 && *backoff < 1))
    return invalid("--backoff-factor expects a number between 0 and 1, found '" +
                   line.get("backoff-factor") + "'");
  pipeline.lossScale = *scale;
  pipeline.growthFactor = *growth;
  pipeline.backoffFactor = *backoff;
  return fillCount(line, "growth-interval", pipeline.growthInterval);
}

/// The names in a list such as "backbone, neck.*"; blanks and empty ones are left out.
static llvm::SmallVector<std::string> parseModules(llvm::StringRef text) {
  llvm::SmallVector<std::string> modules;
  for (llvm::StringRef module : llvm::split(text, ','))
    if (!module.trim().empty())
      modules.push_back(module.trim().str());
  return modules;
}

/// The planner may not choose what the command line says.
static llvm::Error fillAutomatic(const CommandLine &line, CompileOptions &options) {
  Automatic &automatic = options.automatic;
  options.isFormSearched = automatic.activations;
  if (!line.isSet("auto")) {
    automatic.offload =
        (line.isSet("host-memory") || line.isSet("disk")) && line.isSet("device-memory");
    return llvm::Error::success();
  }
  automatic.recompute = false;
  struct Technique {
    llvm::StringRef name;
    bool *isAllowed;
    llvm::StringRef option;
  };
  const Technique techniques[] = {{"recompute", &automatic.recompute, ""},
                                  {"accumulate", &automatic.accumulate, "micro-batches"},
                                  {"precision", &automatic.precision, "precision"},
                                  {"batch", &automatic.batch, "batch"},
                                  {"offload", &automatic.offload, ""}};
  for (const std::string &name : parseModules(line.get("auto"))) {
    const auto *technique =
        llvm::find_if(techniques, [&](const Technique &entry) { return entry.name == name; });
    if (technique == std::end(techniques))
      return invalid("--auto expects recompute, accumulate, precision, batch or offload, found '" +
                     name + "'");
    if (!technique->option.empty() && line.isSet(technique->option))
      return invalid("--auto=" + name + " chooses what --" + technique->option + " says; give one");
    *technique->isAllowed = true;
  }
  options.isFormSearched |= automatic.accumulate || automatic.precision || automatic.batch;
  if (!line.isSet("device-memory"))
    return invalid("--auto needs --device-memory, which it meets");
  options.pipeline.rematerialize = automatic.recompute;
  return llvm::Error::success();
}

static llvm::Error fillFusion(const CommandLine &line, CompileOptions &options) {
  options.pipeline.efficientConvBnEval = parseModules(line.get("efficient-conv-bn-eval"));
  if (line.isSet("efficient-conv-bn-eval") && options.pipeline.efficientConvBnEval.empty())
    return invalid("--efficient-conv-bn-eval expects names of modules, globs or all");
  return llvm::Error::success();
}

static llvm::Expected<OffloadTier> parseTier(const CommandLine &line, llvm::StringRef name) {
  std::string place = line.get(name);
  for (OffloadTier tier : {OffloadTier::None, OffloadTier::Host, OffloadTier::Disk})
    if (place == stringifyOffloadTier(tier)) {
      if (tier == OffloadTier::Disk && !line.isSet("disk"))
        return invalid("--" + name +
                       "=nvme needs --disk=DIR:BYTES, a folder and what may lie there");
      return tier;
    }
  return invalid("--" + name + " expects none, cpu or nvme, found '" + place + "'");
}

/// Budgets of other spaces than the device's are for what lies there.
static llvm::Error checkRoom(const CommandLine &line, bool isByHand, bool isDiskUsed) {
  if (line.isSet("device-memory"))
    return llvm::Error::success();
  if (line.isSet("host-memory") && !isByHand)
    return invalid("--host-memory needs --device-memory, or an --offload option: nothing lies on "
                   "the host otherwise");
  if (line.isSet("disk") && !isDiskUsed)
    return invalid("--disk needs --device-memory, or an --offload option that says nvme: nothing "
                   "lies on disk otherwise");
  return llvm::Error::success();
}

static llvm::Error fillOffload(const CommandLine &line, CompileOptions &options) {
  llvm::SmallVector<OffloadTier, 3> tiers;
  for (llvm::StringRef name : {"offload-optimizer", "offload-param", "offload-activation"}) {
    llvm::Expected<OffloadTier> tier = parseTier(line, name);
    if (!tier)
      return tier.takeError();
    tiers.push_back(*tier);
  }
  options.pipeline.offloadOptimizer = tiers[0];
  options.pipeline.offloadParam = tiers[1];
  options.pipeline.offloadActivation = tiers[2];
  bool isByHand = llvm::any_of(tiers, [](OffloadTier tier) { return tier != OffloadTier::None; });
  if (llvm::Error error = checkRoom(line, isByHand, llvm::is_contained(tiers, OffloadTier::Disk)))
    return error;
  bool hasHost = options.hostBudget >= 0 || options.diskBudget < 0; // room there is not refused
  options.pipeline.swaps = options.automatic.offload && !options.evaluate && hasHost;
  // What is placed by hand stays there.
  bool isPlaced = line.isSet("offload-optimizer") || line.isSet("offload-param");
  options.isOffloadSearched = options.automatic.offload && !isPlaced && !options.evaluate;
  options.isFormSearched |= options.isOffloadSearched;
  return llvm::Error::success();
}

static llvm::Error fillPlanning(const CommandLine &line, CompileOptions &options) {
  std::string modulesText = line.get("activation-checkpointing");
  llvm::StringRef modules = modulesText;
  if (llvm::StringRef count = modules; count.consume_front("segments:")) {
    int64_t segments;
    if (count.getAsInteger(10, segments) || segments < 2)
      return invalid(
          "--activation-checkpointing=segments:N expects a number of at least 2, found '" + count +
          "'");
    options.pipeline.checkpointSegments = segments;
  } else {
    options.pipeline.checkpointModules = parseModules(modules);
  }
  llvm::Expected<int> points = line.getCount("frontier");
  if (!points)
    return points.takeError();
  if (line.isSet("frontier") && *points < 2)
    return invalid("--frontier expects at least 2 budgets, found " + llvm::Twine(*points));
  options.frontierPoints = *points;
  options.frontierPath = line.get("frontier-output");
  return llvm::Error::success();
}

/// A profile is named by the option or the environment, never found by itself: what a compilation
/// depends on is said where it is started.
static llvm::Error fillProfile(const CommandLine &line, CompileOptions &options) {
  const char *variable = std::getenv("MEMOPT_MACHINE_PROFILE");
  std::string fromEnvironment = variable ? variable : "";
  options.isCalibration = line.isSet("calibrate");
  if (options.isCalibration) {
    options.calibrationPath = line.get("calibrate");
    if (options.calibrationPath.empty() && options.isDeviceCalibrated)
      options.calibrationPath = "device.json";
    if (options.calibrationPath.empty())
      options.calibrationPath = fromEnvironment.empty() ? "machine-profile.json" : fromEnvironment;
    if (line.isSet("machine-profile"))
      return invalid("--calibrate makes a profile and --machine-profile reads one; give one");
    return llvm::Error::success();
  }
  std::string path = line.isSet("machine-profile") ? line.get("machine-profile") : fromEnvironment;
  // A device's rates come with its description.
  if (path.empty() || options.device)
    return llvm::Error::success();
  llvm::Expected<mlir::memopt::MachineProfile> profile = mlir::memopt::MachineProfile::read(path);
  if (!profile)
    return invalid(
        (line.isSet("machine-profile") ? "--machine-profile: " : "$MEMOPT_MACHINE_PROFILE: ") +
        llvm::toString(profile.takeError()));
  options.profile = std::move(*profile);
  return llvm::Error::success();
}

static llvm::Error fillThreads(const CommandLine &line, CompileOptions &options) {
  llvm::Expected<int> threads = line.getCount("threads"), runThreads = line.getCount("run-threads");
  if (!threads || !runThreads)
    return llvm::joinErrors(threads ? llvm::Error::success() : threads.takeError(),
                            runThreads ? llvm::Error::success() : runThreads.takeError());
  options.compilerThreads = *threads;
  options.runThreads = *runThreads
                           ? *runThreads
                           : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return llvm::Error::success();
}

static llvm::Error fillFiles(const CommandLine &line, CompileOptions &options) {
  if (options.isCalibration)
    return line.inputs.empty()
               ? llvm::Error::success()
               : invalid("--calibrate compiles graphs of its own and no model, found '" +
                         line.inputs.front() + "'");
  if (line.inputs.size() != 1)
    return invalid("expects one MODEL.pt2 or GRAPH.mlir, found " + llvm::Twine(line.inputs.size()) +
                   "; --help lists the options");
  options.input = line.inputs.front();
  options.output = line.get("o");
  if (options.output.empty()) {
    llvm::SmallString<128> path(options.input);
    llvm::sys::path::replace_extension(path, "memopt");
    options.output = path.str().str();
  }
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<CompileOptions>> memopt::tool::parseCompileOptions(int argc,
                                                                                  char **argv) {
  llvm::Expected<CommandLine> line = CommandLine::parse(llvm::ArrayRef<char *>(argv + 1, argc - 1));
  if (!line)
    return line.takeError();
  if (line->isSet("help")) {
    printHelp();
    std::exit(0);
  }
  if (llvm::Error error = addDeepSpeedConfig(*line))
    return std::move(error);
  if (llvm::Error error = checkRules(*line))
    return std::move(error);
  auto options = std::make_unique<CompileOptions>();
  if (llvm::Error error = fillTarget(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillProfile(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillFiles(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillExplanation(*line, *options))
    return std::move(error);
  options->isTimed = line->isSet("time-report");
  options->isQuiet = line->isSet("quiet");
  options->isEstimate = line->isSet("estimate");
  if (options->isEstimate && (line->isSet("emit") || line->isSet("frontier")))
    return invalid("--estimate, --emit and --frontier print different things; give one");
  if (options->isEstimate && line->get("mode") == "eval")
    return invalid("--estimate is of training steps, not of --mode=eval");
  options->reportPath = line->get("report");
  options->pagePath = line->get("html");
  options->pipeline.cache = line->get("cache");
  if (line->isSet("cache") && options->pipeline.cache.empty())
    return invalid("--cache expects a folder");
  options->loss = line->get("loss");
  options->reference = line->isSet("reference");
  if (llvm::Error error = fillChoices(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillBudgets(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillBatches(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillAutomatic(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillLossScale(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillFusion(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillPlanning(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillOffload(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillThreads(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillOptimizer(*line, *options))
    return std::move(error);
  if (llvm::Error error = fillStage(line->get("emit"), *options))
    return std::move(error);
  return std::move(options);
}
