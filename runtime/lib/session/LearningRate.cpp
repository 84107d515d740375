//===- LearningRate.cpp - learning rate schedules -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/session/LearningRate.h"
#include <algorithm>
#include <cmath>

using namespace memopt;

static const char *const kindNames[] = {"constant",   "linear",      "cosine",     "step",
                                        "multi-step", "exponential", "polynomial", "one-cycle"};

StatusOr<ScheduleKind> memopt::parseScheduleKind(const std::string &name) {
  const auto *found = std::find(std::begin(kindNames), std::end(kindNames), name);
  if (found != std::end(kindNames))
    return static_cast<ScheduleKind>(found - kindNames);
  std::string known;
  for (const char *kind : kindNames)
    known += (known.empty() ? "" : ", ") + std::string(kind);
  return badInput("learning rate schedule " + quote(name) + " is unknown; known are " + known);
}

/// From `begin` to `end` along half a cosine.
static double anneal(double begin, double end, double progress) {
  return end + (begin - end) * 0.5 * (1 + std::cos(M_PI * progress));
}

/// Smith and Topin, Super-Convergence, 2018, in the two phases of OneCycleLR.
double LearningRateSchedule::getCycleRate(double base, int64_t done) const {
  double total = double(std::max<int64_t>(1, totalSteps - warmupSteps));
  double first = base / divFactor, last = first / finalDivFactor, top = percentStart * total - 1;
  if (double(done) < top)
    return anneal(first, base, double(done) / top);
  double length = total - 1 - top;
  return anneal(base, last, length > 0 ? std::min(1.0, (double(done) - top) / length) : 0.0);
}

double LearningRateSchedule::at(int64_t step, double base) const {
  if (step <= warmupSteps)
    return base * double(step) / double(warmupSteps);
  int64_t done = step - 1 - warmupSteps;
  double progress =
      std::min(1.0, double(done) / double(std::max<int64_t>(1, totalSteps - warmupSteps)));
  switch (kind) {
  case ScheduleKind::Constant:
    return base;
  case ScheduleKind::Linear:
    return base + (minRate - base) * progress;
  case ScheduleKind::Cosine:
    return anneal(base, minRate, progress);
  case ScheduleKind::Step:
    return base * std::pow(gamma, double(done / std::max<int64_t>(1, stepSize)));
  case ScheduleKind::MultiStep:
    return base * std::pow(gamma, double(std::count_if(milestones.begin(), milestones.end(),
                                                       [&](int64_t m) { return done >= m; })));
  case ScheduleKind::Exponential:
    return base * std::pow(gamma, double(done));
  case ScheduleKind::Polynomial:
    return minRate + (base - minRate) * std::pow(1 - progress, power);
  case ScheduleKind::OneCycle:
    return getCycleRate(base, done);
  }
  return base;
}

nlohmann::json LearningRateSchedule::toJson() const {
  return {{"kind", kindNames[int(kind)]},
          {"rate", rate},
          {"min_rate", minRate},
          {"warmup_steps", warmupSteps},
          {"total_steps", totalSteps},
          {"step_size", stepSize},
          {"gamma", gamma},
          {"power", power},
          {"milestones", milestones},
          {"pct_start", percentStart},
          {"div_factor", divFactor},
          {"final_div_factor", finalDivFactor}};
}

/// What checkpoints have since there are more schedules.
static Status readNewer(const JsonView &view, LearningRateSchedule &schedule) {
  if (!view.has("power"))
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(schedule.power, view.getNumber("power"));
  MEMOPT_ASSIGN_OR_RETURN(JsonView milestones, view.get("milestones"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.milestones, milestones.asIntegers());
  MEMOPT_ASSIGN_OR_RETURN(schedule.percentStart, view.getNumber("pct_start"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.divFactor, view.getNumber("div_factor"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.finalDivFactor, view.getNumber("final_div_factor"));
  return Status::ok();
}

StatusOr<LearningRateSchedule> LearningRateSchedule::fromJson(const JsonView &view) {
  LearningRateSchedule schedule;
  MEMOPT_ASSIGN_OR_RETURN(std::string kind, view.getString("kind"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.kind, parseScheduleKind(kind));
  MEMOPT_ASSIGN_OR_RETURN(schedule.rate, view.getNumber("rate"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.minRate, view.getNumber("min_rate"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.warmupSteps, view.getCount("warmup_steps"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.totalSteps, view.getCount("total_steps"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.stepSize, view.getCount("step_size"));
  MEMOPT_ASSIGN_OR_RETURN(schedule.gamma, view.getNumber("gamma"));
  MEMOPT_RETURN_IF_ERROR(readNewer(view, schedule));
  return schedule;
}
