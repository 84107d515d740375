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

#ifndef MEMOPT_RUNTIME_LEARNINGRATE_H
#define MEMOPT_RUNTIME_LEARNINGRATE_H

#include "memopt-runtime/Json.h"
#include <cstdint>

namespace memopt {

enum class ScheduleKind { Constant, Linear, Cosine, Step };

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::Constant;
  double rate = 0;         ///< the base rate, reached at the end of the warm-up
  double minRate = 0;      ///< where Linear and Cosine end
  int64_t warmupSteps = 0; ///< rising linearly: step s of them has rate * s / warmupSteps
  int64_t totalSteps = 0;  ///< the step at which Linear and Cosine end
  int64_t stepSize = 1;    ///< Step: this many steps after the warm-up ...
  double gamma = 0.1;      ///< ... the rate is multiplied by this, and again

  /// The rate of a step.
  double at(int64_t step) const;

  /// For checkpoints.
  nlohmann::json toJson() const;
  static StatusOr<LearningRateSchedule> fromJson(const JsonView &view);
};

/// Reads "constant", "linear", "cosine" or "step".
StatusOr<ScheduleKind> parseScheduleKind(const std::string &name);

} // namespace memopt

#endif // MEMOPT_RUNTIME_LEARNINGRATE_H
