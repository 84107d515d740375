//===- main.cpp - the executor --------------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loads a package, or compiles a model into one, and trains or evaluates it. Links the runtime
// only.
//
//===----------------------------------------------------------------------===//

#include "CompileFirst.h"
#include "Ranks.h"
#include "Run.h"
#include "Signals.h"
#include "Validation.h"
#include "memopt-runtime/Files.h"
#include <algorithm>
#include <cstdio>
#include <tuple>

using namespace memopt;

/// The mode asked for must be the one that was compiled.
static Status checkMode(const RunOptions &options, const Manifest &manifest) {
  if (options.mode.empty() || options.mode == manifest.mode)
    return Status::ok();
  return badInput("--mode=" + options.mode + ", but " + quote(options.model) +
                  " was compiled for mode " + quote(manifest.mode) +
                  "; compile the model with --mode=" + options.mode);
}

static Status checkUse(const RunOptions &options, const Manifest &manifest) {
  MEMOPT_RETURN_IF_ERROR(checkMode(options, manifest));
  bool isTraining = manifest.mode == "train";
  for (auto [option, value] : {std::pair("--save", &options.save),
                               {"--save-gradients", &options.saveGradients},
                               {"--log", &options.log},
                               {"--eval-data", &options.evalData}})
    if (!isTraining && !value->empty())
      return badInput(std::string(option) + " belongs to training, the package is of mode 'eval'");
  return Status::ok();
}

/// What one rank does, or the run as a whole.
static Status runSession(const RunOptions &options, std::shared_ptr<const Package> package,
                         double compileSeconds, Device &device, Communicator *communicator,
                         CheckpointFolder *target, const std::string &evalPackage) {
  SessionOptions sessionOptions{options.isMemoryChecked, options.isStoppedOnNan};
  sessionOptions.communicator = communicator;
  if (communicator)
    sessionOptions.threads = std::max(1, getAllowedThreads() / int(options.ranks));
  sessionOptions.onThreadStart = catchFaultsOfThread;
  MEMOPT_ASSIGN_OR_RETURN(
      std::unique_ptr<Session> session,
      Session::create(std::move(package), device, &LibraryCall::create, sessionOptions));
  explainFaults(*session);
  Run run{options, *session, target, communicator, {}, nullptr};
  run.report.compileSeconds = compileSeconds;
  std::unique_ptr<Validation> validation;
  if (!evalPackage.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(validation, Validation::create(options, evalPackage, device, *session));
  }
  bool isTraining = session->getManifest().mode == "train";
  Status status = isTraining ? train(run, validation.get()) : evaluate(run);
  // An interrupted run has results too.
  bool hasResults = status.isOk() || status.getCode() == StatusCode::Interrupted;
  if (hasResults && !options.report.empty())
    MEMOPT_RETURN_IF_ERROR(run.report.write(options.report, *session, options.isMemoryChecked));
  if (hasResults && run.isFirst())
    std::fputs(run.report.summarize(*session, options.isMemoryChecked).c_str(), stdout);
  return status;
}

/// What ranks but the first do not do: they tell nothing, and write nothing alone.
static RunOptions getOptionsOfOthers(RunOptions options) {
  options.isQuiet = true;
  for (std::string *file : {&options.report, &options.trace, &options.log})
    file->clear();
  return options;
}

static Status checkRanks(const RunOptions &options, const Manifest &manifest) {
  if (manifest.ranks == options.ranks)
    return Status::ok();
  return badInput(quote(options.model) + " was compiled for " + std::to_string(manifest.ranks) +
                  " ranks, but --ranks is " + std::to_string(options.ranks) +
                  "; give --ranks=" + std::to_string(manifest.ranks) +
                  ", or compile the model with --ranks=" + std::to_string(options.ranks));
}

static Status runPackage(const RunOptions &options, const CompiledPackage &package,
                         const std::string &evalPackage, CheckpointFolder *target) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::open(options.device));
  MEMOPT_ASSIGN_OR_RETURN(std::shared_ptr<const Package> loaded, Package::load(package.path));
  MEMOPT_RETURN_IF_ERROR(checkUse(options, loaded->getManifest()));
  MEMOPT_RETURN_IF_ERROR(checkRanks(options, loaded->getManifest()));
  if (options.ranks == 1)
    return runSession(options, std::move(loaded), package.seconds, *device, nullptr, target,
                      evalPackage);
  RunOptions others = getOptionsOfOthers(options);
  int64_t bytes = loaded->getManifest().arenaBytes[MEMOPT_SPACE_DEVICE];
  return runRanks(options, bytes, [&](Communicator &communicator, Device &own) {
    bool isFirst = communicator.getRank() == 0;
    return runSession(isFirst ? options : others, loaded, package.seconds, own, &communicator,
                      isFirst ? target : nullptr, evalPackage);
  });
}

static Status describeDevice(const RunOptions &options) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::open(options.device));
  MEMOPT_ASSIGN_OR_RETURN(std::string text, device->describe());
  return writeFileAtomically(options.description, text).withContext("--describe-device");
}

static int runTool(const std::vector<std::string> &arguments) {
  auto finish = [](const Status &status) {
    std::fflush(stdout);
    if (!status.isOk())
      std::fprintf(stderr, "memopt-run: error: %s\n", status.getMessage().c_str());
    return int(status.getCode());
  };
  StatusOr<RunOptions> options = parseOptions(arguments);
  if (!options.isOk())
    return finish(options.takeStatus());
  if (options->isHelp) {
    std::fputs(getHelp().c_str(), stdout);
    return 0;
  }
  if (!options->description.empty())
    return finish(describeDevice(*options));
  if (Status status = checkLauncher(*options); !status.isOk())
    return finish(status);
  catchFaults();
  catchInterrupts();
  std::optional<CheckpointFolder> target;
  if (!options->save.empty()) {
    // Before compiling and training for hours.
    StatusOr<CheckpointFolder> folder =
        CheckpointFolder::open(options->save, {options->keep, options->hasModelNames});
    if (!folder.isOk())
      return finish(folder.takeStatus());
    target.emplace(*std::move(folder));
  }
  CompiledPackage package, evaluation;
  package.path = options->model;
  evaluation.path = options->evalPackage;
  bool evaluates = !options->evalData.empty() && options->evalPackage.empty();
  for (auto [compiled, mode, isNeeded] :
       {std::tuple(&package, options->mode, needsCompilation(options->model)),
        std::tuple(&evaluation, std::string("eval"), evaluates)})
    if (isNeeded)
      if (Status status = compiled->compile(*options, mode); !status.isOk())
        return compiled->exitCode ? compiled->exitCode : finish(status); // memopt-compile said why
  return finish(runPackage(*options, package, evaluation.path, target ? &*target : nullptr));
}

int main(int argc, char **argv) {
  try {
    return runTool(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::bad_alloc &) {
    std::fputs("memopt-run: error: this machine is out of memory\n", stderr);
    return 3;
  }
}
