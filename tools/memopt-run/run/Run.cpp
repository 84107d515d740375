//===- Run.cpp - what training and evaluation share -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/run/Run.h"
#include "memopt-run/Signals.h"
#include "memopt-run/options/OptionRules.h"
#include "memopt-runtime/memory/AllocationCounter.h"
#include <algorithm>
#include <limits>

using namespace memopt;

/// Samples missing in a last batch change no loss (their labels are ignored) and no accuracy of
/// ours; a metric that the model itself averages would be wrong.
static bool mayKeepLastBatch(const Manifest &manifest) {
  return manifest.mode == "eval" && std::none_of(manifest.outputs.begin(), manifest.outputs.end(),
                                                 [](const OutputSpec &output) {
                                                   return output.role != "loss" &&
                                                          getElementCount(output.shape) == 1;
                                                 });
}

StatusOr<bool> Run::isStopped() const {
  if (!communicator)
    return isInterrupted();
  char mine = isInterrupted() || communicator->isAskedToStop();
  std::vector<char> all(size_t(communicator->getRanks()));
  MEMOPT_RETURN_IF_ERROR(communicator->exchange(&mine, 1, all.data()));
  return std::find(all.begin(), all.end(), 1) != all.end();
}

Status Run::agree(Status own) {
  return communicator ? communicator->agree(std::move(own), refusing) : std::move(own);
}

Status Run::awaitReason(Status failure) const {
  if (!refusing || *refusing == communicator->getRank())
    return failure;
  Status told = communicator->barrier(); // which that rank leaves
  return told.isOk() ? std::move(failure) : std::move(told);
}

void Run::noteSideFailure(Status failure) {
  if (failure.isOk())
    return;
  if (sideFailure.isOk())
    sideFailure = std::move(failure);
  else
    notice(failure.getMessage()); // the run ends with the first
}

Status Run::listPrograms() {
  for (size_t number = 0; number < programs->count(); ++number)
    if ((*programs)[number].getManifest().mode == session.getManifest().mode)
      trained.push_back(number);
  for (const auto &[name, count] : options.alternation) {
    std::optional<size_t> number = programs->find(name);
    if (!number || (*programs)[*number].getManifest().mode != "train")
      return badInput("--alternate: the package has no training program " + quote(name));
    alternation.insert(alternation.end(), size_t(count), *number);
  }
  return Status::ok();
}

/// All batches of a step have one shape.
static StatusOr<size_t> findProgramOfStep(Run &run) {
  MEMOPT_ASSIGN_OR_RETURN(size_t found, run.data->findProgram(run.position));
  const Manifest &manifest = (*run.programs)[run.trained[found]].getManifest();
  for (int64_t i = 1; i < manifest.getBatchesPerStep(); ++i) {
    MEMOPT_ASSIGN_OR_RETURN(size_t other, run.data->findProgram(run.position + i));
    if (other != found)
      return badInput("batches " + std::to_string(run.position) + " and " +
                      std::to_string(run.position + i) +
                      " of the data have other shapes, and belong to one step");
  }
  return run.trained[found];
}

Status Run::enterProgram(int64_t step) {
  if (!programs)
    return Status::ok();
  if (!hasSeveral()) // an evaluation may have run meanwhile
    return programs->enter(trained.front()).takeStatus();
  size_t number;
  if (alternation.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(number, findProgramOfStep(*this));
  } else {
    number = alternation[size_t((step - 1) % int64_t(alternation.size()))];
  }
  data->chooseProgram(size_t(std::find(trained.begin(), trained.end(), number) - trained.begin()));
  MEMOPT_RETURN_IF_ERROR(programs->enter(number).takeStatus());
  atWork = &(*programs)[number];
  return Status::ok();
}

/// What the user should know of the data.
void Run::tell(const std::vector<std::string> &notices) const {
  if (isFirst())
    for (const std::string &text : notices)
      notice("note: " + text);
}

Status Run::openDataOfSeveral(int64_t seed) {
  std::vector<std::vector<InputSpec>> inputs;
  for (size_t number : trained) {
    const Manifest &manifest = (*programs)[number].getManifest();
    if (manifest.microBatches > 1)
      return badInput("program " + quote((*programs)[number].getPackage().getName()) +
                      " cuts its batches into micro-batches, which a run of several programs does "
                      "not; compile without --micro-batches");
    inputs.push_back(manifest.inputs);
  }
  if (options.dataBuckets.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(data, DataSource::open(options.data, inputs));
  } else {
    BucketOptions buckets{options.dataBuckets, options.isShuffled.value_or(true), seed,
                          session.getManifest().getBatchesPerStep()};
    std::vector<std::string> notices;
    MEMOPT_ASSIGN_OR_RETURN(data, DataSource::openBuckets(options.data, inputs, buckets, notices));
    tell(notices);
  }
  MEMOPT_RETURN_IF_ERROR(checkDataUses(options, data->getUses()));
  for (size_t number : trained)
    (*programs)[number].setBatches([this](int64_t part, const std::vector<char *> &targets) {
      return data->fill(position + part, targets);
    });
  return Status::ok();
}

Status Run::openData(int64_t seed) {
  const Manifest &manifest = session.getManifest();
  if (options.data.empty()) {
    if (manifest.inputs.empty())
      return Status::ok();
    return badInput("the model takes input " + quote(manifest.inputs[0].name) +
                    "; give batches with --data=SOURCE");
  }
  if (hasSeveral() || (!options.dataBuckets.empty() && manifest.mode == "train"))
    return openDataOfSeveral(seed);
  DataOptions dataOptions;
  dataOptions.isShuffled = options.isShuffled.value_or(manifest.mode == "train");
  dataOptions.seed = seed;
  dataOptions.scale = options.dataScale;
  dataOptions.means = options.dataMeans;
  dataOptions.deviations = options.dataDeviations;
  dataOptions.isMirrored = options.isMirrored;
  dataOptions.cropPadding = options.cropPadding;
  dataOptions.stride = options.dataStride;
  dataOptions.isLastKept = mayKeepLastBatch(manifest);
  dataOptions.microBatches = manifest.microBatches;
  // Other ranks' evaluations take the batches in between, and a device is sent them in time.
  dataOptions.isPrefetched = countProcessors() > 1 && manifest.target.image.empty() &&
                             (manifest.mode == "train" || !communicator);
  std::vector<std::string> notices;
  MEMOPT_ASSIGN_OR_RETURN(data,
                          DataSource::open(options.data, manifest.inputs, dataOptions, notices));
  MEMOPT_RETURN_IF_ERROR(checkDataUses(options, data->getUses()));
  tell(notices);
  // A step of training ends with its loss; evaluation reads its labels afterwards.
  session.setBatches(
      [this](int64_t part, const std::vector<char *> &targets) {
        const Manifest &manifest = session.getManifest();
        int64_t first = position * manifest.microBatches;
        // Of an evaluation the position is that of the rank's own batch.
        bool isTraining = manifest.mode == "train";
        Status status = data->fill(first + (isTraining ? part : 0), targets);
        data->expect(first + (isTraining ? getPartBehind(part) : 1));
        return status;
      },
      /*isAhead=*/manifest.mode == "train");
  return Status::ok();
}

int64_t Run::getPartBehind(int64_t part) const {
  const Manifest &manifest = session.getManifest();
  int64_t rank = communicator ? communicator->getRank() : 0, parts = manifest.getPartsPerStep(),
          within = part % parts;
  for (int64_t i = 0; i + 1 < manifest.getFillsPerStep(); ++i)
    if (manifest.getPart(rank, i) == within)
      return part - within + manifest.getPart(rank, i + 1);
  return part - within + parts + manifest.getPart(rank, 0);
}

int64_t Run::countSteps() const {
  if (options.steps)
    return *options.steps;
  // An update takes batches over the border of epochs; what is left over at the end of the run is
  // not trained on.
  int64_t fills, perEpoch = data ? data->getBatchesPerEpoch() : 1;
  if (__builtin_mul_overflow(options.epochs.value_or(1), perEpoch, &fills))
    return std::numeric_limits<int64_t>::max();
  return fills / getPartsPerStep();
}

int64_t Run::getPartsPerStep() const {
  const Manifest &manifest = session.getManifest();
  return manifest.mode == "eval" ? manifest.getFillsPerStep() : manifest.getPartsPerStep();
}

int64_t Run::countStepsOfEpoch() const {
  return (data ? data->getBatchesPerEpoch() : 1) / session.getManifest().getPartsPerStep();
}

int64_t Run::getStepSize() const { return (data ? data->getBatchSize() : 1) * getPartsPerStep(); }

StepFacts Run::describeStep(int64_t step, int64_t position, double loss) const {
  int64_t perEpoch = data ? data->getBatchesPerEpoch() : 1;
  double fills = double(position) * double(session.getManifest().microBatches);
  double seconds = report.stepSeconds.back() + report.dataSeconds.back();
  return {step,    fills / double(std::max<int64_t>(1, perEpoch)), loss, std::nullopt, std::nullopt,
          seconds, double(getStepSize()) / std::max(seconds, 1e-9)};
}

Status Run::runStep(int64_t step, double rate, int64_t seed) {
  Session &program = getProgram();
  int64_t &steps = report.stepsOf[&program];
  auto runCounted = [&]() -> Status {
    CountAllocations counting(program.getAllocations());
    program.setHyperparameters(rate, step, seed);
    Status status = program.runStep();
    refusing = program.getRefusingRank();
    MEMOPT_RETURN_IF_ERROR(std::move(status));
    report.stepSeconds.push_back(program.getStepSeconds()); // reserved
    report.dataSeconds.push_back(program.getDataSeconds());
    ++steps;
    return Status::ok();
  };
  // Room for what the step reports is made outside of it.
  for (std::vector<double> *seconds : {&report.stepSeconds, &report.dataSeconds})
    if (seconds->size() == seconds->capacity())
      seconds->reserve(seconds->size() * 2 + 1024);
  return runCounted().withContext("step " + std::to_string(step));
}
