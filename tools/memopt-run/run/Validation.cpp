//===- Validation.cpp - evaluation in the course of training --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/run/Validation.h"
#include "memopt-runtime/devices/OpenDevice.h"

using namespace memopt;

/// Options of the evaluation, which speaks only through the training.
static RunOptions getEvaluationOptions(RunOptions options) {
  options.data = options.evalData;
  options.isQuiet = true;
  options.steps.reset();
  options.epochs.reset();
  options.isShuffled = false;
  options.isMirrored = false;
  options.cropPadding = 0;
  if (!DataSource::hasLengths(options.data.front()))
    options.dataBuckets.clear();
  for (std::string *unused : {&options.load, &options.save, &options.trace, &options.log})
    unused->clear();
  return options;
}

Validation::Validation(const RunOptions &given, std::unique_ptr<Device> ownDevice,
                       std::unique_ptr<Session> opened, Session &session, const Session &training,
                       Communicator *communicator)
    : options(getEvaluationOptions(given)), device(std::move(ownDevice)), own(std::move(opened)),
      session(session), training(training),
      run{options, session, nullptr, communicator, {}, nullptr} {}

Status Validation::matchVariables() {
  const Manifest &ours = session.getManifest(), &theirs = training.getManifest();
  auto isLearned = [](const VariableSpec &variable) {
    return (variable.role == "parameter" || variable.role == "buffer") && !variable.names.empty() &&
           variable.restore != VariableRestore::Never;
  };
  bool isAverageFound = false;
  for (const VariableSpec &variable : ours.variables) {
    if (!isLearned(variable))
      continue;
    const VariableSpec *source = nullptr;
    if (options.isAveraged && variable.role == "parameter")
      source = theirs.findVariable("optimizer.average." + variable.name);
    isAverageFound |= source != nullptr;
    if (!source)
      source = theirs.findVariable(variable.name);
    std::string expected = toString(variable.getWholeDType(), variable.getWholeShape());
    if (!source || source->getWholeDType() != variable.getWholeDType() ||
        source->getWholeShape() != variable.getWholeShape())
      return badInput("it has " + quote(variable.name) + " as " + expected + ", the training " +
                      (source ? "as " + toString(source->getWholeDType(), source->getWholeShape())
                              : "lacks it"));
    shared.push_back({&variable, source});
  }
  if (options.isAveraged && !isAverageFound)
    return badInput("--averaged evaluates an average of the weights, and the training keeps none; "
                    "compile it with --ema-decay=X");
  return session.initializeFromWeights(isLearned);
}

StatusOr<std::unique_ptr<Validation>> Validation::create(const RunOptions &options,
                                                         std::shared_ptr<const Package> package,
                                                         const Session &training, const Device &own,
                                                         Communicator *communicator, int threads) {
  std::string name = package->getFolder();
  if (package->getManifest().mode != "eval")
    return badInput("the package of an evaluation is compiled with --mode=eval; " + quote(name) +
                    " is of mode " + quote(package->getManifest().mode));
  // A device of its own: that of a rank has room for the training's arena alone.
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                          openDevice(options.device, own.getNumber()));
  SessionOptions sessionOptions;
  sessionOptions.threads = threads;
  MEMOPT_ASSIGN_OR_RETURN(
      std::unique_ptr<Session> session,
      Session::create(std::move(package), *device, &LibraryCall::create, sessionOptions));
  Session &opened = *session;
  std::unique_ptr<Validation> result(new Validation(options, std::move(device), std::move(session),
                                                    opened, training, communicator));
  MEMOPT_RETURN_IF_ERROR(result->matchVariables().withContext("evaluation package " + quote(name)));
  MEMOPT_RETURN_IF_ERROR(result->run.openData(0).withContext("--eval-data"));
  return result;
}

StatusOr<std::unique_ptr<Validation>> Validation::create(const RunOptions &options,
                                                         ProgramSet &programs,
                                                         std::vector<size_t> numbers,
                                                         Communicator *communicator) {
  Session &session = programs[numbers.front()];
  if (numbers.size() > 1 && session.getManifest().ranks > 1)
    return badInput(
        "--eval-data: the parameters are shared out over the ranks, which therefore run "
        "each step of an evaluation together, and the package has " +
        std::to_string(numbers.size()) +
        " evaluations for batches of different shapes; compile one shape, or with "
        "--zero-stage=2");
  std::unique_ptr<Validation> result(
      new Validation(options, nullptr, nullptr, session, programs.first(), communicator));
  result->run.programs = &programs;
  result->run.trained = std::move(numbers);
  MEMOPT_RETURN_IF_ERROR(result->run.openData(0).withContext("--eval-data"));
  return result;
}

Status Validation::takeVariables(int64_t step) {
  if (run.programs)
    return run.hasSeveral() ? Status::ok() : run.enterProgram(step);
  std::vector<char> storage;
  for (auto [variable, source] : shared) {
    MEMOPT_ASSIGN_OR_RETURN(const void *values, training.getWholeOnAll(*source, storage));
    MEMOPT_RETURN_IF_ERROR(session.setWhole(*variable, values));
  }
  return Status::ok();
}

StatusOr<std::optional<Evaluation>> Validation::evaluate(int64_t step) {
  MEMOPT_RETURN_IF_ERROR(takeVariables(step));
  auto steps = std::move(run.report.stepsOf);
  run.report = RunReport();
  run.report.stepsOf = std::move(steps);
  StatusOr<bool> isWhole = averageOutputs(run);
  if (!isWhole.isOk())
    return isWhole.takeStatus().withContext("evaluation after step " + std::to_string(step));
  if (!*isWhole)
    return std::optional<Evaluation>();
  int lossIndex = session.getManifest().getLossIndex();
  Evaluation result{step, run.report.samples, run.report.averages, std::nullopt};
  if (lossIndex >= 0)
    result.loss = result.averages[session.getManifest().outputs[size_t(lossIndex)].name];
  return std::optional<Evaluation>(std::move(result));
}
