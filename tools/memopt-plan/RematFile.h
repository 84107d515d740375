//===- RematFile.h - remat problems and plans as JSON ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Problem: {"format": "memopt-remat-problem", "version": 1, "ops": [{"bytes": N, "cost": N,
// "inputs": [op, ...]}, ...]}. Besides, for ops with several results "bytes" may be a list and an
// input a pair [op, result]; "workspace": bytes, "pinned": true, "after": [op, ...] per op and
// "resident": bytes for all are optional; other keys are ignored. Meanings are those of
// memopt/Planning/Remat.h.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_PLAN_REMATFILE_H
#define MEMOPT_TOOLS_PLAN_REMATFILE_H

#include "memopt/Planning/Remat.h"

#include "llvm/ADT/StringRef.h"

/// Reads a problem. Errors name the file and the place in it.
llvm::Expected<memopt::planning::RematProblem> readRematProblem(llvm::StringRef path);

/// The same from text; `path` is for messages.
llvm::Expected<memopt::planning::RematProblem> parseRematProblem(llvm::StringRef text,
                                                                 llvm::StringRef path);

llvm::Error writeRematPlan(llvm::StringRef path, const memopt::planning::RematOptions &options,
                           const memopt::planning::RematSolution &solution);

llvm::Error writeRematFrontier(llvm::StringRef path,
                               const memopt::planning::RematFrontier &frontier);

#endif // MEMOPT_TOOLS_PLAN_REMATFILE_H
