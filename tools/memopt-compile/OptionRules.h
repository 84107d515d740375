//===- OptionRules.h - what options need of each other ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An option that would have no effect is refused, with what it needs. One that is given with the
// value that it has anyway is none of these, nor is what a configuration of DeepSpeed brings.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_OPTIONRULES_H
#define MEMOPT_TOOLS_COMPILE_OPTIONRULES_H

#include "CommandLine.h"

namespace memopt::tool {

/// Whether an option says something of training steps alone.
bool isOfTraining(const OptionRow &row);

/// Refuses options of the command line that the others leave without effect.
llvm::Error checkRules(const CommandLine &line);

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_OPTIONRULES_H
