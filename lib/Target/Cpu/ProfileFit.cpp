//===- ProfileFit.cpp - rates of a machine from measured times --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Target/Cpu/ProfileFit.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;

/// Ratios beyond this, up or down, count in proportion and no longer by their square.
static constexpr double kLogOfOutlier = 0.3;

/// Loss by which a rate is held to where it began, in squares of its logarithm: little beside a few
/// measurements, but it decides where they leave the rate open.
static constexpr double kInertia = 0.02;

static double getLoss(ArrayRef<MeasuredInstruction> measured, const MachineProfile &start,
                      const MachineProfile &profile) {
  double loss = 0;
  for (const MachineProfile::Rate &rate : MachineProfile::getRates()) {
    double moved = std::log(profile.*rate.field / start.*rate.field);
    loss += kInertia * moved * moved;
  }
  for (const MeasuredInstruction &instruction : measured) {
    double error = std::abs(std::log(profile.getSeconds(instruction.work) / instruction.seconds));
    loss += instruction.weight * (error <= kLogOfOutlier ? error * error / (2 * kLogOfOutlier)
                                                         : error - kLogOfOutlier / 2);
  }
  return loss;
}

static MachineProfile descend(ArrayRef<MeasuredInstruction> measured, const MachineProfile &start) {
  MachineProfile profile = start;
  constexpr double kFinest = 1.005, kLeastGain = 1e-9;
  double best = getLoss(measured, start, profile);
  for (double factor = 2; factor > kFinest;) {
    bool isBetter = false;
    for (const MachineProfile::Rate &rate : MachineProfile::getRates())
      for (double step : {factor, 1 / factor}) {
        MachineProfile candidate = profile;
        candidate.*rate.field *= step;
        double loss = getLoss(measured, start, candidate);
        if (loss + kLeastGain < best) {
          best = loss;
          profile = candidate;
          isBetter = true;
        }
      }
    if (!isBetter)
      factor = std::sqrt(factor);
  }
  return profile;
}

double mlir::memopt::getUndisturbed(ArrayRef<double> seconds) {
  std::vector<double> sorted(seconds.begin(), seconds.end());
  auto quartile = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 4);
  std::nth_element(sorted.begin(), quartile, sorted.end());
  return *quartile;
}

/// How many times as long all instructions take together as predicted. What was off by more than a
/// factor of three was disturbed.
static double getSlowness(ArrayRef<MeasuredInstruction> measured, const MachineProfile &profile) {
  double predicted = 0, seconds = 0;
  for (const MeasuredInstruction &instruction : measured) {
    double prediction = profile.getSeconds(instruction.work);
    if (std::abs(std::log(prediction / instruction.seconds)) > std::log(3))
      continue;
    predicted += instruction.weight * prediction;
    seconds += instruction.weight * instruction.seconds;
  }
  return predicted > 0 ? seconds / predicted : 1;
}

/// The same machine, so many times as slow in what was found out about it.
static MachineProfile slowDown(MachineProfile profile, const MachineProfile &start, double factor) {
  for (const MachineProfile::Rate &rate : MachineProfile::getRates()) {
    double &value = profile.*rate.field;
    if (value == start.*rate.field)
      continue;
    if (rate.key.ends_with("_per_second"))
      value /= factor;
    else if (rate.key.ends_with("_seconds"))
      value *= factor;
  }
  return profile;
}

ProfileFit mlir::memopt::fitProfile(ArrayRef<MeasuredInstruction> measured,
                                    const MachineProfile &start) {
  std::vector<MeasuredInstruction> valid;
  llvm::copy_if(measured, std::back_inserter(valid),
                [](const MeasuredInstruction &instruction) { return instruction.seconds > 0; });
  ProfileFit fit{start};
  if (valid.empty())
    return fit;
  // The fit is one of ratios, in which few instructions that take much longer than predicted count
  // less than many that take a little less. A step is a sum.
  fit.profile = descend(valid, start);
  fit.profile = slowDown(fit.profile, start, getSlowness(valid, fit.profile));
  std::vector<double> errors;
  double predicted = 0, seconds = 0;
  for (const MeasuredInstruction &instruction : valid) {
    double prediction = fit.profile.getSeconds(instruction.work);
    errors.push_back(std::abs(prediction / instruction.seconds - 1));
    predicted += prediction;
    seconds += instruction.seconds;
  }
  std::nth_element(errors.begin(), errors.begin() + errors.size() / 2, errors.end());
  fit.typicalError = errors[errors.size() / 2];
  fit.totalRatio = predicted / seconds;
  return fit;
}
