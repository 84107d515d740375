//===- Checkpoint.h - runs that go on later ---------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint is a folder with three files:
//
// - model.safetensors: parameters and buffers under every name of PyTorch's state dict (tied ones
//   repeated)
// - optimizer.safetensors: optimizer state and other variables that are not the model's, by
// variable
//   name
// - state.json: step, data position, seed, learning rate schedule, optimizer; format and version
//
// The folder itself is never replaced, so it may be reached through links, be a mount point or the
// current folder, and hold other files. A save writes all three into a new hidden folder inside it,
// flushes them, and renames that folder to `.saved`: this one rename is the moment at which the new
// checkpoint counts. Then the files move up, one by one, over the old ones. A reader takes each
// file from `.saved` where it is there and from the folder where it is not, and so finds all three
// of one save whenever the writer was killed.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "memopt-runtime/session/LearningRate.h"
#include "memopt-runtime/session/Session.h"
#include <string>

namespace memopt {

/// Where a run stands.
struct TrainingState {
  int64_t step = 0;         ///< steps done
  int64_t dataPosition = 0; ///< the next batch
  int64_t batchSize = 0;    ///< samples in a batch that the position counts; 0: not known
  int64_t seed = 0;         ///< of dropout, shuffling and random initialization
  LearningRateSchedule schedule;
  std::string optimizer; ///< its name; empty when the package gave none

  /// Makes the position one of batches of `samples`; samples are the same for all runs. A failure,
  /// with the position before the batch that it is in, when it lies inside of one.
  Status countBatchesOf(int64_t samples);
};

/// How a run saves.
struct SaveOptions {
  /// Checkpoints that stay: the last one, and those before it in folders `step-STEP` inside.
  int64_t keep = 1;
  /// Names of the model without the part in front that all of them share, such as the name under
  /// which a module with the loss holds the model. Both kinds of names are loaded.
  bool hasModelNames = false;
};

/// The folder that a run saves to. While it is open no other process can open it; a process that
/// dies lets go of it.
class CheckpointFolder {
public:
  /// Takes the folder, or makes it, and clears away what a killed save left. To be called before
  /// training for hours: a failure when no checkpoint can or should be written there.
  static StatusOr<CheckpointFolder> open(const std::string &path, SaveOptions options = {});

  CheckpointFolder(CheckpointFolder &&) = default;
  CheckpointFolder &operator=(CheckpointFolder &&) = delete;
  /// Removes the folder again when it was made and nothing was saved.
  ~CheckpointFolder();

  /// Writes the session's variables and the state. A failure leaves the checkpoint before intact.
  Status save(const Session &session, const TrainingState &state);

  /// Gives what was saved last a second place, in the folder `name` inside, instead of what was
  /// there.
  Status mark(const std::string &name);

private:
  CheckpointFolder(std::string path, std::string folder, SaveOptions options, bool isNew)
      : path(std::move(path)), folder(std::move(folder)), options(options), isNew(isNew) {}

  std::string path;   ///< as it was given, for messages
  std::string folder; ///< without links
  SaveOptions options;
  Descriptor lock;
  bool isNew;
};

/// What the other ranks do while the first one saves.
Status contributeToCheckpoint(const Session &session);

/// Reads and checks the text of a state.json.
StatusOr<TrainingState> parseTrainingState(std::string_view text);

/// Whether all state is finite. Gradients can overflow under a loss that is finite; such an update
/// must not replace a good checkpoint.
Status checkFinite(const Session &session, const TrainingState &state);

/// Fills the session's variables and gives the state. A package of mode `eval` takes the model
/// alone, from any folder with a model.safetensors, and no state. It may be called while another
/// process saves there.
StatusOr<TrainingState> loadCheckpoint(const std::string &folder, Session &session);

/// Fills the model's variables from a state dict in a safetensors file; everything else begins as
/// in a new run.
Status loadWeights(const std::string &file, Session &session);

} // namespace memopt

#endif // MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINT_H
