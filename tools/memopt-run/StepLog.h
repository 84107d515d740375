//===- StepLog.h - a file that grows with each step -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What --log writes while a run goes on, for spreadsheets, programs and TensorBoard.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_STEPLOG_H
#define MEMOPT_RUN_STEPLOG_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace memopt {

struct Evaluation;

struct StepFacts {
  int64_t step;
  double epoch; ///< passes over the data when the step is done
  double loss;
  std::optional<double> learningRate; ///< in training
  std::optional<double> gradientNorm; ///< where the program computes it
  double seconds, samplesPerSecond;
};

class StepLog {
public:
  /// Opens FILE.csv, FILE.jsonl or tensorboard:DIR. A run that goes on from a checkpoint
  /// (`isContinued`) adds to a file that is there, another one begins it anew; TensorBoard keeps
  /// one file for each run.
  static StatusOr<std::unique_ptr<StepLog>> open(const std::string &target, bool isContinued);

  virtual ~StepLog() = default;

  /// Adds a step; it is in the file when this returns.
  virtual Status add(const StepFacts &facts) = 0;
  /// Adds an evaluation; a table, whose columns are those of steps, has no place for it.
  virtual Status add(const Evaluation &evaluation) = 0;
};

} // namespace memopt

#endif // MEMOPT_RUN_STEPLOG_H
