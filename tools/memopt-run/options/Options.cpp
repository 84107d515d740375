//===- Options.cpp - the command line of memopt-run -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/options/OptionRules.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/base/Text.h"
#include "memopt-runtime/interface/PackageFormat.h"
#include "memopt-runtime/package/Manifest.h"
#include "options/OptionTable.h"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

using namespace memopt;

namespace {
/// One option: its name, how its value is written (empty: it takes none), a line of help, what it
/// sets, and its other names: those that users of torchrun, DeepSpeed and transformers know.
struct OptionSpec {
  std::string name, value, help;
  std::function<Status(RunOptions &, const std::string &)> set;
  std::vector<std::string> aliases = {};
  bool isRepeatable = false;
};

/// Options that stand together in --help.
struct OptionGroup {
  std::string name;
  std::vector<OptionSpec> options;
};
} // namespace

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

static StatusOr<int64_t> parseInteger(const std::string &text, int64_t least) {
  errno = 0;
  char *end = nullptr;
  long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end || errno || value < least || std::isspace(text[0]))
    return badInput("expected an integer of at least " + std::to_string(least) + ", found " +
                    quote(text));
  return int64_t(value);
}

static StatusOr<double> parseNumber(const std::string &text, double least) {
  errno = 0;
  char *end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end || !std::isfinite(value) || value < least || std::isspace(text[0]))
    return badInput("expected a number" +
                    (std::isinf(least) ? std::string() : " of at least " + std::to_string(least)) +
                    ", found " + quote(text));
  return value;
}

template <typename Field> static auto setInteger(Field RunOptions::*field, int64_t least) {
  return [=](RunOptions &options, const std::string &text) -> Status {
    MEMOPT_ASSIGN_OR_RETURN(options.*field, parseInteger(text, least));
    return Status::ok();
  };
}

template <typename Field>
static auto setNumber(Field RunOptions::*field,
                      double least = -std::numeric_limits<double>::infinity()) {
  return [=](RunOptions &options, const std::string &text) -> Status {
    MEMOPT_ASSIGN_OR_RETURN(options.*field, parseNumber(text, least));
    return Status::ok();
  };
}

static auto setText(std::string RunOptions::*field) {
  return [=](RunOptions &options, const std::string &text) -> Status {
    if (text.empty())
      return badInput("expected a value");
    options.*field = text;
    return Status::ok();
  };
}

/// One of two words, the first of which means true.
template <typename Field>
static auto setChoice(Field RunOptions::*field, const char *yes, const char *no) {
  return [=](RunOptions &options, const std::string &text) -> Status {
    if (text != yes && text != no)
      return badInput("expected '" + std::string(yes) + "' or '" + no + "', found " + quote(text));
    options.*field = text == yes;
    return Status::ok();
  };
}

static auto setFlag(bool RunOptions::*field) {
  return [=](RunOptions &options, const std::string &) -> Status {
    options.*field = true;
    return Status::ok();
  };
}

static Status setSchedule(RunOptions &options, const std::string &text) {
  MEMOPT_ASSIGN_OR_RETURN(options.schedule, parseScheduleKind(text));
  return Status::ok();
}

/// The compiler needs the rate, too: groups of parameters may have another one.
static Status setRate(RunOptions &options, const std::string &text) {
  MEMOPT_ASSIGN_OR_RETURN(options.rate, parseNumber(text, 0));
  options.rateText = text;
  return Status::ok();
}

/// PROGRAM:K,...: so many steps of each in turn.
static Status setAlternation(RunOptions &options, const std::string &text) {
  options.alternation.clear();
  for (const std::string &word : splitList(text)) {
    size_t colon = word.rfind(':');
    if (colon == std::string::npos || colon == 0)
      return badInput("expected PROGRAM:K,..., found " + quote(text));
    MEMOPT_ASSIGN_OR_RETURN(int64_t count, parseInteger(word.substr(colon + 1), 1));
    if (count > 1 << 20)
      return badInput("expected at most 1048576 steps of a program, found " + quote(word));
    options.alternation.emplace_back(word.substr(0, colon), count);
  }
  return Status::ok();
}

static Status setBuckets(RunOptions &options, const std::string &text) {
  std::set<int64_t> lengths;
  for (const std::string &word : splitList(text)) {
    MEMOPT_ASSIGN_OR_RETURN(int64_t length, parseInteger(word, 1));
    lengths.insert(length);
  }
  options.dataBuckets.assign(lengths.begin(), lengths.end());
  return Status::ok();
}

static Status setMilestones(RunOptions &options, const std::string &text) {
  std::vector<int64_t> milestones;
  for (const std::string &word : splitList(text)) {
    MEMOPT_ASSIGN_OR_RETURN(int64_t step, parseInteger(word, 0));
    milestones.push_back(step);
  }
  options.milestones = std::move(milestones);
  return Status::ok();
}

static auto setNumbers(std::vector<double> RunOptions::*field) {
  return [=](RunOptions &options, const std::string &text) -> Status {
    std::vector<double> numbers;
    for (const std::string &word : splitList(text)) {
      MEMOPT_ASSIGN_OR_RETURN(double number,
                              parseNumber(word, -std::numeric_limits<double>::infinity()));
      numbers.push_back(number);
    }
    options.*field = std::move(numbers);
    return Status::ok();
  };
}

/// Of an option that may be given several times.
static auto addText(std::vector<std::string> RunOptions::*field) {
  return [=](RunOptions &options, const std::string &text) -> Status {
    if (text.empty())
      return badInput("expected a value");
    (options.*field).push_back(text);
    return Status::ok();
  };
}

static Status setAugmentation(RunOptions &options, const std::string &text) {
  for (const std::string &word : splitList(text)) {
    if (word == "flip") {
      options.isMirrored = true;
      continue;
    }
    if (!startsWith(word, "crop:"))
      return badInput("expected flip or crop:N, found " + quote(word));
    MEMOPT_ASSIGN_OR_RETURN(options.cropPadding, parseInteger(word.substr(5), 1));
    if (options.cropPadding > 4096)
      return badInput("crop:N moves images by at most 4096 pixels, found " + quote(word));
  }
  return Status::ok();
}

/// A number above zero.
template <typename Field> static auto setFactor(Field RunOptions::*field, double limit) {
  return [=](RunOptions &options, const std::string &text) -> Status {
    MEMOPT_ASSIGN_OR_RETURN(double value, parseNumber(text, 0));
    if (value == 0 || value > limit)
      return badInput(
          "expected a number above 0" +
          (std::isinf(limit) ? std::string() : " and at most " + std::to_string(limit)) +
          ", found " + quote(text));
    options.*field = value;
    return Status::ok();
  };
}

static Status setRanks(RunOptions &options, const std::string &text) {
  MEMOPT_ASSIGN_OR_RETURN(options.ranks, parseInteger(text, 1));
  if (*options.ranks > mostRanks)
    return badInput("expected at most " + std::to_string(mostRanks) + ", found " + quote(text));
  return Status::ok();
}

static Status setTransport(RunOptions &options, const std::string &text) {
  if (text != "auto" && text != "shared" && text != "mpi" && text != "ucx")
    return badInput("expected 'auto', 'shared', 'mpi' or 'ucx', found " + quote(text));
  options.transport = text;
  return Status::ok();
}

static Status setMode(RunOptions &options, const std::string &text) {
  if (text != "train" && text != "eval")
    return badInput("expected 'train' or 'eval', found " + quote(text));
  options.mode = text;
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

static const std::vector<OptionGroup> &getGroups() {
  static const std::vector<OptionGroup> groups = {
      {"Program and device",
       {{"--mode", "train|eval", "eval: the forward pass only, outputs averaged over the data",
         setMode},
        {"--device", "cpu|cuda",
         "where to run (default: the device that the package is for; cpu for a model that is yet "
         "to be compiled)",
         setText(&RunOptions::device)},
        {"-o", "NAME.memopt", "keep the package that a model is compiled into",
         setText(&RunOptions::packagePath)},
        {"--describe-device", "FILE",
         "write the description of the device for memopt-compile, and run nothing",
         setText(&RunOptions::description)},
        {"--describe-network", "FILE",
         "measure what the ranks take to send, write it for memopt-compile --network, and run "
         "nothing else",
         setText(&RunOptions::network)},
        {"--cuda-graph", "on|off",
         "replay steps from graphs that are captured once (default on, with --device=cuda)",
         setChoice(&RunOptions::isReplayed, "on", "off")},
        {"--flush-denormals", "on|off",
         "floats too small to be normal count as zero on a processor, for some are slow with them "
         "(default off)",
         setChoice(&RunOptions::areDenormalsZero, "on", "off")},
        {"--disk-folder", "DIR",
         "folder for the file of values on disk (default: the package's --disk)",
         setText(&RunOptions::diskFolder)}}},
      {"Length of the run",
       {{"--steps", "N", "steps of this run", setInteger(&RunOptions::steps, 0), {"--max-steps"}},
        {"--epochs",
         "N",
         "passes over the data of this run (default 1)",
         setInteger(&RunOptions::epochs, 0),
         {"--num-train-epochs"}},
        {"--alternate", "PROGRAM:K,...",
         "for a package with several training programs: run K steps of each in turn (default: the "
         "program that fits the shapes of the batch)",
         setAlternation},
        {"--patience",
         "N",
         "stop after N evaluations without a smaller loss",
         setInteger(&RunOptions::patience, 1),
         {"--early-stopping-patience"}},
        {"--stop-on-nan", "on|off",
         "stop before the update when the loss is not finite, and name where it began (default on)",
         setChoice(&RunOptions::isStoppedOnNan, "on", "off")}}},
      {"Data",
       {{"--data",
         "SOURCE",
         "FILE.safetensors with batches (step0.INPUT, ...) or samples (INPUT) | "
         "idx:IMAGES.gz,LABELS.gz | bytes:TEXTFILE | tokens:FILE.safetensors",
         addText(&RunOptions::data),
         {},
         /*isRepeatable=*/true},
        {"--shuffle", "on|off", "new order of a data set in each epoch (default on, off in eval)",
         setChoice(&RunOptions::isShuffled, "on", "off")},
        {"--seed", "N",
         "seed of dropout, shuffling and --init=random (default 0, or the checkpoint's)",
         setInteger(&RunOptions::seed, 0)},
        {"--data-scale", "X", "images as (byte * X - mean) / std (default 1/255)",
         setNumber(&RunOptions::dataScale)},
        {"--data-mean", "X[,X...]", "one for all channels, or one for each (default 0)",
         setNumbers(&RunOptions::dataMeans)},
        {"--data-std", "X[,X...]", "one for all channels, or one for each (default 1)",
         setNumbers(&RunOptions::dataDeviations)},
        {"--data-augment", "flip,crop:N", "mirror images, and move them by up to N pixels",
         setAugmentation},
        {"--data-stride", "N",
         "for texts: tokens from one window to the next (default: the length of a window)",
         setInteger(&RunOptions::dataStride, 1)},
        {"--data-buckets", "N,N,...",
         "for texts of several lengths: each goes into the smallest program that holds it",
         setBuckets}}},
      {"Learning rate",
       {{"--lr",
         "X",
         "learning rate (default: the optimizer's when compiled, or the checkpoint's)",
         setRate,
         {"--learning-rate"}},
        {"--lr-schedule",
         "constant|linear|cosine|step|multi-step|exponential|polynomial|one-cycle",
         "after the warm-up (default constant)",
         setSchedule,
         {"--lr-scheduler-type"}},
        {"--warmup-steps", "N", "steps in which the rate rises from zero (default 0)",
         setInteger(&RunOptions::warmupSteps, 0)},
        {"--schedule-steps", "N",
         "total steps of the schedule: linear, cosine, polynomial, one-cycle (default: the last "
         "step of this run)",
         setInteger(&RunOptions::scheduleSteps, 1)},
        {"--lr-min", "X", "final rate of linear, cosine and polynomial (default 0)",
         setNumber(&RunOptions::minRate, 0)},
        {"--lr-step-size", "N", "schedule step: multiply by gamma every N steps (default 1)",
         setInteger(&RunOptions::stepSize, 1)},
        {"--lr-gamma", "X",
         "schedules step, multi-step, exponential: the factor gamma (default 0.1)",
         setNumber(&RunOptions::gamma, 0)},
        {"--lr-milestones", "A,B,...", "schedule multi-step: steps at which to multiply by gamma",
         setMilestones},
        {"--lr-power", "X", "schedule polynomial: exponent (default 1)",
         setNumber(&RunOptions::power, 0)},
        {"--lr-pct-start", "X",
         "schedule one-cycle: part of the steps in which the rate rises (default 0.3)",
         setFactor(&RunOptions::percentStart, 1)},
        {"--lr-div-factor", "X",
         "schedule one-cycle: the first rate is --lr divided by this (default 25)",
         setFactor(&RunOptions::divFactor, std::numeric_limits<double>::infinity())},
        {"--lr-final-div-factor", "X",
         "schedule one-cycle: the last rate is the first rate divided by this (default 1e4)",
         setFactor(&RunOptions::finalDivFactor, std::numeric_limits<double>::infinity())}}},
      {"Initial values and checkpoints",
       {{"--init", "weights|random", "initial values: those of the model, or random ones",
         setChoice(&RunOptions::isRandom, "random", "weights")},
        {"--weights", "FILE", "start from a state dict of the model, as safetensors",
         setText(&RunOptions::weights)},
        {"--load",
         "DIR",
         "continue from a checkpoint",
         setText(&RunOptions::load),
         {"--resume", "--resume-from-checkpoint"}},
        {"--save",
         "DIR",
         "write a checkpoint at the end, and on Ctrl-C",
         setText(&RunOptions::save),
         {"--output-dir"}},
        {"--save-every",
         "N",
         "write one every N steps, too",
         setInteger(&RunOptions::saveEvery, 1),
         {"--save-steps"}},
        {"--keep",
         "N",
         "number of checkpoints to keep; older ones are in DIR/step-STEP (default 1)",
         setInteger(&RunOptions::keep, 1),
         {"--save-total-limit"}},
        {"--save-best", "", "keep the checkpoint with the smallest evaluation loss in DIR/best",
         setFlag(&RunOptions::isBestSaved)},
        {"--names",
         "step|model",
         "names in saved checkpoints: the exported step's, or without the prefix that all of them "
         "share (default step)",
         setChoice(&RunOptions::hasModelNames, "model", "step"),
         {"--checkpoint-names"}},
        {"--save-gradients", "FILE", "gradients of the first step, as safetensors",
         setText(&RunOptions::saveGradients)}}},
      {"Evaluation while training",
       {{"--eval-data",
         "SOURCE",
         "evaluate on this data while training; written as --data",
         addText(&RunOptions::evalData),
         {},
         /*isRepeatable=*/true},
        {"--eval-every",
         "N",
         "steps between evaluations (default: an epoch)",
         setInteger(&RunOptions::evalEvery, 1),
         {"--eval-steps"}},
        {"--eval-package", "NAME.memopt",
         "the model compiled with --mode=eval (default: compiled together with the model)",
         setText(&RunOptions::evalPackage)},
        {"--averaged", "", "evaluate the average of the weights that --ema-decay keeps",
         setFlag(&RunOptions::isAveraged)}}},
      {"Ranks",
       {{"--ranks",
         "N",
         "start N processes that train together, each on batches of its own; processes of "
         "torchrun, mpirun and srun are ranks without this option",
         setRanks,
         {"--nproc-per-node"}},
        {"--rank-timeout", "SECONDS", "how long a rank waits for the others (default 300)",
         setFactor(&RunOptions::rankTimeout, std::numeric_limits<double>::infinity())},
        {"--launcher", "auto|none",
         "none: ignore the variables of torchrun, mpirun and srun (default auto)",
         setChoice(&RunOptions::isLauncherHeard, "auto", "none")},
        {"--transport", "auto|shared|mpi|ucx",
         "how ranks communicate: by shared memory, or all over MPI or UCX (default auto: shared "
         "on one host, messages between hosts)",
         setTransport}}},
      {"Output",
       {{"--report", "FILE", "losses, seconds and bytes, as JSON", setText(&RunOptions::report)},
        {"--log", "FILE.csv|FILE.jsonl|tensorboard:DIR",
         "loss, rate and speed of each step, written during the run", setText(&RunOptions::log)},
        {"--trace", "FILE", "timeline for Perfetto or chrome://tracing",
         setText(&RunOptions::trace)},
        {"--check-memory", "", "observe the memory that is really used, and report its peak",
         setFlag(&RunOptions::isMemoryChecked)},
        {"--progress", "step|epoch",
         "without a terminal: print a line for each step (default) or for each epoch",
         setChoice(&RunOptions::isShownByEpoch, "epoch", "step")},
        {"--quiet", "", "no line for each step", setFlag(&RunOptions::isQuiet)},
        {"--version", "", "the version of memopt", setFlag(&RunOptions::isVersion)},
        {"--help", "", "this text", setFlag(&RunOptions::isHelp), {"-h"}}}},
  };
  return groups;
}

static const OptionSpec &findSpec(const std::string &name) {
  for (const OptionGroup &group : getGroups())
    for (const OptionSpec &spec : group.options)
      if (spec.name == name)
        return spec;
  std::abort(); // the names are those of the table that was made of them
}

static const options::OptionTable &getTable() {
  static const options::OptionTable table = [] {
    std::vector<options::Option> rows;
    for (const OptionGroup &group : getGroups())
      for (const OptionSpec &spec : group.options)
        rows.push_back(
            {spec.name, spec.value, spec.help, group.name, spec.aliases, "", spec.isRepeatable});
    return options::OptionTable(
        "memopt-run", "memopt-run NAME.memopt | MODEL.pt2 | GRAPH.mlir [options]",
        "Trains or evaluates a compiled package. A model is compiled first by the memopt-compile "
        "beside it, which takes the options that are not listed here (memopt-compile --help). "
        "Loading a package runs native code: trust it as you would trust a program.",
        std::move(rows),
        "Exit codes: 0 done; 1 bad input or usage; 2 does not fit the memory budget; 3 the "
        "environment lacks something (device, disk space, rank); 4 the loss is not finite; 5 "
        "stopped by a signal (Ctrl-C, SIGTERM, SIGHUP) after a whole step, the checkpoint written. "
        "A second signal ends the run by that signal.",
        {{"--logging-dir", "--log=tensorboard:DIR"},
         {"--train-file", "--data=SOURCE"},
         {"--validation-file", "--eval-data=SOURCE"},
         {"--do-eval", "--eval-data=SOURCE"},
         {"--load-best-model-at-end", "--save-best"}});
  }();
  return table;
}

std::string memopt::getHelp() { return getTable().getHelp(); }

bool memopt::isRunOption(const std::string &name) { return getTable().find(name); }

std::string memopt::suggestOption(const std::string &name) { return getTable().suggest(name); }

//===----------------------------------------------------------------------===//
// The arguments
//===----------------------------------------------------------------------===//

bool memopt::needsCompilation(const std::string &model) {
  return endsWith(model, ".pt2") || endsWith(model, ".mlir");
}

/// Whether an argument that is no option can only be the value of the one in front, which the
/// compiler knows: `--device-memory 8GiB`.
static bool isValueForCompiler(const std::vector<std::string> &arguments, size_t index,
                               const RunOptions &options) {
  if (index == 0 || options.compileOptions.empty() ||
      options.compileOptions.back() != options::normalize(arguments[index - 1]) ||
      arguments[index - 1].find('=') != std::string::npos)
    return false;
  return !options.model.empty() ||
         (!needsCompilation(arguments[index]) && !endsWith(arguments[index], ".memopt"));
}

/// A word that is no option.
static Status addPlace(const std::vector<std::string> &arguments, size_t index,
                       RunOptions &options) {
  const std::string &argument = arguments[index];
  if (isValueForCompiler(arguments, index, options)) {
    options.compileOptions.push_back(argument);
    return Status::ok();
  }
  if (!options.model.empty())
    return badInput("there are two models, " + quote(options.model) + " and " + quote(argument));
  options.model = argument;
  return Status::ok();
}

static Status takeItem(const options::OptionReader::Item &item,
                       const std::vector<std::string> &arguments, size_t index,
                       RunOptions &options) {
  using Kind = options::OptionReader::Kind;
  switch (item.kind) {
  case Kind::Place:
    return addPlace(arguments, index, options);
  case Kind::Unknown:
    options.compileOptions.push_back(options::normalize(item.text));
    return Status::ok();
  case Kind::Wrong:
    return badInput(item.message);
  case Kind::Given:
    break;
  }
  const OptionSpec &spec = findSpec(item.option->name);
  if (spec.name != "-o")
    options.given.insert(spec.name);
  return spec.set(options, item.value).withContext(spec.name);
}

/// Options that memopt-run does not know are for the compiler, if that has work to do.
static Status checkRest(const RunOptions &options) {
  if (needsCompilation(options.model)) {
    for (const std::string &option : options.compileOptions)
      for (const char *other : {"--emit", "--estimate", "--frontier", "--calibrate"})
        if (option.substr(0, option.find('=')) == other)
          return badInput(std::string(other) + " makes no package to run; use memopt-compile");
    return Status::ok();
  }
  std::vector<std::string> rest = options.compileOptions;
  if (!options.packagePath.empty())
    rest.insert(rest.begin(), "-o");
  if (rest.empty())
    return Status::ok();
  std::string name = rest[0].substr(0, rest[0].find('='));
  return badInput("option " + quote(name) + " is unknown" + suggestOption(name) +
                  "; see --help. An option of memopt-compile " +
                  "comes too late: " + quote(options.model) + " is compiled already");
}

/// Where a run that is not told so takes place: on the device that its package is for. Empty where
/// the package cannot be read, which loading it will explain.
static std::string findDevice(const RunOptions &options) {
  constexpr std::string_view target = "--target=";
  if (needsCompilation(options.model)) {
    for (const std::string &option : options.compileOptions)
      if (startsWith(option, target))
        return option.substr(target.size());
    return "";
  }
  StatusOr<std::string> text = readFile(options.model + "/" + manifestFile, maxManifestBytes);
  if (!text.isOk())
    return "";
  StatusOr<Manifest> manifest = parseManifest(*text);
  return manifest.isOk() ? manifest->target.name : "";
}

StatusOr<RunOptions> memopt::parseOptions(const std::vector<std::string> &arguments) {
  RunOptions options;
  for (options::OptionReader reader(getTable(), arguments); !reader.isAtEnd();) {
    size_t index = reader.getPlace();
    MEMOPT_RETURN_IF_ERROR(takeItem(reader.next(), arguments, index, options));
  }
  if (options.isHelp || options.isVersion)
    return options;
  if (!options.isGiven("--device"))
    if (std::string device = findDevice(options); !device.empty())
      options.device = device;
  MEMOPT_RETURN_IF_ERROR(checkTogether(options));
  if (options.description.empty() && options.network.empty())
    MEMOPT_RETURN_IF_ERROR(checkRest(options));
  return options;
}
