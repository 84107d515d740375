//===- OptimizerOptions.h - options of optimizers as words ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_OPTIMIZERS_OPTIMIZEROPTIONS_H
#define MEMOPT_LIB_TRANSFORMS_OPTIMIZERS_OPTIMIZEROPTIONS_H

#include "memopt/Transforms/Optimizers/Optimizer.h"

namespace mlir::memopt {

/// Words `name=value` of a command line.
using OptionWords = ArrayRef<std::pair<std::string, std::string>>;

/// Says which option, what was expected and what was found.
inline llvm::Error invalidOption(const Twine &message) { return llvm::createStringError(message); }

/// The option of an optimizer.
std::optional<OptimizerOption> findOption(const Optimizer &optimizer, StringRef name);

/// Puts the value of an option into the settings. Fails with expected and found.
llvm::Error readValue(const OptimizerOption &option, StringRef text, OptimizerSettings &settings);

/// The optimizer's defaults with what the words change.
llvm::Expected<OptimizerSettings> readSettings(const Optimizer &optimizer, OptionWords words);

/// The default of an option, as a person would write it.
std::string writeInitial(const OptimizerOption &option);

inline constexpr StringLiteral kStepCount = "step-count", kOwnCount = "own";
/// Options that the plan has, whatever the optimizers are.
ArrayRef<OptimizerOption> getPlanOptions();
/// Those of them that a group may have otherwise; it may have all options of optimizers.
ArrayRef<StringLiteral> getGroupKeys();
/// Null where the plan has none of the name.
const OptimizerOption *findPlanOption(StringRef name);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_OPTIMIZERS_OPTIMIZEROPTIONS_H
