//===- Evaluate.cpp - averages over a data set ----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/run/Run.h"
#include <algorithm>
#include <cmath>
#include <cstring>

using namespace memopt;

namespace {
/// Counts how often a sample's label is its largest prediction, or one of the five largest.
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

  /// What is counted of a batch; labels to be ignored are none.
  struct Counts {
    int64_t right = 0, amongFive = 0, labels = 0;
  };

  Counts count() const {
    Counts counts;
    if (!isActive())
      return counts;
    const char *targets = session.getAddress(*labels);
    int64_t classes = prediction->shape.back();
    for (int64_t sample = 0; sample < getElementCount(labels->shape); ++sample) {
      auto label = int64_t(readElement(labels->dtype, targets, sample));
      if (label < 0 || label >= classes)
        continue; // to be ignored
      int64_t better = countBetter(sample * classes, label);
      counts.right += better == 0;
      counts.amongFive += better < 5;
      ++counts.labels;
    }
    return counts;
  }

  bool hasFive() const { return isActive() && prediction->shape.back() > 5; }
  /// Whether each sample is a sequence of labels, as in language models.
  bool isOfTokens() const { return isActive() && labels->shape.size() > 1; }

private:
  /// Classes that score more than the label, or as much and come first; all of them where its score
  /// is no number.
  int64_t countBetter(int64_t first, int64_t label) const {
    const char *scores = session.getAddress(*prediction);
    double own = readElement(prediction->dtype, scores, first + label);
    int64_t classes = prediction->shape.back(), better = 0;
    for (int64_t i = 0; i < classes; ++i) {
      double score = readElement(prediction->dtype, scores, first + i);
      better += score > own || (score == own && i < label) || std::isnan(own);
    }
    return better;
  }

  const Session &session;
  const OutputSpec *prediction = nullptr;
  const InputSpec *labels = nullptr;
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

namespace {
/// Adds up what batches give, in their order. Ranks exchange what theirs give: a rank's share is
/// every n-th batch, so the ranks' records stand in the order of the batches.
class OutputSums {
public:
  explicit OutputSums(Run &run) : run(run), accuracy(run.session) {
    for (const OutputSpec &output : run.session.getManifest().outputs)
      if (isScalarEverywhere(output.name))
        scalars.push_back(&output);
    mine.resize(firstScalar + scalars.size());
    all.resize(mine.size() * size_t(countRanks()));
  }

  int64_t countRanks() const { return run.communicator ? run.communicator->getRanks() : 1; }
  int64_t getRank() const { return run.communicator ? run.communicator->getRank() : 0; }

  /// Notes what this rank's batch has given.
  void note(int64_t samples) {
    const Session &program = run.getProgram();
    AccuracyCounter::Counts counts = AccuracyCounter(program).count();
    mine[sampleCount] = double(samples);
    mine[rightCount] = double(counts.right);
    mine[fiveCount] = double(counts.amongFive);
    mine[labelCount] = double(counts.labels);
    for (size_t i = 0; i < scalars.size(); ++i)
      mine[firstScalar + i] = program.readScalar(*findOutput(program, scalars[i]->name));
  }

  /// Adds what the first `batches` ranks have noted.
  Status add(int64_t batches) {
    if (run.communicator)
      MEMOPT_RETURN_IF_ERROR(run.communicator->exchangeAny(
          mine.data(), int64_t(mine.size() * sizeof(double)), all.data()));
    else
      all = mine;
    for (int64_t batch = 0; batch < batches; ++batch)
      addRecord(&all[size_t(batch) * mine.size()]);
    return Status::ok();
  }

  /// Of the batch that was added last.
  double getLoss() const { return run.report.losses.empty() ? 0 : run.report.losses.back(); }

  void finish() {
    for (auto &[name, sum] : run.report.averages)
      sum /= double(std::max<int64_t>(1, run.report.samples));
    auto labels = double(std::max<int64_t>(1, total.labels));
    if (accuracy.isActive())
      run.report.averages.emplace("accuracy", double(total.right) / labels);
    if (accuracy.hasFive())
      run.report.averages.emplace("top5_accuracy", double(total.amongFive) / labels);
    int loss = run.session.getManifest().getLossIndex();
    if (accuracy.isOfTokens() && loss >= 0)
      run.report.averages.emplace(
          "perplexity",
          std::exp(run.report.averages[run.session.getManifest().outputs[size_t(loss)].name]));
  }

private:
  /// Places in a record; whole numbers below 2^53 are themselves.
  enum : size_t { sampleCount, rightCount, fiveCount, labelCount, firstScalar };

  static const OutputSpec *findOutput(const Session &program, const std::string &name) {
    for (const OutputSpec &output : program.getManifest().outputs)
      if (output.name == name)
        return &output;
    return nullptr;
  }

  /// Whether an output is one number in each program that evaluates.
  bool isScalarEverywhere(const std::string &name) const {
    auto isScalar = [&](const Session &program) {
      const OutputSpec *output = findOutput(program, name);
      return output && getElementCount(output->shape) == 1;
    };
    return isScalar(run.session) &&
           (!run.hasSeveral() ||
            std::all_of(run.trained.begin(), run.trained.end(),
                        [&](size_t number) { return isScalar((*run.programs)[number]); }));
  }

  void addRecord(const double *record) {
    run.report.samples += int64_t(record[sampleCount]);
    total.right += int64_t(record[rightCount]);
    total.amongFive += int64_t(record[fiveCount]);
    total.labels += int64_t(record[labelCount]);
    for (size_t i = 0; i < scalars.size(); ++i) {
      double value = record[firstScalar + i];
      run.report.averages[scalars[i]->name] += value * record[sampleCount];
      if (scalars[i]->role == "loss")
        run.report.losses.push_back(value);
    }
  }

  Run &run;
  AccuracyCounter accuracy; ///< says what is counted; programs of other shapes count the same
  std::vector<const OutputSpec *>
      scalars;                   ///< outputs of one element, as the first program has them
  std::vector<double> mine, all; ///< a record, and those of all ranks
  AccuracyCounter::Counts total;
};
} // namespace

StatusOr<bool> memopt::averageOutputs(Run &run) {
  Progress progress(run.options, run.session.getManifest().predictedPeakBytes[MEMOPT_SPACE_DEVICE]);
  OutputSums sums(run);
  int64_t steps = run.countSteps(), ranks = sums.countRanks();
  for (int64_t first = 0; first < steps; first += ranks) {
    MEMOPT_ASSIGN_OR_RETURN(bool isStopped, run.isStopped());
    if (isStopped)
      return false;
    // Ranks that share out what the program reads run it together: one without a batch of its own
    // takes the last one again, which is not counted.
    Status status;
    int64_t step = first + sums.getRank();
    if (step < steps || run.session.getManifest().ranks > 1) {
      run.position = std::min(step, steps - 1);
      if (run.hasSeveral())
        status = run.enterProgram(run.position + 1);
      if (status.isOk())
        status = run.runStep(run.position + 1, 0, run.options.seed.value_or(0));
      sums.note(run.data ? run.data->getSampleCount(run.position) : 1);
    }
    MEMOPT_RETURN_IF_ERROR(run.agree(std::move(status)));
    int64_t done = std::min(steps, first + ranks);
    MEMOPT_RETURN_IF_ERROR(sums.add(done - first));
    progress.show(run.describeStep(done, done, sums.getLoss()), steps);
  }
  sums.finish();
  return true;
}

Status memopt::evaluate(Run &run) {
  MEMOPT_RETURN_IF_ERROR(initialize(run));
  MEMOPT_RETURN_IF_ERROR(run.openData(run.options.seed.value_or(0)));
  Trace trace(run.session.getManifest(), run.options.trace.empty() ? 0 : run.countSteps());
  if (!run.options.trace.empty())
    MEMOPT_RETURN_IF_ERROR(run.session.setTrace(&trace).withContext("--trace"));
  StatusOr<bool> isWhole = averageOutputs(run);
  Status status = isWhole.isOk() ? Status::ok() : isWhole.takeStatus();
  (void)run.session.setTrace(nullptr);
  MEMOPT_RETURN_IF_ERROR(run.report.measureOverhead(*run.programs));
  if (!run.options.trace.empty())
    run.noteSideFailure(trace.write(run.options.trace).withContext("--trace"));
  MEMOPT_RETURN_IF_ERROR(std::move(status));
  run.hasResults = true;
  MEMOPT_RETURN_IF_ERROR(run.report.gather(run.session, run.communicator));
  if (!*isWhole)
    return Status(StatusCode::Interrupted,
                  "stopped after " + std::to_string(run.report.samples) + " samples");
  return Status::ok();
}
