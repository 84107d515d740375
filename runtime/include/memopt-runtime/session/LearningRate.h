//===- LearningRate.h - learning rate schedules -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The learning rate is an input of each step, so a schedule needs no recompilation. Steps count
// from 1.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_SESSION_LEARNINGRATE_H
#define MEMOPT_RUNTIME_SESSION_LEARNINGRATE_H

#include "memopt-runtime/base/Json.h"
#include <cstdint>
#include <vector>

namespace memopt {

enum class ScheduleKind {
  Constant,
  Linear,
  Cosine,
  Step,
  MultiStep,
  Exponential,
  Polynomial,
  OneCycle
};

/// Formulas are those of torch.optim.lr_scheduler, after a linear warm-up.
struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::Constant;
  double rate = 0;         ///< the base rate, reached at the end of the warm-up
  double minRate = 0;      ///< where Linear, Cosine and Polynomial end
  int64_t warmupSteps = 0; ///< rising linearly: step s of them has rate * s / warmupSteps
  int64_t totalSteps = 0;  ///< the step at which schedules with an end reach it
  int64_t stepSize = 1;    ///< Step: this many steps after the warm-up ...
  double gamma = 0.1;      ///< ... the rate is multiplied by this, and again
  double power = 1;        ///< Polynomial
  /// MultiStep: steps after the warm-up from which on the rate is multiplied by gamma once more.
  std::vector<int64_t> milestones;
  double percentStart = 0.3;   ///< OneCycle: part of the steps in which the rate rises ...
  double divFactor = 25;       ///< ... from rate / this ...
  double finalDivFactor = 1e4; ///< ... to fall to a start that is divided by this

  /// The rate of a step.
  double at(int64_t step) const { return at(step, rate); }
  /// The same for a group of parameters with a base rate of its own.
  double at(int64_t step, double base) const;

  /// For checkpoints.
  nlohmann::json toJson() const;
  static StatusOr<LearningRateSchedule> fromJson(const JsonView &view);

private:
  double getCycleRate(double base, int64_t done) const;
};

/// Reads a kind's name, such as "cosine" or "one-cycle".
StatusOr<ScheduleKind> parseScheduleKind(const std::string &name);

} // namespace memopt

#endif // MEMOPT_RUNTIME_SESSION_LEARNINGRATE_H
