//===- CheckpointFiles.h - the files of a checkpoint ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What writing (CheckpointFolder.cpp) and reading (Checkpoint.cpp) share: names and places.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINTFILES_H
#define MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINTFILES_H

#include "memopt-runtime/checkpoint/Checkpoint.h"

namespace memopt {

constexpr const char *modelFile = "model.safetensors", *optimizerFile = "optimizer.safetensors",
                     *stateFile = "state.json";
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

/// The text of a state.json.
std::string printTrainingState(const TrainingState &state);

} // namespace memopt

#endif // MEMOPT_RUNTIME_CHECKPOINT_CHECKPOINTFILES_H
