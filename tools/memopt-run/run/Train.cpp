//===- Train.cpp - the training loop --------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/Signals.h"
#include "memopt-run/options/OptionRules.h"
#include "memopt-run/run/Checkpoints.h"
#include "memopt-run/run/Run.h"
#include "memopt-run/run/Validation.h"
#include "memopt-runtime/package/Safetensors.h"
#include <limits>
#include <new>
#include <utility>

using namespace memopt;

/// What takes the place of rates that a host program would set, in runs from random weights.
static constexpr double kMeasuringRate = 0.001;

/// A run that begins with random weights trains nothing of anybody's: it measures. So it needs no
/// numbers of a host program.
static bool isMeasuring(const RunOptions &options) {
  return options.isRandom && options.load.empty();
}

/// The schedule of this run: that of the checkpoint where there is one, with what the options
/// change.
static Status setSchedule(const RunOptions &options, const Manifest &manifest, int64_t lastStep,
                          LearningRateSchedule &schedule) {
  bool isResumed = !options.load.empty();
  if (options.rate)
    schedule.rate = *options.rate;
  else if (!isResumed && manifest.learningRate)
    schedule.rate = *manifest.learningRate;
  else if (isMeasuring(options))
    schedule.rate = kMeasuringRate;
  else if (!isResumed && manifest.findHyperparameter("lr"))
    return badInput("the package gives no learning rate; use --lr=X");
  MEMOPT_RETURN_IF_ERROR(changeSchedule(options, schedule));
  if (options.scheduleSteps)
    schedule.totalSteps = *options.scheduleSteps;
  else if (!isResumed)
    schedule.totalSteps = lastStep;
  return Status::ok();
}

/// A package without a rate is for a host program (--hyperparameters=host): its numbers of the
/// optimizer are placeholders, for which a checkpoint of that program has those that are meant.
static Status checkNumbers(const Run &run, TrainingState &state) {
  std::string advice = "the program that compiled the package sets it; continue from a checkpoint "
                       "that it has saved, --load=FOLDER";
  // The limit of --max-grad-norm is compiled as it is meant.
  auto isOfOptimizer = [](const VariableSpec &variable) {
    return variable.isGroupRate() ||
           (variable.isOptimizerSetting() && variable.name != "hyperparameter.max_grad_norm");
  };
  bool isNoted = false;
  auto measure = [&](const Manifest &manifest) {
    double rate = run.options.rate.value_or(kMeasuringRate);
    for (const VariableSpec &variable : manifest.variables)
      if (variable.isGroupRate())
        state.numbers.try_emplace(variable.name, rate);
    if (!std::exchange(isNoted, true) && run.isFirst())
      notice("note: the program that compiled the package sets learning rates and other numbers of "
             "the optimizer; this run from random weights takes the rate " +
             nlohmann::json(rate).dump() + " and the compiler's defaults");
  };
  auto check = [&](const Manifest &manifest) -> Status {
    if (manifest.learningRate || manifest.optimizer.empty())
      return Status::ok();
    if (isMeasuring(run.options)) {
      measure(manifest);
      return Status::ok();
    }
    if (run.options.load.empty() && !run.options.rate)
      return badInput("the learning rate: " + advice);
    for (const VariableSpec &variable : manifest.variables)
      if (isOfOptimizer(variable) && !state.numbers.count(variable.name))
        return badInput(quote(variable.name) + ": " + advice);
    return Status::ok();
  };
  for (size_t number : run.trained)
    MEMOPT_RETURN_IF_ERROR(check((*run.programs)[number].getManifest()));
  return check(run.session.getManifest());
}

/// First values of all variables, and where the run stands.
static Status beginTraining(Run &run, TrainingState &state) {
  const RunOptions &options = run.options;
  if (!options.load.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(state, loadCheckpoint(options.load, run.session));
  }
  state.optimizer = run.session.getManifest().optimizer;
  state.seed = options.seed.value_or(state.seed);
  if (options.load.empty() && options.isRandom)
    MEMOPT_RETURN_IF_ERROR(run.session.initializeRandomly(state.seed));
  else if (!options.weights.empty())
    MEMOPT_RETURN_IF_ERROR(loadWeights(options.weights, run.session).withContext("--weights"));
  else if (options.load.empty())
    MEMOPT_RETURN_IF_ERROR(run.session.initializeFromWeights([](const auto &) { return false; }));
  return Status::ok();
}

static Status saveGradients(Run &run) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<TensorToWrite> gradients, run.session.getCapturedGradients());
  if (!run.isFirst())
    return Status::ok();
  KeepAlive::Work work(run.keepAlive);
  return writeSafetensors(run.options.saveGradients, gradients).withContext("--save-gradients");
}

namespace {
/// Notes in the report what becomes of the scale of the loss, where there is one.
class ScaleLog {
public:
  explicit ScaleLog(Run &run)
      : run(run), scale(run.session.getManifest().findLossScale()),
        skipped(run.session.getManifest().findSkippedSteps()) {}

  void beforeStep() {
    if (scale)
      run.report.lossScales.push_back(run.session.readScalar(*scale));
    before = skipped ? run.session.readScalar(*skipped) : 0;
  }
  void afterStep() {
    if (skipped && run.session.readScalar(*skipped) != before)
      run.report.skippedSteps.push_back(int64_t(run.report.losses.size()));
  }

private:
  Run &run;
  const VariableSpec *scale, *skipped;
  double before = 0;
};
} // namespace

namespace {
/// The file of --log. Training goes on when it cannot be written; what is missing is added as soon
/// as it can.
class RunLog {
public:
  RunLog(Run &run, std::unique_ptr<StepLog> log) : run(run), log(std::move(log)) {}
  ~RunLog() {
    if (log)
      run.noteSideFailure(log->flush().withContext("--log"));
  }
  RunLog(const RunLog &) = delete;
  RunLog &operator=(const RunLog &) = delete;

  template <typename Entry> void add(const Entry &entry) {
    if (!log)
      return;
    KeepAlive::Work work(run.keepAlive);
    Status status = log->add(entry);
    if (bool isBad = !status.isOk(); std::exchange(isFailing, isBad) != isBad)
      notice(isBad ? "--log: " + status.getMessage() +
                         "; training goes on, and what is missing is added when that is possible"
                   : std::string("--log: what was missing is added"));
  }

private:
  Run &run;
  std::unique_ptr<StepLog> log;
  bool isFailing = false;
};

/// Evaluates now and then, and says when no more is to be expected.
class EvaluationPlan {
public:
  EvaluationPlan(Run &run, Validation *validation, RunLog &log, Checkpoints &checkpoints)
      : run(run), validation(validation), log(log), checkpoints(checkpoints),
        every(run.options.evalEvery) {
    if (!every && validation)
      every = std::max<int64_t>(1, run.countStepsOfEpoch());
  }

  /// What a step leaves: an evaluation when it is time or the run ends.
  Status afterStep(TrainingState &state, bool isLast) {
    if (!validation || (state.step % every != 0 && !isLast))
      return Status::ok();
    StatusOr<std::optional<Evaluation>> evaluated = validation->evaluate(state.step);
    run.refusing = validation->getRefusingRank();
    MEMOPT_ASSIGN_OR_RETURN(std::optional<Evaluation> evaluation, std::move(evaluated));
    if (!evaluation)
      return Status::ok(); // the run is about to stop
    bool isBest = state.best.note(evaluation->loss, state.step);
    if (isBest && run.options.isBestSaved)
      MEMOPT_RETURN_IF_ERROR(checkpoints.saveBest(state));
    if (!run.options.isQuiet)
      notice("evaluation after step " + std::to_string(state.step) + ": " + evaluation->describe());
    log.add(*evaluation);
    run.report.evaluations.push_back(*std::move(evaluation));
    isExhausted = run.options.patience && state.best.worse >= run.options.patience;
    return Status::ok();
  }

  bool isOver() const { return isExhausted; }

private:
  Run &run;
  Validation *validation;
  RunLog &log;
  Checkpoints &checkpoints;
  int64_t every;
  bool isExhausted = false;
};
} // namespace

/// The step behind `state`, which is then that step's.
static StatusOr<StepFacts> advance(Run &run, TrainingState &state, ScaleLog &scales) {
  int64_t step = state.step + 1;
  run.position = state.dataPosition;
  Status entered = run.enterProgram(step).withContext("step " + std::to_string(step));
  MEMOPT_RETURN_IF_ERROR(run.hasSeveral() ? run.agree(std::move(entered)) : std::move(entered));
  Session &program = run.getProgram();
  const Manifest &manifest = program.getManifest();
  double rate = state.schedule.at(step);
  program.setGroupRates(state.schedule, step, state.numbers);
  scales.beforeStep();
  MEMOPT_RETURN_IF_ERROR(run.runStep(step, rate, state.seed));
  scales.afterStep();
  state.step = step;
  state.dataPosition += manifest.getBatchesPerStep();
  double loss = program.readScalar(manifest.outputs[size_t(manifest.getLossIndex())]);
  run.report.losses.push_back(loss);
  run.report.learningRates.push_back(rate);
  StepFacts facts = run.describeStep(step, state.dataPosition, loss);
  facts.learningRate = rate;
  if (const VariableSpec *norm = manifest.findGradientNorm())
    run.report.gradientNorms.push_back(*(facts.gradientNorm = program.readScalar(*norm)));
  return facts;
}

/// The steps; leaves early when asked to. What a checkpoint needs comes before what a user reads.
static Status runSteps(Run &run, TrainingState &state, Validation *validation, RunLog &log,
                       Checkpoints &checkpoints, int64_t steps, int64_t lastStep) {
  const RunOptions &options = run.options;
  Progress progress(options, run.session.getManifest().predictedPeakBytes[MEMOPT_SPACE_DEVICE]);
  ScaleLog scales(run);
  EvaluationPlan evaluations(run, validation, log, checkpoints);
  for (int64_t done = 0; done < steps; ++done) {
    MEMOPT_ASSIGN_OR_RETURN(bool isStopped, run.isStopped());
    if (isStopped)
      break;
    MEMOPT_ASSIGN_OR_RETURN(StepFacts facts, advance(run, state, scales));
    if (options.saveEvery && state.step % options.saveEvery == 0)
      MEMOPT_RETURN_IF_ERROR(checkpoints.save(state));
    MEMOPT_RETURN_IF_ERROR(checkpoints.retry(state));
    progress.show(facts, lastStep);
    log.add(facts);
    if (done == 0 && !options.saveGradients.empty())
      run.noteSideFailure(saveGradients(run));
    MEMOPT_RETURN_IF_ERROR(evaluations.afterStep(state, done + 1 == steps));
    if (evaluations.isOver()) {
      if (run.isFirst())
        notice("stopped after step " + std::to_string(state.step) + ": " +
               std::to_string(options.patience) + " evaluations without a smaller loss");
      break;
    }
  }
  return Status::ok();
}

/// Memory that is not there is one more failure after which the state may be whole.
template <typename Body> static Status catchOutOfMemory(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return environmentError("this machine is out of memory");
  }
}

/// Where the run stands at first, and how far it goes.
static Status placeRun(Run &run, TrainingState &state, int64_t &steps, int64_t &lastStep) {
  const Manifest &manifest = run.session.getManifest();
  MEMOPT_RETURN_IF_ERROR(beginTraining(run, state));
  MEMOPT_RETURN_IF_ERROR(checkNumbers(run, state));
  MEMOPT_RETURN_IF_ERROR(run.openData(state.seed));
  // Data come in micro-batches; the position counts what these are parts of.
  int64_t batchSize = run.data ? run.data->getBatchSize() : 1;
  MEMOPT_RETURN_IF_ERROR(state.countBatchesOf(batchSize * manifest.microBatches)
                             .withContext("checkpoint " + quote(run.options.load)));
  steps = run.countSteps();
  if (__builtin_add_overflow(state.step, steps, &lastStep))
    lastStep = std::numeric_limits<int64_t>::max();
  return setSchedule(run.options, manifest, lastStep, state.schedule);
}

/// The most checkpoints that a run of so many steps writes.
static int64_t countSaves(const RunOptions &options, int64_t steps) {
  int64_t saves = 1 + (options.saveEvery ? steps / options.saveEvery : 0);
  return options.isBestSaved ? std::max<int64_t>(saves, 2) : saves;
}

/// Everything that the run writes to, before its first step.
static StatusOr<std::unique_ptr<StepLog>> openOutputs(Run &run, const TrainingState &state,
                                                      int64_t steps) {
  const RunOptions &options = run.options;
  const Manifest &manifest = run.session.getManifest();
  if (run.target && !options.load.empty())
    run.target->beginBehind(state.step);
  if (run.target)
    MEMOPT_RETURN_IF_ERROR(run.target->checkRoom(manifest, countSaves(options, steps)));
  if (!options.saveGradients.empty())
    MEMOPT_RETURN_IF_ERROR(run.session.captureGradients().withContext("--save-gradients"));
  if (options.log.empty())
    return std::unique_ptr<StepLog>();
  StatusOr<std::unique_ptr<StepLog>> log =
      StepLog::open(options.log, options.load.empty() ? std::nullopt : std::optional(state.step),
                    manifest.findGradientNorm() != nullptr);
  return log.isOk() ? std::move(log) : log.takeStatus().withContext("--log");
}

/// What is told of the steps, when their checkpoint is written or could not be.
static Status tell(Run &run, Trace &trace, bool hasEnded, Status status) {
  if (!run.options.trace.empty()) {
    // The timeline is wanted most when something went wrong.
    KeepAlive::Work work(run.keepAlive);
    run.noteSideFailure(trace.write(run.options.trace).withContext("--trace"));
  }
  if (!hasEnded)
    return status;
  Status gathered = run.report.gather(run.session, run.communicator);
  run.hasResults = gathered.isOk();
  return status.isOk() ? std::move(gathered) : std::move(status);
}

Status memopt::train(Run &run, Validation *validation) {
  TrainingState state;
  int64_t steps = 0, lastStep = 0;
  MEMOPT_RETURN_IF_ERROR(placeRun(run, state, steps, lastStep));
  Trace trace(run.session.getManifest(), run.options.trace.empty() ? 0 : steps);
  if (!run.options.trace.empty())
    MEMOPT_RETURN_IF_ERROR(run.session.setTrace(&trace).withContext("--trace"));
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<StepLog> opened, openOutputs(run, state, steps));
  Checkpoints checkpoints(run, state.step);
  Status status, measured;
  bool hasEnded = false;
  {
    RunLog log(run, std::move(opened));
    for (size_t number : run.trained)
      (*run.programs)[number].setLossHandler([&] { checkpoints.saveBeforeLoss(state); });
    status = catchOutOfMemory(
        [&] { return runSteps(run, state, validation, log, checkpoints, steps, lastStep); });
    (void)run.session.setTrace(nullptr);
    for (size_t number : run.trained)
      (*run.programs)[number].setLossHandler({});
    hasEnded = status.isOk();
    if (hasEnded)
      measured = run.report.measureOverhead(*run.programs);
    status =
        status.isOk() ? checkpoints.finish(state) : checkpoints.rescue(state, std::move(status));
  }
  MEMOPT_RETURN_IF_ERROR(tell(run, trace, hasEnded, std::move(status)));
  MEMOPT_RETURN_IF_ERROR(std::move(measured).withContext("after the last step"));
  MEMOPT_ASSIGN_OR_RETURN(bool isStopped, run.isStopped());
  if (!isStopped)
    return Status::ok();
  return Status(StatusCode::Interrupted,
                "stopped after step " + std::to_string(state.step) +
                    (run.options.save.empty()
                         ? "; nothing was saved (no --save)"
                         : "; the checkpoint is in " + quote(run.options.save)));
}
