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
  /// Opens FILE.csv, FILE.jsonl or tensorboard:DIR. A run that goes on from a checkpoint, behind
  /// `lastStep`, adds to the steps up to it in a file that is there, and another one begins it
  /// anew; TensorBoard keeps one file for each run. `hasNorm`: steps have the norm of their
  /// gradients.
  static StatusOr<std::unique_ptr<StepLog>> open(const std::string &target,
                                                 std::optional<int64_t> lastStep, bool hasNorm);
  /// Whether it could be opened; nothing is changed.
  static Status check(const std::string &target);

  virtual ~StepLog() = default;

  /// Adds a step; it is in the file when this returns. After a failure it waits in memory, and is
  /// written before what is added next.
  virtual Status add(const StepFacts &facts) = 0;
  /// Adds an evaluation; a table, whose columns are those of steps, has no place for it.
  virtual Status add(const Evaluation &evaluation) = 0;
  /// Writes what still waits.
  virtual Status flush() = 0;
};

} // namespace memopt

#endif // MEMOPT_RUN_STEPLOG_H
