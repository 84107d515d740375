//===- Checkpoints.cpp - what a run leaves to go on from ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/run/Checkpoints.h"
#include <algorithm>
#include <thread>

using namespace memopt;

bool Checkpoints::isSaved(const TrainingState &state) const {
  return savedStep == state.step && savedState == printTrainingState(state);
}

void Checkpoints::noteSaved(const TrainingState &state) {
  if (failures && run.isFirst())
    notice("the checkpoint of step " + std::to_string(state.step) + " is written");
  failures = 0;
  savedStep = state.step;
  savedState = printTrainingState(state);
  run.left = "; the checkpoint of step " + std::to_string(state.step) + " is in " +
             quote(run.options.save);
}

/// What became of the work of all ranks, for each.
Status Checkpoints::share(Status own) {
  return run.communicator ? run.communicator->agree(std::move(own), failedRank) : std::move(own);
}

/// All ranks together. Of a step that is saved the state alone may have changed.
Status Checkpoints::write(const TrainingState &state) {
  if (run.options.isStoppedOnNan)
    MEMOPT_RETURN_IF_ERROR(share(checkFinite(run.session, state)));
  KeepAlive::Work work(run.keepAlive);
  bool isStateAlone = savedStep == state.step;
  if (!isStateAlone)
    keepBest();
  Status status;
  if (run.target)
    status = isStateAlone ? run.target->updateState(state) : run.target->save(run.session, state);
  else if (!isStateAlone)
    status = contributeToCheckpoint(run.session);
  status = share(std::move(status));
  if (status.isOk())
    noteSaved(state);
  return status;
}

Status Checkpoints::save(const TrainingState &state) {
  if (run.options.save.empty() || isSaved(state))
    return Status::ok();
  Status status = write(state);
  bool isLost = run.communicator && !run.communicator->getFailure().isOk();
  if (status.isOk() || status.getCode() != StatusCode::Environment || isLost) {
    run.refusing = failedRank;
    return status;
  }
  // One step later, then two, four, ...
  constexpr int64_t most = 20;
  nextTry = state.step + (int64_t(1) << std::min(failures++, most));
  if (run.isFirst())
    notice(status.getMessage() + "; training goes on, and it is tried again behind step " +
           std::to_string(nextTry));
  return Status::ok();
}

Status Checkpoints::retry(const TrainingState &state) {
  return failures && state.step >= nextTry ? save(state) : Status::ok();
}

//===----------------------------------------------------------------------===//
// The best
//===----------------------------------------------------------------------===//

Status Checkpoints::saveBest(const TrainingState &state) {
  bestStep = state.step;
  MEMOPT_RETURN_IF_ERROR(save(state));
  KeepAlive::Work work(run.keepAlive);
  keepBest();
  return Status::ok();
}

/// Only what is the checkpoint now can be kept; a failure may be made good until it is replaced.
void Checkpoints::keepBest() {
  if (!bestStep || bestStep != savedStep)
    return;
  Status status = run.target ? run.target->keepBest() : Status::ok();
  if (status.isOk())
    bestStep.reset();
  else
    notice(status.getMessage() + "; training goes on");
}

//===----------------------------------------------------------------------===//
// The end
//===----------------------------------------------------------------------===//

Status Checkpoints::finish(const TrainingState &state) {
  if (run.options.save.empty())
    return Status::ok();
  KeepAlive::Work work(run.keepAlive);
  Status status;
  for (int seconds : {1, 2, 4, 0}) {
    status = isSaved(state) ? Status::ok() : write(state);
    bool isLost = run.communicator && !run.communicator->getFailure().isOk();
    if (status.getCode() != StatusCode::Environment || isLost || !seconds)
      break;
    ++failures;
    if (!run.isFirst())
      continue;
    notice(status.getMessage() + "; it is tried again in " + std::to_string(seconds) + " s");
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
  }
  run.refusing = failedRank;
  if (status.isOk())
    keepBest();
  return status.isOk() ? Status::ok()
                       : std::move(status).withContext("step " + std::to_string(state.step));
}

/// The other ranks are lost, or do not know of the failure.
Status Checkpoints::writeAlone(const TrainingState &state) {
  const std::vector<VariableSpec> &variables = run.session.getManifest().variables;
  if (std::any_of(variables.begin(), variables.end(),
                  [](const VariableSpec &variable) { return variable.wholeShape.has_value(); }))
    return environmentError("other ranks have parts of the state");
  if (run.options.isStoppedOnNan)
    MEMOPT_RETURN_IF_ERROR(checkFinite(run.session, state));
  KeepAlive::Work work(run.keepAlive);
  MEMOPT_RETURN_IF_ERROR(run.target->save(run.session, state));
  noteSaved(state);
  if (!run.communicator->getFailure().isOk()) // it is another rank's message that is told
    notice(run.left.substr(2));
  return Status::ok();
}

void Checkpoints::saveBeforeLoss(const TrainingState &state) {
  if (!run.options.save.empty() && state.step != firstStep && !isSaved(state))
    lossFailure = write(state);
}

Status Checkpoints::rescue(const TrainingState &state, Status failure) {
  bool isLossRefused = run.getProgram().isLossRefused();
  bool isTried = failure.getCode() == StatusCode::NotFinite && !isLossRefused;
  if (run.options.save.empty() || state.step == firstStep || isTried)
    return failure;
  Status status;
  if (!run.getProgram().isStateWhole())
    status = environmentError("the step that failed had changed a part of the state");
  else if (isLossRefused)
    status = std::move(lossFailure);
  else if (!run.communicator || run.refusing)
    status = isSaved(state) ? Status::ok() : write(state);
  else if (run.target && !isSaved(state))
    status = writeAlone(state);
  if (!status.isOk())
    run.left = "; the state of step " + std::to_string(state.step) +
               " could not be saved: " + status.getMessage() + run.left;
  return Status(failure.getCode(), failure.getMessage() + run.left);
}
