//===- Checkpoints.h - what a run leaves to go on from ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A disk that fails for a while ends no training: a checkpoint that could not be written is tried
// again behind later steps, and several times at the end. Whatever ends a run early, the steps that
// were made are in a checkpoint, if the state is whole.
//
// All ranks make the same calls, and each knows what became of them.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_CHECKPOINTS_H
#define MEMOPT_RUN_CHECKPOINTS_H

#include "memopt-run/run/Run.h"

namespace memopt {

class Checkpoints {
public:
  /// `firstStep` is the one behind which the run begins.
  Checkpoints(Run &run, int64_t firstStep) : run(run), firstStep(firstStep) {}

  /// Writes the checkpoint of the state, unless it is written. A failure of the machine's is told,
  /// and tried again later; another one is returned.
  Status save(const TrainingState &state);
  /// Does what is due again behind a step.
  Status retry(const TrainingState &state);
  /// Writes it, and keeps it as the best.
  Status saveBest(const TrainingState &state);

  /// The last checkpoint of a run, tried several times.
  Status finish(const TrainingState &state);
  /// The checkpoint of the steps before one that is left for its loss.
  void saveBeforeLoss(const TrainingState &state);
  /// The checkpoint of a run that ends with a failure. The result is that failure; its message says
  /// what is saved.
  Status rescue(const TrainingState &state, Status failure);

private:
  bool isSaved(const TrainingState &state) const;
  Status write(const TrainingState &state);
  Status writeAlone(const TrainingState &state);
  Status share(Status own);
  void keepBest();
  void noteSaved(const TrainingState &state);

  Run &run;
  const int64_t firstStep;
  std::optional<int64_t> savedStep;  ///< of the last checkpoint that this run wrote
  std::string savedState;            ///< its text
  std::optional<int64_t> failedRank; ///< that the last failed save is the fault of
  Status lossFailure;                ///< why there is none before a loss
  std::optional<int64_t> bestStep;   ///< of a checkpoint that is still to be kept as the best
  int64_t failures = 0;              ///< in a row
  int64_t nextTry = 0;               ///< the step behind which a failed save is tried again
};

} // namespace memopt

#endif // MEMOPT_RUN_CHECKPOINTS_H
