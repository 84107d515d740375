//===- Validation.h - evaluation in the course of training ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program of the training's own package, or a second session of the model compiled for mode
// `eval`, which takes the values of the training's variables into an arena of its own, averages its
// outputs over other data.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_VALIDATION_H
#define MEMOPT_RUN_VALIDATION_H

#include "memopt-run/run/Run.h"

namespace memopt {

class Validation {
public:
  /// Opens a session of `package`, and --eval-data. A failure when `training`, which must outlive
  /// this, lacks a variable of the package or has it in another form. Of several ranks, to whom
  /// `communicator` leads, each has its own, on `threads` threads (0: as many as it may), and on the
  /// device of its training, `own`.
  static StatusOr<std::unique_ptr<Validation>> create(const RunOptions &options,
                                                      std::shared_ptr<const Package> package,
                                                      const Session &training, const Device &own,
                                                      Communicator *communicator, int threads);

  /// By evaluations that are among the training's own programs, over the same variables; of several
  /// the one that fits the shapes of a batch.
  static StatusOr<std::unique_ptr<Validation>> create(const RunOptions &options,
                                                      ProgramSet &programs,
                                                      std::vector<size_t> numbers,
                                                      Communicator *communicator);

  /// Evaluates the model as it is now, all ranks together; nothing when the run is asked to stop
  /// before the end of the data.
  StatusOr<std::optional<Evaluation>> evaluate(int64_t step);

  /// Of each program that evaluates, the steps so far.
  const std::map<const Session *, int64_t> &getSteps() const { return run.report.stepsOf; }

  /// The rank that could not evaluate, when all have left the last evaluation for its sake.
  std::optional<int64_t> getRefusingRank() const { return run.refusing; }

private:
  Validation(const RunOptions &options, std::unique_ptr<Device> device,
             std::unique_ptr<Session> own, Session &session, const Session &training,
             Communicator *communicator);
  Status matchVariables();
  Status takeVariables(int64_t step);

  RunOptions options;
  std::unique_ptr<Device> device; ///< null where the training's is used
  std::unique_ptr<Session> own;
  Session &session;
  const Session &training;
  Run run; ///< with the programs of the training, where the evaluation is among them
  /// Ours, and the training's of that name.
  std::vector<std::pair<const VariableSpec *, const VariableSpec *>> shared;
};

} // namespace memopt

#endif // MEMOPT_RUN_VALIDATION_H
