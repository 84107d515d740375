//===- Train.cpp - the training loop --------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OptionRules.h"
#include "Run.h"
#include "Signals.h"
#include "Validation.h"
#include "memopt-runtime/package/Safetensors.h"
#include <cmath>
#include <limits>

using namespace memopt;

/// The schedule of this run: that of the checkpoint where there is one, with what the options
/// change.
static Status setSchedule(const RunOptions &options, const Manifest &manifest, int64_t lastStep,
                          LearningRateSchedule &schedule) {
  bool isResumed = !options.load.empty();
  if (options.rate)
    schedule.rate = *options.rate;
  else if (!isResumed && manifest.learningRate)
    schedule.rate = *manifest.learningRate;
  else if (!isResumed && manifest.findHyperparameter("lr"))
    return badInput("the package gives no learning rate; use --lr=X");
  MEMOPT_RETURN_IF_ERROR(changeSchedule(options, schedule));
  if (options.scheduleSteps)
    schedule.totalSteps = *options.scheduleSteps;
  else if (!isResumed)
    schedule.totalSteps = lastStep;
  return Status::ok();
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

/// Leaves a checkpoint, unless that of this step is written.
static Status save(Run &run, const TrainingState &state) {
  if (run.options.save.empty() || run.savedStep == state.step)
    return Status::ok();
  if (run.options.isStoppedOnNan)
    MEMOPT_RETURN_IF_ERROR(checkFinite(run.session, state));
  run.savedStep = state.step;
  return run.target ? run.target->save(run.session, state) : contributeToCheckpoint(run.session);
}

static Status saveGradients(Run &run) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<TensorToWrite> gradients, run.session.getCapturedGradients());
  if (!run.isFirst())
    return Status::ok();
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
/// Evaluates now and then, and says when no more is to be expected.
class EvaluationPlan {
public:
  EvaluationPlan(Run &run, Validation *validation, StepLog *log)
      : run(run), validation(validation), log(log), every(run.options.evalEvery) {
    if (!every && validation)
      every = std::max<int64_t>(1, run.countStepsOfEpoch());
  }

  /// What a step leaves: an evaluation when it is time or the run ends.
  Status afterStep(const TrainingState &state, bool isLast) {
    if (!validation || (state.step % every != 0 && !isLast))
      return Status::ok();
    MEMOPT_ASSIGN_OR_RETURN(std::optional<Evaluation> found, validation->evaluate(state.step));
    if (!found)
      return Status::ok(); // the run is about to stop
    const Evaluation &evaluation = *found;
    if (!run.options.isQuiet)
      notice("evaluation after step " + std::to_string(state.step) + ": " + evaluation.describe());
    if (log)
      MEMOPT_RETURN_IF_ERROR(log->add(evaluation).withContext("--log"));
    run.report.evaluations.push_back(evaluation);
    bool isBetter = evaluation.loss && !(*evaluation.loss >= best);
    worse = isBetter ? 0 : worse + 1;
    if (!isBetter)
      return Status::ok();
    best = *evaluation.loss;
    if (!run.options.isBestSaved)
      return Status::ok();
    MEMOPT_RETURN_IF_ERROR(save(run, state));
    return run.target ? run.target->mark("best") : Status::ok();
  }

  bool isExhausted() const { return run.options.patience && worse >= run.options.patience; }

private:
  Run &run;
  Validation *validation;
  StepLog *log;
  int64_t every, worse = 0;
  double best = std::numeric_limits<double>::infinity();
};
} // namespace

/// The step behind `state`, which is then that step's.
static StatusOr<StepFacts> advance(Run &run, TrainingState &state, ScaleLog &scales) {
  const Manifest &manifest = run.session.getManifest();
  int64_t step = state.step + 1;
  run.position = state.dataPosition;
  double rate = state.schedule.at(step);
  run.session.setGroupRates(state.schedule, step);
  scales.beforeStep();
  MEMOPT_RETURN_IF_ERROR(run.runStep(step, rate, state.seed));
  scales.afterStep();
  state.step = step;
  state.dataPosition += manifest.getBatchesPerStep();
  double loss = run.session.readScalar(manifest.outputs[size_t(manifest.getLossIndex())]);
  run.report.losses.push_back(loss);
  run.report.learningRates.push_back(rate);
  StepFacts facts = run.describeStep(step, state.dataPosition, loss);
  facts.learningRate = rate;
  if (const VariableSpec *norm = manifest.findGradientNorm())
    run.report.gradientNorms.push_back(*(facts.gradientNorm = run.session.readScalar(*norm)));
  return facts;
}

/// The steps; leaves early when asked to.
static Status runSteps(Run &run, TrainingState &state, Validation *validation, StepLog *log,
                       int64_t steps, int64_t lastStep) {
  const Manifest &manifest = run.session.getManifest();
  Progress progress(run.options, manifest.predictedPeakBytes[MEMOPT_SPACE_DEVICE]);
  ScaleLog scales(run);
  EvaluationPlan evaluations(run, validation, log);
  for (int64_t done = 0; done < steps; ++done) {
    MEMOPT_ASSIGN_OR_RETURN(bool isStopped, run.isStopped());
    if (isStopped)
      break;
    MEMOPT_ASSIGN_OR_RETURN(StepFacts facts, advance(run, state, scales));
    progress.show(facts, lastStep);
    if (log)
      MEMOPT_RETURN_IF_ERROR(log->add(facts).withContext("--log"));
    if (done == 0 && !run.options.saveGradients.empty())
      MEMOPT_RETURN_IF_ERROR(saveGradients(run));
    if (run.options.saveEvery && state.step % run.options.saveEvery == 0)
      MEMOPT_RETURN_IF_ERROR(save(run, state));
    MEMOPT_RETURN_IF_ERROR(evaluations.afterStep(state, done + 1 == steps));
    if (evaluations.isExhausted()) {
      if (run.isFirst())
        notice("stopped after step " + std::to_string(state.step) + ": " +
               std::to_string(run.options.patience) + " evaluations without a smaller loss");
      break;
    }
  }
  return Status::ok();
}

Status memopt::train(Run &run, Validation *validation) {
  TrainingState state;
  MEMOPT_RETURN_IF_ERROR(beginTraining(run, state));
  MEMOPT_RETURN_IF_ERROR(run.openData(state.seed));
  // Data come in micro-batches; the position counts what these are parts of.
  int64_t batchSize = run.data ? run.data->getBatchSize() : 1;
  MEMOPT_RETURN_IF_ERROR(state.countBatchesOf(batchSize * run.session.getManifest().microBatches)
                             .withContext("checkpoint " + quote(run.options.load)));
  int64_t steps = run.countSteps(), lastStep;
  if (__builtin_add_overflow(state.step, steps, &lastStep))
    lastStep = std::numeric_limits<int64_t>::max();
  MEMOPT_RETURN_IF_ERROR(
      setSchedule(run.options, run.session.getManifest(), lastStep, state.schedule));
  if (!run.options.saveGradients.empty())
    MEMOPT_RETURN_IF_ERROR(run.session.captureGradients().withContext("--save-gradients"));
  Trace trace(run.session.getManifest(), run.options.trace.empty() ? 0 : steps);
  if (!run.options.trace.empty())
    MEMOPT_RETURN_IF_ERROR(run.session.setTrace(&trace).withContext("--trace"));
  std::unique_ptr<StepLog> log;
  if (!run.options.log.empty()) {
    StatusOr<std::unique_ptr<StepLog>> opened =
        StepLog::open(run.options.log, !run.options.load.empty());
    if (!opened.isOk())
      return opened.takeStatus().withContext("--log");
    log = *std::move(opened);
  }
  Status status = runSteps(run, state, validation, log.get(), steps, lastStep);
  (void)run.session.setTrace(nullptr);
  if (status.isOk())
    status = run.report.measureOverhead(run.session);
  // The timeline is wanted most when something went wrong.
  if (!run.options.trace.empty())
    if (Status written = trace.write(run.options.trace); status.isOk() && !written.isOk())
      status = std::move(written).withContext("--trace");
  MEMOPT_RETURN_IF_ERROR(std::move(status));
  MEMOPT_RETURN_IF_ERROR(run.report.gather(run.session, run.communicator));
  MEMOPT_RETURN_IF_ERROR(save(run, state));
  MEMOPT_ASSIGN_OR_RETURN(bool isStopped, run.isStopped());
  if (!isStopped)
    return Status::ok();
  return Status(StatusCode::Interrupted,
                "stopped after step " + std::to_string(state.step) +
                    (run.options.save.empty()
                         ? "; nothing was saved (no --save)"
                         : "; the checkpoint is in " + quote(run.options.save)));
}
