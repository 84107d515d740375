//===- SessionParts.h - what a session is made of ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_SESSION_SESSIONPARTS_H
#define MEMOPT_RUNTIME_LIB_SESSION_SESSIONPARTS_H

#include "BatchFeed.h"
#include "GradientCapture.h"
#include "IndexWatch.h"
#include "LossWatch.h"
#include "SessionRegistry.h"
#include "memopt-runtime/execution/Collectives.h"
#include "memopt-runtime/execution/PreparedCalls.h"
#include "memopt-runtime/execution/StepGraphs.h"
#include "memopt-runtime/execution/StepPosition.h"
#include "memopt-runtime/execution/Transfers.h"

namespace memopt {

struct Session::Parts {
  Parts(const Session *session, const Manifest &manifest, const Arenas &arenas,
        Communicator *communicator, int64_t rank)
      : entry(session), collectives(manifest, arenas, communicator), position(manifest),
        feed(manifest, arenas, rank), indices(manifest, arenas), loss(manifest, arenas, rank),
        gradients(manifest, arenas) {}

  SessionEntry entry;
  std::unique_ptr<DeviceCommunicator> ranks; ///< null without other ranks' devices
  std::unique_ptr<DeviceProgram> device;     ///< null where the program runs its kernels itself
  PreparedCalls calls;
  std::unique_ptr<Transfers> transfers;
  std::unique_ptr<StepGraphs> graphs; ///< null where steps are not replayed; it ends before these
  Collectives collectives;
  StepPosition position;
  BatchFeed feed;
  IndexWatch indices;
  LossWatch loss;
  GradientCapture gradients;
  Trace *trace = nullptr;

  /// Of the step that is written down, and not run.
  StepGraphs *capture = nullptr;

  // Of the step that runs.
  bool isSearching = false; ///< for where a bad loss came from: it ends before it commits
  bool hasCommitted = false;
  bool hasAgreed = false;          ///< with the other ranks, on whether the step counts
  Status refusal;                  ///< why it does not, on this rank or another
  std::optional<int64_t> refusing; ///< the rank that could not go on
  bool isLossBad = false;          ///< the step was left for it
  bool isLossRefused = false;      ///< the same of the step as a whole, searching included
  bool isTorn = false;             ///< it failed after it had changed a part of the state
  Status failure;                  ///< why else the step was left
  double seconds = 0;              ///< of the last step, without the feed's
};

/// The functions that programs call.
struct ProgramCalls {
  static const memopt_runtime_functions table;

private:
  static void parallelFor(void *session, int64_t count, int64_t grain, memopt_loop_body body,
                          void *closure);
  static int32_t libraryCall(void *session, int64_t call, void *const *buffers);
  static int32_t launch(void *session, int32_t kernel, int32_t blocks, int32_t threads,
                        int32_t sharedBytes, void *const *arguments);
  static int32_t commit(void *session);
  static int32_t nextBatch(void *session, int64_t iteration);
  static int32_t start(void *session, int64_t transfer);
  static int32_t wait(void *session, int64_t transfer);
  static int32_t collective(void *session, int64_t number);
  static int32_t startCollective(void *session, int64_t number);
  static int32_t waitForCollective(void *session, int64_t number);
  static int32_t beginInstruction(void *session, int64_t index);
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_SESSION_SESSIONPARTS_H
