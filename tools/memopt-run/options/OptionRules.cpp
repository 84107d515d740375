//===- OptionRules.cpp - what options need of each other ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/options/OptionRules.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/base/Text.h"
#include "memopt-runtime/data/Data.h"
#include <algorithm>

using namespace memopt;

//===----------------------------------------------------------------------===//
// What an option needs
//===----------------------------------------------------------------------===//

namespace {
/// An option, whether the others let it have an effect, and what it needs otherwise.
struct Need {
  const char *option;
  bool (*isMet)(const RunOptions &);
  const char *what;
};

/// An option and the schedules that read it.
struct ScheduleNeed {
  const char *option;
  std::vector<ScheduleKind> kinds;
  const char *what;
};
} // namespace

static bool hasData(const RunOptions &options) { return !options.data.empty(); }
static bool hasEvalData(const RunOptions &options) { return !options.evalData.empty(); }
static bool hasSave(const RunOptions &options) { return !options.save.empty(); }

static bool hasText(const RunOptions &options) {
  return std::any_of(options.data.begin(), options.data.end(), DataSource::isText) ||
         std::any_of(options.evalData.begin(), options.evalData.end(), DataSource::isText);
}

static const Need needs[] = {
    {"--shuffle", hasData, "--data=SOURCE"},
    {"--data-scale", hasData, "--data=SOURCE"},
    {"--data-mean", hasData, "--data=SOURCE"},
    {"--data-std", hasData, "--data=SOURCE"},
    {"--data-augment", hasData, "--data=SOURCE"},
    {"--data-buckets", hasData, "--data=lines:TEXTFILE or --data=texts:FILE.safetensors"},
    {"--alternate", hasData, "--data=SOURCE"},
    {"--data-stride", hasText, "a text, --data=bytes:TEXTFILE or --data=tokens:FILE.safetensors"},
    {"--eval-every", hasEvalData, "--eval-data=SOURCE"},
    {"--averaged", hasEvalData, "--eval-data=SOURCE"},
    {"--eval-package", hasEvalData, "--eval-data=SOURCE"},
    {"--patience", hasEvalData, "--eval-data=SOURCE"},
    {"--save-best", hasEvalData, "--eval-data=SOURCE"},
    {"--save-best", hasSave, "--save=DIR"},
    {"--save-every", hasSave, "--save=DIR"},
    {"--names", hasSave, "--save=DIR"},
    {"--keep", hasSave, "--save=DIR"},
    {"--keep", [](const RunOptions &options) { return options.keep == 1 || options.saveEvery > 0; },
     "--save-every=N, without which there is one checkpoint"},
    {"--cuda-graph", [](const RunOptions &options) { return options.device == "cuda"; },
     "--device=cuda"},
    {"--flush-denormals", [](const RunOptions &options) { return options.device == "cpu"; },
     "--device=cpu"},
};

static const ScheduleNeed scheduleNeeds[] = {
    {"--schedule-steps",
     {ScheduleKind::Linear, ScheduleKind::Cosine, ScheduleKind::Polynomial, ScheduleKind::OneCycle},
     "linear, cosine, polynomial or one-cycle"},
    {"--lr-min",
     {ScheduleKind::Linear, ScheduleKind::Cosine, ScheduleKind::Polynomial},
     "linear, cosine or polynomial"},
    {"--lr-step-size", {ScheduleKind::Step}, "step"},
    {"--lr-gamma",
     {ScheduleKind::Step, ScheduleKind::MultiStep, ScheduleKind::Exponential},
     "step, multi-step or exponential"},
    {"--lr-milestones", {ScheduleKind::MultiStep}, "multi-step"},
    {"--lr-power", {ScheduleKind::Polynomial}, "polynomial"},
    {"--lr-pct-start", {ScheduleKind::OneCycle}, "one-cycle"},
    {"--lr-div-factor", {ScheduleKind::OneCycle}, "one-cycle"},
    {"--lr-final-div-factor", {ScheduleKind::OneCycle}, "one-cycle"},
};

/// Of training alone; what they need in turn stands above.
static const char *const ofTraining[] = {
    "--alternate", "--data-buckets", "--save",          "--save-gradients",
    "--log",       "--eval-data",    "--data-augment",  "--stop-on-nan",
    "--lr",        "--lr-schedule",  "--warmup-steps",  "--schedule-steps",
    "--lr-min",    "--lr-step-size", "--lr-gamma",      "--lr-milestones",
    "--lr-power",  "--lr-pct-start", "--lr-div-factor", "--lr-final-div-factor"};

//===----------------------------------------------------------------------===//
// By the mode, the schedule, and the data
//===----------------------------------------------------------------------===//

Status memopt::checkMode(const RunOptions &options, const std::string &mode) {
  if (mode != "eval")
    return Status::ok();
  for (const char *option : ofTraining)
    if (options.isGiven(option))
      return badInput(std::string(option) + " belongs to training, the package is of mode 'eval'");
  return Status::ok();
}

Status memopt::changeSchedule(const RunOptions &options, LearningRateSchedule &schedule) {
  schedule.kind = options.schedule.value_or(schedule.kind);
  schedule.warmupSteps = options.warmupSteps.value_or(schedule.warmupSteps);
  schedule.minRate = options.minRate.value_or(schedule.minRate);
  schedule.stepSize = options.stepSize.value_or(schedule.stepSize);
  schedule.gamma = options.gamma.value_or(schedule.gamma);
  schedule.power = options.power.value_or(schedule.power);
  schedule.milestones = options.milestones.value_or(schedule.milestones);
  schedule.percentStart = options.percentStart.value_or(schedule.percentStart);
  schedule.divFactor = options.divFactor.value_or(schedule.divFactor);
  schedule.finalDivFactor = options.finalDivFactor.value_or(schedule.finalDivFactor);
  for (const ScheduleNeed &need : scheduleNeeds)
    if (options.isGiven(need.option) &&
        std::find(need.kinds.begin(), need.kinds.end(), schedule.kind) == need.kinds.end())
      return badInput(std::string(need.option) + " needs --lr-schedule=" + need.what);
  if (schedule.kind == ScheduleKind::MultiStep && schedule.milestones.empty())
    return badInput("--lr-schedule=multi-step needs --lr-milestones=A,B,...");
  return Status::ok();
}

Status memopt::checkDataUses(const RunOptions &options, const DataUses &uses) {
  for (const char *option : {"--data-scale", "--data-mean", "--data-std"})
    if (options.isGiven(option) && !uses.isScaled)
      return badInput(std::string(option) + " scales bytes for floating-point inputs, and --data " +
                      "has none; scale the numbers where the file is made");
  if (options.isShuffled.value_or(false) && !uses.isOrdered)
    return badInput("--shuffle=on orders samples, and --data has batches (step0.INPUT, ...), which "
                    "keep their order; give tensors INPUT of [samples, ...]");
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// By the command line
//===----------------------------------------------------------------------===//

static Status checkEvaluation(const RunOptions &options) {
  if (options.evalData.empty())
    return Status::ok();
  if (options.mode == "eval")
    return badInput("--eval-data belongs to training; give --data with --mode=eval");
  return Status::ok();
}

/// Options of which at most one may be given.
static Status checkPairs(const RunOptions &options) {
  if (options.steps && options.epochs)
    return badInput("--steps and --epochs both say how long; give one");
  if (options.isQuiet && options.isGiven("--progress"))
    return badInput("--quiet leaves out the lines of --progress; give one");
  if (!options.weights.empty() && (options.isRandom || !options.load.empty()))
    return badInput(std::string("--weights and ") +
                    (options.isRandom ? "--init=random" : "--load") +
                    " both give first values; give one");
  if (options.isRandom && !options.load.empty())
    return badInput("--init=random and --load both give first values; give one");
  return Status::ok();
}

/// A description is all that is made, by `option` and others that are allowed beside it.
static Status checkDescription(const RunOptions &options, const std::string &option,
                               std::initializer_list<const char *> allowed) {
  if (!options.model.empty())
    return badInput(option + " runs nothing; leave out " + quote(options.model));
  for (const std::string &other : options.given)
    if (other != option && std::find(allowed.begin(), allowed.end(), other) == allowed.end())
      return badInput(option + " runs nothing; leave out " + other);
  return Status::ok();
}

Status memopt::checkTogether(const RunOptions &options) {
  if (!options.description.empty())
    return checkDescription(options, "--describe-device", {"--device"});
  if (!options.network.empty())
    return checkDescription(options, "--describe-network",
                            {"--ranks", "--rank-timeout", "--transport", "--launcher"});
  if (options.model.empty())
    return badInput("no model is given; memopt-run NAME.memopt | MODEL.pt2 [options], see --help");
  MEMOPT_RETURN_IF_ERROR(checkPairs(options));
  for (const Need &need : needs)
    if (options.isGiven(need.option) && !need.isMet(options))
      return badInput(std::string(need.option) + " needs " + need.what);
  MEMOPT_RETURN_IF_ERROR(checkEvaluation(options));
  MEMOPT_RETURN_IF_ERROR(checkMode(options, options.mode));
  if (!options.load.empty())
    return Status::ok(); // the checkpoint may bring a schedule
  LearningRateSchedule schedule;
  return changeSchedule(options, schedule);
}

Status memopt::checkAlone(const RunOptions &options) {
  // Next to ranks of a launcher's, one command line may serve those and a run that is none.
  if (!options.isGiven("--rank-timeout") || options.ranks || !options.isLauncherHeard)
    return Status::ok();
  return badInput("--rank-timeout needs --ranks=N, or processes that a launcher starts");
}
