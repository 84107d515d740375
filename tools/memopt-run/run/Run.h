//===- Run.h - training and evaluation loops --------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_RUN_H
#define MEMOPT_RUN_RUN_H

#include "memopt-run/options/Options.h"
#include "memopt-run/run/Report.h"
#include "memopt-runtime/checkpoint/Checkpoint.h"
#include "memopt-runtime/data/Data.h"
#include "memopt-runtime/ranks/KeepAlive.h"
#include "memopt-runtime/session/ProgramSet.h"
#include <optional>

namespace memopt {

class Validation;

/// What both loops work on.
struct Run {
  const RunOptions &options;
  /// Of several programs the first, whose manifest has all of the state.
  Session &session;
  CheckpointFolder *target;   ///< of --save; null without it, and on ranks but the first
  Communicator *communicator; ///< to the other ranks, or null
  RunReport report;
  std::unique_ptr<DataSource> data; ///< null for a program without inputs
  int64_t position = 0;             ///< in the data, of the step's first batch
  KeepAlive keepAlive{isFirst() ? communicator : nullptr};
  bool hasResults = false;              ///< the steps, or the evaluation, came to their end
  std::string left = {};                ///< "; the checkpoint of step 7 is in 'run'", or nothing
  ProgramSet *programs = nullptr;       ///< null where the session is no package's first
  std::vector<size_t> trained = {};     ///< numbers of the programs that do what the first does
  std::vector<size_t> alternation = {}; ///< of --alternate: the program of each step in turn
  Session *atWork = nullptr;            ///< the program of this step, or null: the session
  Status sideFailure = {};              ///< the first of an output that the training does not need
  std::optional<int64_t> refusing = {}; ///< the rank for whose sake all ranks end together

  /// Tells of a failure that training goes on after; the run ends with it.
  void noteSideFailure(Status failure);
  /// Whether this is the rank that speaks for all.
  bool isFirst() const { return !communicator || communicator->getRank() == 0; }
  /// Whether the run was asked to stop, which all ranks answer alike.
  StatusOr<bool> isStopped() const;
  /// What ranks fail in alike, though it may be the fault of one: success where all can go on.
  Status agree(Status own);
  /// When ranks end together because of one of them, it is the one that says so.
  Status awaitReason(Status failure) const;
  /// The program whose step runs, or ran last.
  Session &getProgram() const { return atWork ? *atWork : session; }
  bool hasSeveral() const { return trained.size() > 1; }
  /// Finds the programs that train, and those of --alternate.
  Status listPrograms();
  /// Makes the program of a step's batches the one at work.
  Status enterProgram(int64_t step);
  /// Opens the data, from which the session takes its batches.
  Status openData(int64_t seed);
  Status openDataOfSeveral(int64_t seed);
  void tell(const std::vector<std::string> &notices) const;
  /// What this rank fills behind a part of a step, as a part of that step.
  int64_t getPartBehind(int64_t part) const;
  /// Steps that the options ask for.
  int64_t countSteps() const;
  /// What a step of the run fills: an evaluation's that of one rank, whose batches are shared out.
  int64_t getPartsPerStep() const;
  /// Steps that one pass over the data takes.
  int64_t countStepsOfEpoch() const;
  /// Samples of a step.
  int64_t getStepSize() const;
  /// The step that was just done, in front of batch `position` of the data.
  StepFacts describeStep(int64_t step, int64_t position, double loss) const;
  /// One step on the batches from `position` on; what it allocates is counted. A failure names
  /// `step`.
  Status runStep(int64_t step, double rate, int64_t seed);
};

/// Trains from where the checkpoint or the options say. A stop by Ctrl-C is a failure of code
/// Interrupted.
/// `validation` may be null.
Status train(Run &run, Validation *validation);

/// Averages the outputs over the data.
Status evaluate(Run &run);
/// The part of it that is done again in the course of training: what the variables hold now, over
/// data that is open. Ranks share out the batches, and all have the averages of one rank, to the
/// last bit. False when the run is asked to stop before the end of the data.
StatusOr<bool> averageOutputs(Run &run);

} // namespace memopt

#endif // MEMOPT_RUN_RUN_H
