//===- OptionGroups.h - what options say, by subject -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each group takes from a checked command line what its file speaks of. An error is one sentence
// that names the option.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_OPTIONGROUPS_H
#define MEMOPT_TOOLS_COMPILE_OPTIONGROUPS_H

#include "CommandLine.h"
#include "Options.h"

namespace memopt::tool {

/// The machine that steps are compiled for, its profile and threads. Before the other groups, which
/// depend on whether it is a device.
llvm::Error fillMachineOptions(const CommandLine &line, CompileOptions &options);

/// What a step computes: mode, types, batches, ranks, optimizer.
llvm::Error fillTrainingOptions(const CommandLine &line, CompileOptions &options);

/// Budgets, and what may be done to meet them. Behind the training options.
llvm::Error fillMemoryOptions(const CommandLine &line, CompileOptions &options);

/// The names in a list such as "backbone, neck.*"; blanks and empty ones are left out.
llvm::SmallVector<std::string> parseModules(llvm::StringRef text);

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_OPTIONGROUPS_H
