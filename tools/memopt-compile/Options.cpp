//===- Options.cpp - the command line of memopt-compile -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "DeepSpeedConfig.h"
#include "OptionGroups.h"
#include "OptionRules.h"
#include "options/OptionTable.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

using namespace memopt::tool;

llvm::Expected<int64_t> memopt::tool::parseBytes(llvm::StringRef option, llvm::StringRef text) {
  int64_t bytes = 0;
  if (std::string wrong = options::parseBytes(text.trim().str(), bytes); !wrong.empty())
    return invalid("--" + option + ": " + wrong);
  return bytes;
}

llvm::SmallVector<std::string> memopt::tool::parseModules(llvm::StringRef text) {
  llvm::SmallVector<std::string> modules;
  for (llvm::StringRef module : llvm::split(text, ','))
    if (!module.trim().empty())
      modules.push_back(module.trim().str());
  return modules;
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
  if (config->hasDefaultClipping && !line.isSet("max-grad-norm") && line.get("mode") != "eval")
    llvm::errs() << "remark: " << file
                 << "gradients are not clipped, which is the default of DeepSpeed before 0.19.3; "
                    "from then on it clips at 1: for that write 'gradient_clipping'\n";
  if (!config->withoutEffect.empty())
    llvm::errs() << "remark: " << file
                 << "without effect here: " << llvm::join(config->withoutEffect, ", ") << "\n";
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
  for (const auto &[name, sizes] : line.dimensions)
    options.dimensions.emplace_back(name, sizes.front());
  options.output = line.get("o");
  if (options.output.empty()) {
    llvm::SmallString<128> path(options.input);
    llvm::sys::path::replace_extension(path, "memopt");
    options.output = path.str().str();
  }
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

/// What is printed and written besides the package.
static llvm::Error fillOutputs(const CommandLine &line, CompileOptions &options) {
  options.isTimed = line.isSet("time-report");
  options.isQuiet = line.isSet("quiet");
  options.isEstimate = line.isSet("estimate");
  if (options.isEstimate && (line.isSet("emit") || line.isSet("frontier")))
    return invalid("--estimate, --emit and --frontier print different things; give one");
  if (options.isEstimate && line.get("mode") == "eval")
    return invalid("--estimate is of training steps, not of --mode=eval");
  options.reportPath = line.get("report");
  options.pagePath = line.get("html");
  options.pipeline.cache = line.get("cache");
  if (line.isSet("cache") && options.pipeline.cache.empty())
    return invalid("--cache expects a folder");
  return fillExplanation(line, options);
}

static llvm::Error fillStage(const CommandLine &line, CompileOptions &options) {
  std::string emit = line.get("emit");
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

llvm::Expected<std::unique_ptr<CompileOptions>> memopt::tool::parseCompileOptions(int argc,
                                                                                  char **argv) {
  llvm::Expected<CommandLine> line = CommandLine::parse(llvm::ArrayRef<char *>(argv + 1, argc - 1));
  if (!line)
    return line.takeError();
  if (line->isSet("help")) {
    printHelp();
    std::exit(0);
  }
  if (line->isSet("version")) {
    llvm::outs() << options::describeVersion("memopt-compile");
    std::exit(0);
  }
  if (llvm::Error error = addDeepSpeedConfig(*line))
    return std::move(error);
  if (llvm::Error error = checkRules(*line))
    return std::move(error);
  auto options = std::make_unique<CompileOptions>();
  options->loss = line->get("loss");
  options->reference = line->isSet("reference");
  for (auto fill : {fillMachineOptions, fillFiles, fillOutputs, fillTrainingOptions,
                    fillMemoryOptions, fillStage})
    if (llvm::Error error = fill(*line, *options))
      return std::move(error);
  return std::move(options);
}
