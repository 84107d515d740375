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
// - state.json: step, data position, seed, learning rate schedule, optimizer, what evaluations have
//   found; format and version
//
// The folder itself is never replaced, so it may be reached through links, be a mount point or the
// current folder, and hold other files. A save writes all three into a new hidden folder inside it,
// flushes them, and renames that folder to `.saved`: this one rename is the moment at which the new
// checkpoint counts. Then the files move up, one by one, over the old ones. A reader takes each
// file from `.saved` where it is there and from the folder where it is not, and so finds all three
// of one save whenever the writer was killed.
//
// Inside there may be folders of the same kind: `best`, and `step-N` of older saves. Nothing needs
// hard links or an exchange of names, which many file systems lack. A reader also takes a pointer
// file, which holds the name of a folder beside it, and a folder whose pointer `latest` says where
// its checkpoint is.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "memopt-runtime/session/LearningRate.h"
#include "memopt-runtime/session/Session.h"
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace memopt {

/// What the evaluations of a run have found so far.
struct BestEvaluation {
  double loss = std::numeric_limits<double>::infinity(); ///< the smallest; infinite: none as yet
  int64_t step = 0;                                      ///< behind which it was found
  int64_t worse = 0; ///< evaluations since, which gave no smaller loss

  /// Takes note of one more; whether it is the best. A loss that is not finite never is.
  bool note(std::optional<double> found, int64_t behindStep);
};

/// Where a run stands.
struct TrainingState {
  int64_t step = 0;         ///< steps done
  int64_t dataPosition = 0; ///< the next batch
  int64_t batchSize = 0;    ///< samples in a batch that the position counts; 0: not known
  int64_t seed = 0;         ///< of dropout, shuffling and random initialization
  LearningRateSchedule schedule;
  std::string optimizer; ///< its name; empty when the package gave none
  std::string base;      ///< the digest of what is frozen in codes, which checkpoints leave out
  BestEvaluation best;
  /// Numbers of the optimizer that were set while it ran, by the names of their variables: rates of
  /// groups, betas. They count instead of those that the package was compiled with.
  std::map<std::string, double> numbers;

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
  /// Whether the run will keepBest().
  bool keepsBest = false;
};

/// Tensors for a checkpoint that are those of no session.
struct CheckpointTensors {
  std::vector<TensorToWrite> model, optimizer;
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

  /// What this file system lacks that the user should know of, a sentence each.
  const std::vector<std::string> &getNotices() const { return notices; }

  /// Says that the run begins behind a step. Kept checkpoints of later steps are then of a run that
  /// was given up, and make room for those of this one; without it all older ones are.
  void beginBehind(int64_t step) { firstStep = step; }

  /// Whether there is room for what a run leaves here that saves so often, at most.
  Status checkRoom(const Manifest &manifest, int64_t saves) const;

  /// Writes the session's variables and the state. A failure leaves the checkpoint before intact;
  /// the same or another save may follow. Where ranks have parts of variables the others call
  /// contributeToCheckpoint() meanwhile, which ends with this, whatever becomes of it.
  Status save(const Session &session, const TrainingState &state);
  Status save(const CheckpointTensors &tensors, const TrainingState &state);

  /// Changes the state of the checkpoint that was saved last, without its tensors.
  Status updateState(const TrainingState &state);

  /// Gives what was saved last a second place, in the folder `best` inside, instead of what was
  /// there.
  Status keepBest();

private:
  CheckpointFolder(std::string path, std::string folder, SaveOptions options, bool isNew)
      : path(std::move(path)), folder(std::move(folder)), options(options), isNew(isNew) {}

  using Filler = std::function<Status(const std::string &freshFolder)>;
  Status replace(const Filler &fill, int64_t step);
  std::optional<int64_t> findStepToKeep(int64_t nextStep) const;
  void removeOlder();
  Status describeFailure(Status status) const;
  /// The state with the digest of what the files leave out.
  TrainingState withBase(TrainingState state) const {
    state.base = base;
    return state;
  }

  std::string path;   ///< as it was given, for messages
  std::string folder; ///< without links
  SaveOptions options;
  Descriptor lock;
  bool isNew;
  bool isParentSynced = true; ///< false: the entry of a new folder has still to reach the disk
  std::vector<std::string> notices;
  int64_t firstStep = -1;          ///< behind which the run begins
  std::optional<int64_t> lastStep; ///< that this run has saved
  std::string base;                ///< of the session that was saved last
  std::set<int64_t> keptSteps;     ///< of this run's checkpoints that were kept
};

/// What the other ranks do while the first one saves.
Status contributeToCheckpoint(const Session &session);

/// The folder that a path of a checkpoint leads to, through pointer files.
StatusOr<std::string> resolveCheckpoint(const std::string &path);

/// The text of a state.json.
std::string printTrainingState(const TrainingState &state);

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
