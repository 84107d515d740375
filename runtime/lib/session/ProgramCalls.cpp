//===- ProgramCalls.cpp - what a program calls ----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SessionParts.h"

using namespace memopt;

const memopt_runtime_functions ProgramCalls::table = {MEMOPT_PROGRAM_INTERFACE_VERSION,
                                                      sizeof(memopt_runtime_functions),
                                                      &ProgramCalls::parallelFor,
                                                      &ProgramCalls::libraryCall,
                                                      &ProgramCalls::launch,
                                                      &ProgramCalls::commit,
                                                      &ProgramCalls::nextBatch,
                                                      &ProgramCalls::start,
                                                      &ProgramCalls::wait,
                                                      &ProgramCalls::collective,
                                                      &ProgramCalls::beginInstruction,
                                                      &ProgramCalls::startCollective,
                                                      &ProgramCalls::waitForCollective};

static Session &toSession(void *opaque) { return *static_cast<Session *>(opaque); }

/// Goes on, or leaves the step and keeps the reason.
static int32_t answer(Status status, Status &failure) {
  if (status.isOk())
    return 0;
  failure = std::move(status);
  return 1;
}

void ProgramCalls::parallelFor(void *opaque, int64_t count, int64_t grain, memopt_loop_body body,
                               void *closure) {
  Session &session = toSession(opaque);
  if (StepGraphs *capture = session.parts->capture)
    return capture->noteHostWork();
  session.pool->parallelFor(count, grain, body, closure);
}

int32_t ProgramCalls::libraryCall(void *opaque, int64_t call, void *const *buffers) {
  Session &session = toSession(opaque);
  Session::Parts &parts = *session.parts;
  if (session.options.isMemoryChecked) // for all replays, too
    parts.calls.noteWorkspace(call, buffers, session.arenas);
  return answer(parts.calls.run(call, buffers, *session.pool), parts.failure);
}

int32_t ProgramCalls::launch(void *opaque, int32_t kernel, int32_t blocks, int32_t threads,
                             int32_t sharedBytes, void *const *arguments) {
  Session &session = toSession(opaque);
  if (DeviceProgram *device = session.parts->device.get())
    return answer(device->launch(kernel, {blocks, threads, sharedBytes}, arguments),
                  session.parts->failure);
  return answer(badInput("the program launches kernel " + std::to_string(kernel) + " of " +
                         std::to_string(session.getManifest().kernels.size()) + ", but target " +
                         quote(session.getManifest().target.name) +
                         " runs its kernels in the program itself"),
                session.parts->failure);
}

int32_t ProgramCalls::commit(void *opaque) {
  Session &session = toSession(opaque);
  Session::Parts &parts = *session.parts;
  if (parts.hasCommitted)
    return answer(badInput("the program commits twice in a step"), parts.failure);
  if (parts.capture) {
    parts.hasCommitted = true;
    return answer(parts.capture->cut(StepGraphs::Stop::Commit), parts.failure);
  }
  if (parts.device) {
    Status status = parts.device->joinCollectives();
    if (status.isOk())
      status = parts.device->bringBack();
    if (status.isOk() && !parts.isSearching)
      parts.feed.fillAhead();
    if (status.isOk())
      status = parts.device->synchronize();
    if (!status.isOk())
      return answer(std::move(status), parts.failure);
  }
  if (parts.isSearching) {
    if (int64_t last = parts.position.getInstruction(); last >= 0)
      (void)parts.loss.inspect(last).takeStatus();
    return 1;
  }
  return session.mayCommit() ? 0 : 1;
}

int32_t ProgramCalls::nextBatch(void *opaque, int64_t iteration) {
  Session &session = toSession(opaque);
  Session::Parts &parts = *session.parts;
  if (parts.capture)
    return answer(parts.capture->cut(StepGraphs::Stop::Batch, iteration), parts.failure);
  return answer(session.hold(parts.feed.beginIteration(iteration)), parts.failure);
}

int32_t ProgramCalls::start(void *opaque, int64_t transfer) {
  Session::Parts &parts = *toSession(opaque).parts;
  return answer(parts.transfers->start(transfer), parts.failure);
}

int32_t ProgramCalls::wait(void *opaque, int64_t transfer) {
  Session::Parts &parts = *toSession(opaque).parts;
  return answer(parts.transfers->wait(transfer), parts.failure);
}

int32_t ProgramCalls::collective(void *opaque, int64_t number) {
  Session &session = toSession(opaque);
  Session::Parts &parts = *session.parts;
  return answer(parts.device ? parts.device->runCollective(number)
                             : parts.collectives.run(number, *session.pool),
                parts.failure);
}

int32_t ProgramCalls::startCollective(void *opaque, int64_t number) {
  Session::Parts &parts = *toSession(opaque).parts;
  return answer(parts.device ? parts.device->startCollective(number)
                             : parts.collectives.start(number),
                parts.failure);
}

int32_t ProgramCalls::waitForCollective(void *opaque, int64_t number) {
  Session::Parts &parts = *toSession(opaque).parts;
  if (parts.device)
    return answer(parts.device->waitForCollective(number), parts.failure);
  Status status = parts.collectives.wait(number);
  if (parts.trace && status.isOk())
    parts.trace->addFlight(number, parts.collectives.getTimes(number));
  return answer(std::move(status), parts.failure);
}

int32_t ProgramCalls::beginInstruction(void *opaque, int64_t index) {
  Session &session = toSession(opaque);
  Session::Parts &parts = *session.parts;
  if (int64_t expected = parts.position.getNext(); index != expected)
    return answer(badInput("the program reports instruction " + std::to_string(index) + " of " +
                           std::to_string(session.getManifest().instructions.size()) + " where " +
                           std::to_string(expected) + " comes next"),
                  parts.failure);
  int64_t before = parts.position.getInstruction();
  if (Status status = session.lookAt(before, index); !status.isOk())
    return answer(std::move(status), parts.failure);
  if (parts.trace)
    parts.trace->beginInstruction(index);
  bool goesOn = true;
  if (parts.isSearching && before >= 0) {
    StatusOr<bool> isFine = parts.loss.inspect(before);
    if (!isFine.isOk())
      return answer(isFine.takeStatus(), parts.failure);
    // Ranks find it in different places, and meet in all collectives up to the commit.
    goesOn = *isFine || session.getManifest().ranks > 1;
  }
  parts.position.advance();
  return goesOn ? 0 : 1;
}
