//===- ProfileFit.h - rates of a machine from measured times ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds the rates under which predictions come closest to what was measured. Errors count by their
// ratio, and large ones no more than in proportion (Huber, Robust Estimation of a Location
// Parameter, 1964): an instruction that another program disturbed moves the fit little. One rate
// after the other is multiplied or divided by a factor that shrinks from two to half a percent,
// which needs no derivatives of the model and gives the same rates for the same measurements.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TARGET_CPU_PROFILEFIT_H
#define MEMOPT_TARGET_CPU_PROFILEFIT_H

#include "memopt/Target/Cpu/MachineProfile.h"

namespace mlir::memopt {

struct MeasuredInstruction {
  Work work;
  double seconds;
  double weight = 1; ///< in the fit, beside the other instructions'
};

/// The lower quartile: what an instruction takes when nothing else disturbs it, where a median
/// needs a quiet machine.
double getUndisturbed(ArrayRef<double> seconds);

struct ProfileFit {
  MachineProfile profile;
  double typicalError = 0; ///< median of |predicted / measured - 1|
  double totalRatio = 0;   ///< all predicted seconds by all measured ones
};

/// Starts from `start`; what the measurements say nothing of stays as it is there. Measurements of
/// no seconds are left out.
ProfileFit fitProfile(ArrayRef<MeasuredInstruction> measured, const MachineProfile &start);

} // namespace mlir::memopt

#endif // MEMOPT_TARGET_CPU_PROFILEFIT_H
