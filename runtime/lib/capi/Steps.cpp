//===- Steps.cpp - steps on batches of the caller -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CSession.h"

using namespace memopt;
using namespace memopt::capi;

Status capi::fillBatch(const memopt_session &session, int64_t part,
                       const std::vector<char *> &targets) {
  if (!session.unreadable.isOk())
    return Status(session.unreadable.getCode(), session.unreadable.getMessage());
  int64_t parts = session.getManifest().microBatches;
  for (size_t i = 0; i < targets.size(); ++i) {
    const InputSpec &input = session.getSaid().inputs[i];
    int64_t batch = part / parts / session.getManifest().ranks; // of those that this rank was given
    TensorView view = session.batches[size_t(batch) * targets.size() + i];
    if (input.batchDim && parts > 1) {
      auto dim = size_t(*input.batchDim);
      int64_t samples = input.shape[dim] / parts;
      view = view.slice(dim, part % parts * samples, samples);
    }
    if (Status status = view.copyTo(input.dtype, targets[i]); !status.isOk())
      return status.withContext("input " + quote(input.name));
  }
  return Status::ok();
}

static Status readBatches(memopt_session &session, const memopt_view *views, int64_t batches) {
  int64_t expected = session.getManifest().getBatchesPerStep() / session.getManifest().ranks;
  if (batches != expected)
    return badInput("a step of this package takes " + std::to_string(expected) + " batches, not " +
                    std::to_string(batches));
  session.batches.clear();
  for (int64_t batch = 0; batch < batches; ++batch)
    for (const InputSpec &input : session.getSaid().inputs) {
      StatusOr<TensorView> view = readView(*views++, input.dtype, input.shape);
      if (!view.isOk())
        return view.takeStatus().withContext("input " + quote(input.name));
      session.batches.push_back(*std::move(view));
    }
  return Status::ok();
}

static Status runStep(memopt_session &session, const memopt_view *views, int64_t batches) {
  TrainingState &state = session.state;
  if (!session.missing.empty())
    return badInput("variable " + quote(*session.missing.begin()) + " has no value as yet" +
                    (session.missing.size() > 1
                         ? ", nor have " + std::to_string(session.missing.size() - 1) + " others"
                         : ""));
  session.unreadable = readBatches(session, views, batches);
  // Other ranks hear of it in the step, and leave that with this one.
  if (!session.unreadable.isOk() && (!session.member || session.getManifest().inputs.empty()))
    return std::move(session.unreadable);
  MEMOPT_RETURN_IF_ERROR(session.programs->enter(session.chosen).takeStatus());
  Session &program = session.getProgram();
  writeNumbers(session);
  MEMOPT_RETURN_IF_ERROR(program.runStep());
  if (program.getManifest().mode != "train")
    return Status::ok(); // an evaluation is no step of the training
  ++state.step;
  state.dataPosition += batches * program.getManifest().ranks;
  return Status::ok();
}

int32_t memopt_session_run_step(memopt_session *session, const memopt_view *views, int64_t batches,
                                memopt_error *error) {
  int32_t code = guard(error, [&] {
    Status status = runStep(*session, views, batches);
    const Session &program = session->getProgram();
    bool isOfAll = program.isLossRefused() || program.getRefusingRank();
    if (!status.isOk() && !isOfAll && session->member)
      session->member->fail(status);
    return status;
  });
  if (code && error) {
    error->step = session->state.step + 1;
    error->is_loss_refused = session->getProgram().isLossRefused();
  }
  return code;
}

int64_t memopt_session_get_step(const memopt_session *session) { return session->state.step; }
void memopt_session_set_step(memopt_session *session, int64_t step) { session->state.step = step; }

double memopt_session_get_step_seconds(const memopt_session *session) {
  return session->getProgram().getStepSeconds();
}
