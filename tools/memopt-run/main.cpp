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
#include "Run.h"
#include "Signals.h"
#include <cstdio>

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
  if (!isTraining && (!options.save.empty() || !options.saveGradients.empty()))
    return badInput(
        "--save and --save-gradients belong to training, the package is of mode 'eval'");
  return Status::ok();
}

static Status runPackage(const RunOptions &options, const CompiledPackage &package,
                         CheckpointFolder *target) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::open(options.device));
  MEMOPT_ASSIGN_OR_RETURN(std::shared_ptr<const Package> loaded, Package::load(package.path));
  MEMOPT_RETURN_IF_ERROR(checkUse(options, loaded->getManifest()));
  SessionOptions sessionOptions{options.isMemoryChecked, options.isStoppedOnNan};
  sessionOptions.onThreadStart = catchFaultsOfThread;
  MEMOPT_ASSIGN_OR_RETURN(
      std::unique_ptr<Session> session,
      Session::create(std::move(loaded), *device, &LibraryCall::create, sessionOptions));
  explainFaults(*session);
  Run run{options, *session, target, {}, nullptr};
  run.report.compileSeconds = package.seconds;
  Status status = session->getManifest().mode == "train" ? train(run) : evaluate(run);
  // An interrupted run has results too.
  bool hasResults = status.isOk() || status.getCode() == StatusCode::Interrupted;
  if (hasResults && !options.report.empty())
    MEMOPT_RETURN_IF_ERROR(run.report.write(options.report, *session, options.isMemoryChecked));
  if (hasResults)
    std::fputs(run.report.summarize(*session, options.isMemoryChecked).c_str(), stdout);
  return status;
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
  catchFaults();
  catchInterrupts();
  std::optional<CheckpointFolder> target;
  if (!options->save.empty()) {
    // Before compiling and training for hours.
    StatusOr<CheckpointFolder> folder = CheckpointFolder::open(options->save);
    if (!folder.isOk())
      return finish(folder.takeStatus());
    target.emplace(*std::move(folder));
  }
  CompiledPackage package;
  package.path = options->model;
  if (needsCompilation(options->model))
    if (Status status = package.compile(*options); !status.isOk())
      return package.exitCode ? package.exitCode : finish(status); // memopt-compile said why
  return finish(runPackage(*options, package, target ? &*target : nullptr));
}

int main(int argc, char **argv) {
  try {
    return runTool(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::bad_alloc &) {
    std::fputs("memopt-run: error: this machine is out of memory\n", stderr);
    return 3;
  }
}
