//===- Evaluate.cpp - averages over a data set ----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Run.h"
#include "Signals.h"
#include <cstring>

using namespace memopt;

namespace {
/// Counts how often the largest of a sample's predictions is its label.
class AccuracyCounter {
public:
  explicit AccuracyCounter(const Session &session) : session(session) {
    const Manifest &manifest = session.getManifest();
    for (const OutputSpec &output : manifest.outputs) {
      bool isPrediction = output.role == "prediction" || output.role == "output";
      if (!isPrediction || !isFloat(output.dtype) || output.shape.size() < 2 || prediction)
        continue;
      // Of several inputs that fit, the last: a language model's targets stand behind its tokens.
      Shape samples(output.shape.begin(), output.shape.end() - 1);
      for (const InputSpec &input : manifest.inputs)
        if (!isFloat(input.dtype) && input.shape == samples)
          labels = &input;
      if (labels)
        prediction = &output;
    }
  }

  bool isActive() const { return prediction; }

  void count() {
    int64_t classes = prediction->shape.back();
    const char *scores = session.getAddress(*prediction), *targets = session.getAddress(*labels);
    for (int64_t sample = 0; sample < getElementCount(labels->shape); ++sample) {
      auto label = int64_t(readElement(labels->dtype, targets, sample));
      if (label < 0 || label >= classes)
        continue; // to be ignored
      int64_t best = 0;
      double bestScore = readElement(prediction->dtype, scores, sample * classes);
      for (int64_t i = 1; i < classes; ++i)
        if (double score = readElement(prediction->dtype, scores, sample * classes + i);
            score > bestScore) {
          best = i;
          bestScore = score;
        }
      right += best == label;
      ++total;
    }
  }

  double getAccuracy() const { return total ? double(right) / double(total) : 0; }

private:
  const Session &session;
  const OutputSpec *prediction = nullptr;
  const InputSpec *labels = nullptr;
  int64_t right = 0, total = 0;
};
} // namespace

static Status initialize(Run &run) {
  const RunOptions &options = run.options;
  if (!options.load.empty())
    return loadCheckpoint(options.load, run.session).takeStatus();
  if (!options.weights.empty())
    return loadWeights(options.weights, run.session).withContext("--weights");
  if (options.isRandom)
    return run.session.initializeRandomly(options.seed.value_or(0));
  return run.session.initializeFromWeights([](const auto &) { return false; });
}

/// Runs all batches and adds up the outputs of one element, weighted by samples.
static Status runBatches(Run &run, int64_t steps, AccuracyCounter &accuracy) {
  const Manifest &manifest = run.session.getManifest();
  Progress progress(run.options.isQuiet, manifest.predictedPeakBytes[MEMOPT_SPACE_DEVICE]);
  int lossIndex = manifest.getLossIndex();
  for (int64_t step = 0; step < steps && !isInterrupted(); ++step) {
    run.position = step;
    MEMOPT_RETURN_IF_ERROR(run.runStep(step + 1, 0, run.options.seed.value_or(0)));
    int64_t samples = run.data ? run.data->getSampleCount(step) : 1;
    run.report.samples += samples;
    double loss = 0;
    for (size_t i = 0; i < manifest.outputs.size(); ++i) {
      const OutputSpec &output = manifest.outputs[i];
      if (getElementCount(output.shape) != 1)
        continue;
      double value = run.session.readScalar(output);
      run.report.averages[output.name] += value * double(samples);
      if (int(i) == lossIndex)
        run.report.losses.push_back(loss = value);
    }
    if (accuracy.isActive())
      accuracy.count();
    progress.show(run.describeStep(step + 1, step + 1, loss), steps);
  }
  return Status::ok();
}

Status memopt::averageOutputs(Run &run) {
  AccuracyCounter accuracy(run.session);
  MEMOPT_RETURN_IF_ERROR(runBatches(run, run.countSteps(), accuracy));
  for (auto &[name, sum] : run.report.averages)
    sum /= double(std::max<int64_t>(1, run.report.samples));
  if (accuracy.isActive())
    run.report.averages.emplace("accuracy", accuracy.getAccuracy());
  return Status::ok();
}

Status memopt::evaluate(Run &run) {
  MEMOPT_RETURN_IF_ERROR(initialize(run));
  MEMOPT_RETURN_IF_ERROR(run.openData(run.options.seed.value_or(0)));
  Trace trace(run.session.getManifest(), run.options.trace.empty() ? 0 : run.countSteps());
  if (!run.options.trace.empty())
    MEMOPT_RETURN_IF_ERROR(run.session.setTrace(&trace).withContext("--trace"));
  Status status = averageOutputs(run);
  (void)run.session.setTrace(nullptr);
  run.report.measureOverhead(run.session);
  if (!run.options.trace.empty())
    if (Status written = trace.write(run.options.trace); status.isOk() && !written.isOk())
      status = std::move(written).withContext("--trace");
  MEMOPT_RETURN_IF_ERROR(std::move(status));
  if (isInterrupted())
    return Status(StatusCode::Interrupted,
                  "stopped after " + std::to_string(run.report.samples) + " samples");
  return Status::ok();
}
