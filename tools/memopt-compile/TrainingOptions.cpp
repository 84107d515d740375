//===- TrainingOptions.cpp - what a step computes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OptionGroups.h"

#include "memopt-runtime/interface/PackageFormat.h"
#include "memopt/Planning/Ranks/RankFile.h"
#include "memopt/Transforms/Optimizers/Optimizers.h"

#include "llvm/ADT/StringExtras.h"

#include <limits>

using namespace memopt::tool;

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

//===----------------------------------------------------------------------===//
// Mode and types
//===----------------------------------------------------------------------===//

/// Choices of one of two words.
static llvm::Expected<bool> parseChoice(llvm::StringRef name, llvm::StringRef text,
                                        llvm::StringRef yes, llvm::StringRef no) {
  if (text == yes || text == no)
    return text == yes;
  return invalid("--" + name + " expects " + yes + " or " + no + ", found '" + text + "'");
}

/// With a budget whether activations are narrow is one more choice of the search for a form; the
/// largest batch is searched for with what was asked for.
static llvm::Error fillActivations(const CommandLine &line, CompileOptions &options) {
  std::string type = line.get("activation-dtype");
  if (type != "f32" && type != "bf16" && type != "int8" && type != "fp8")
    return invalid("--activation-dtype expects f32, bf16, int8 or fp8, found '" + type + "'");
  if (type == "f32")
    return llvm::Error::success();
  if (line.get("mode") == "eval")
    return invalid("--activation-dtype=" + type +
                   " is of what waits for the backward pass, which "
                   "--mode=eval has not");
  if (line.get("precision") == "fp16")
    return invalid("--activation-dtype=" + type +
                   " is for --precision=f32 and bf16; with fp16 activations "
                   "are f16");
  options.automatic.activations = line.isSet("device-memory") && line.get("batch") != "max";
  options.automatic.activationDtype = type;
  (options.automatic.activations ? options.pipeline.activationChoice
                                 : options.pipeline.activationDtype) = type;
  return llvm::Error::success();
}

static llvm::Error fillFrozen(const CommandLine &line, CompileOptions &options) {
  std::string code = line.get("frozen-weights"), scales = line.get("frozen-scales");
  if (code != "f32" && code != "bf16" && code != "int8" && code != "nf4")
    return invalid("--frozen-weights expects f32, bf16, int8 or nf4, found '" + code + "'");
  if (scales != "f32" && scales != "int8")
    return invalid("--frozen-scales expects f32 or int8, found '" + scales + "'");
  if (scales == "int8" && code != "nf4")
    return invalid("--frozen-scales=int8 is of the scales of --frozen-weights=nf4");
  options.pipeline.frozenWeights = code;
  options.pipeline.frozenScales = scales;
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
  llvm::Expected<bool> sources = parseChoice("c-sources", line.get("c-sources"), "on", "off");
  if (!sources)
    return sources.takeError();
  options.allowsC = *sources;
  llvm::Expected<bool> instrument = parseChoice("instrument", line.get("instrument"), "on", "off");
  if (!instrument)
    return instrument.takeError();
  options.isInstrumented = *instrument;
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

//===----------------------------------------------------------------------===//
// Batches and ranks
//===----------------------------------------------------------------------===//

static llvm::Error fillNetwork(const CommandLine &line, CompileOptions &options) {
  if (!line.isSet("network"))
    return llvm::Error::success();
  auto network = ::memopt::planning::readRankNetwork(line.get("network"));
  if (!network)
    return invalid("--network: " + llvm::toString(network.takeError()));
  if (std::optional<int64_t> group = network->findPartialGroup(options.pipeline.ranks))
    return invalid("--network: --ranks expects whole groups of " + llvm::Twine(*group) +
                   " ranks, as the file says, found " + llvm::Twine(options.pipeline.ranks));
  options.network = std::move(*network);
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
  options.pipeline.overlapCollectives = line.get("overlap-collectives") == "on";
  if (line.get("overlap-collectives") != "on" && line.get("overlap-collectives") != "off")
    return invalid("--overlap-collectives expects on or off, found '" +
                   line.get("overlap-collectives") + "'");
  int64_t stage;
  if (llvm::StringRef(line.get("zero-stage")).getAsInteger(10, stage) || stage < 0 || stage > 3)
    return invalid("--zero-stage expects 0, 1, 2 or 3, found '" + line.get("zero-stage") + "'");
  if (stage && line.get("precision") == "fp16")
    return invalid("--zero-stage=" + line.get("zero-stage") +
                   ": gradients that overflow are looked for in whole ones; use --zero-stage=0 "
                   "with --precision=fp16");
  options.pipeline.zeroStage = stage;
  return fillNetwork(line, options);
}

static llvm::Error fillBatches(const CommandLine &line, CompileOptions &options) {
  mlir::memopt::PipelineOptions &pipeline = options.pipeline;
  options.isBatchSearched = line.get("batch") == "max";
  if (options.isBatchSearched && !line.isSet("device-memory"))
    return invalid("--batch=max needs --device-memory, which it fills");
  if (!options.isBatchSearched)
    if (llvm::Error error = fillCount(line, "batch", pipeline.batch))
      return error;
  if (llvm::Error error = fillCount(line, "accumulative-counts", pipeline.accumulativeCounts))
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

//===----------------------------------------------------------------------===//
// Modules and the optimizer
//===----------------------------------------------------------------------===//

static llvm::Error fillFusion(const CommandLine &line, CompileOptions &options) {
  options.pipeline.efficientConvBnEval = parseModules(line.get("efficient-conv-bn-eval"));
  if (line.isSet("efficient-conv-bn-eval") && options.pipeline.efficientConvBnEval.empty())
    return invalid("--efficient-conv-bn-eval expects names of modules, globs or all");
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

llvm::Error memopt::tool::fillTrainingOptions(const CommandLine &line, CompileOptions &options) {
  for (auto fill : {fillChoices, fillFrozen, fillBatches, fillLossScale, fillFusion, fillOptimizer})
    if (llvm::Error error = fill(line, options))
      return error;
  return llvm::Error::success();
}
