//===- Checkpoint.h - runs that go on later ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint is a folder:
//
//   model.safetensors      parameters and buffers under every name of PyTorch's state dict (tied
//   ones repeated) optimizer.safetensors  optimizer state and other variables that are not the
//   model's, by variable name state.json             step, data position, seed, learning rate
//   schedule; format and version
//
// It is written to DIR.writing beside it, flushed, and then exchanged with the old one by a rename,
// so that a full disk, a kill or a power cut leaves the old checkpoint whole. Where the file system
// cannot exchange two folders the old one stands as DIR.old for a moment, and loading looks there
// too.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_CHECKPOINT_H
#define MEMOPT_RUNTIME_CHECKPOINT_H

#include "memopt-runtime/LearningRate.h"
#include "memopt-runtime/Session.h"
#include <string>

namespace memopt {

/// Where a run stands.
struct TrainingState {
  int64_t step = 0;         ///< steps done
  int64_t dataPosition = 0; ///< the next batch
  int64_t seed = 0;         ///< of dropout, shuffling and random initialization
  LearningRateSchedule schedule;
};

/// A failure when a checkpoint cannot be written there: another kind of folder, no permission, no
/// space for a name. To be asked before training for hours.
Status checkCheckpointTarget(const std::string &folder);

/// Writes the session's variables and the state.
Status saveCheckpoint(const std::string &folder, const Session &session,
                      const TrainingState &state);

/// Reads state.json of a checkpoint.
StatusOr<TrainingState> readTrainingState(const std::string &folder);

/// Fills the session's variables. A package of mode `eval` takes the model alone, from any folder
/// with a model.safetensors.
Status loadCheckpoint(const std::string &folder, Session &session);

} // namespace memopt

#endif // MEMOPT_RUNTIME_CHECKPOINT_H
