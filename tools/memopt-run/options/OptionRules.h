//===- OptionRules.h - what options need of each other ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An option that would have no effect is refused, with what it needs, as early as it can be known:
// by the command line alone, by the mode of the package, by the schedule that a checkpoint brings,
// or by the data.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_OPTIONRULES_H
#define MEMOPT_RUN_OPTIONRULES_H

#include "memopt-run/options/Options.h"
#include "memopt-runtime/data/Data.h"

namespace memopt {

/// Refuses what does not go together, as far as the command line says.
Status checkTogether(const RunOptions &options);
/// Refuses what belongs to training where the package is of mode `eval`.
Status checkMode(const RunOptions &options, const std::string &mode);
/// Changes a schedule, all but its base rate and its end, as the options say, and refuses those
/// that it then does not read.
Status changeSchedule(const RunOptions &options, LearningRateSchedule &schedule);
/// Refuses what only several ranks look at, where there is no launcher that starts them.
Status checkAlone(const RunOptions &options);
/// Refuses what no source of the data looks at.
Status checkDataUses(const RunOptions &options, const DataUses &uses);

} // namespace memopt

#endif // MEMOPT_RUN_OPTIONRULES_H
