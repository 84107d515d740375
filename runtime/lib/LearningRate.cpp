//===- LearningRate.cpp - learning rate schedules -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/LearningRate.h"
#include <algorithm>
#include <cmath>

using namespace memopt;

static const char *const kindNames[] = {"constant", "linear", "cosine", "step"};

StatusOr<ScheduleKind> memopt::parseScheduleKind(const std::string &name) {
  for (int i = 0; i < 4; ++i)
    if (name == kindNames[i])
      return static_cast<ScheduleKind>(i);
  return badInput("learning rate schedule " + quote(name) +
                  " is unknown; known are constant, linear, cosine and step");
}

double LearningRateSchedule::at(int64_t step) const {
  if (step <= warmupSteps)
    return rate * double(step) / double(warmupSteps);
  int64_t done = step - 1 - warmupSteps;
  double progress =
      std::min(1.0, double(done) / double(std::max<int64_t>(1, totalSteps - warmupSteps)));
  switch (kind) {
  case ScheduleKind::Constant:
    return rate;
  case ScheduleKind::Linear:
    return rate + (minRate - rate) * progress;
  case ScheduleKind::Cosine:
    return minRate + (rate - minRate) * 0.5 * (1 + std::cos(M_PI * progress));
  case ScheduleKind::Step:
    return rate * std::pow(gamma, double(done / std::max<int64_t>(1, stepSize)));
  }
  return rate;
}

nlohmann::json LearningRateSchedule::toJson() const {
  return {{"kind", kindNames[int(kind)]},
          {"rate", rate},
          {"min_rate", minRate},
          {"warmup_steps", warmupSteps},
          {"total_steps", totalSteps},
          {"step_size", stepSize},
          {"gamma", gamma}};
}

StatusOr<LearningRateSchedule> LearningRateSchedule::fromJson(const JsonView &view) {
  LearningRateSchedule schedule;
  MEMOPT_ASSIGN_OR_RETURN(std::string kind, view.getString("kind"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.kind, parseScheduleKind(kind));
  MEMOPT_ASSIGN_OR_RETURN(schedule.rate, view.getNumber("rate"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.minRate, view.getNumber("min_rate"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.warmupSteps, view.getInteger("warmup_steps"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.totalSteps, view.getInteger("total_steps"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.stepSize, view.getInteger("step_size"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.gamma, view.getNumber("gamma"));
  return schedule;
}
