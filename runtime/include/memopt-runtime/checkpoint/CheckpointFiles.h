//===- CheckpointFiles.h - the files of a checkpoint ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What opening (CheckpointFolder.cpp), writing (CheckpointWriter.cpp) and reading (Checkpoint.cpp)
// share: names and places. Hidden inside a folder: `.lock`, held while a run may save;
// `.saving-...`, a save that is not done; `.saved`, a save that is done and whose files are on
// their way up;
// `.keeping`, where those that they replace go, if these are to stay.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINTFILES_H
#define MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINTFILES_H

#include "memopt-runtime/checkpoint/Checkpoint.h"

namespace memopt {

constexpr const char *modelFile = "model.safetensors", *optimizerFile = "optimizer.safetensors",
                     *stateFile = "state.json";
constexpr const char *lockName = ".lock", *savedName = ".saved", *keepingName = ".keeping",
                     *savingPrefix = ".saving-", *keptPrefix = "step-", *bestName = "best",
                     *latestName = "latest";
constexpr const char *checkpointFiles[] = {modelFile, optimizerFile, stateFile};

/// Bytes that a state.json may have.
constexpr size_t maxStateBytes = 1 << 20;

/// The path of one of the files: in `.saved` from a save that was cut off while files moved, or
/// else in the folder.
std::string findCheckpointFile(const std::string &folder, const std::string &name);

/// What belongs to the model, and what else a checkpoint keeps.
bool isModelVariable(const VariableSpec &variable);
bool isOptimizerVariable(const VariableSpec &variable);

/// What all names of the model's variables begin with, up to a dot; empty when they share nothing.
std::string getSharedPrefix(const Manifest &manifest);

/// The state in a folder, which is then a checkpoint.
StatusOr<TrainingState> readState(const std::string &folder);

bool isCheckpointFile(const std::string &name);

/// Bytes that a checkpoint takes on a disk.
StatusOr<int64_t> getCheckpointBytes(const Manifest &manifest, bool hasModelNames);

/// Ends what a save has begun when it was done: files it replaces go where they are kept, its own
/// take their place. Nothing where there is no such save.
Status finishMoves(const std::string &folder);

/// Removes checkpoint files from a folder of ours, and the folder when it is empty then. Something
/// else of that name stays.
void removeFiles(const std::string &folder);

/// Kept checkpoints in a folder by their steps. A folder of that name that is none does not count.
StatusOr<std::vector<std::pair<int64_t, std::string>>> listKept(const std::string &folder);

} // namespace memopt

#endif // MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINTFILES_H
