//===- ArenaFile.h - arena problems and layouts as CSV ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Problem: a header line that names the columns id, lower, upper and size in any order, then one
// line a buffer, which lives from lower up to, not including, upper. Optional columns: alignment,
// fixed_offset (empty for none), pinned (0 or 1), in_place_of (the id of another buffer, empty for
// none). The layout has the same lines with one more column, offset.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_PLAN_ARENAFILE_H
#define MEMOPT_TOOLS_PLAN_ARENAFILE_H

#include "memopt/Planning/Arena/Arena.h"

#include "llvm/ADT/StringRef.h"

struct ArenaFile {
  memopt::planning::ArenaProblem problem;
  std::string header;             ///< as read
  std::vector<std::string> lines; ///< as read, by buffer
};

/// Reads a problem. Errors name the file and the line.
llvm::Expected<ArenaFile> readArenaFile(llvm::StringRef path);

/// The same from text; `path` is for messages.
llvm::Expected<ArenaFile> parseArenaFile(llvm::StringRef text, llvm::StringRef path);

llvm::Error writeArenaLayout(llvm::StringRef path, const ArenaFile &file,
                             const memopt::planning::ArenaSolution &solution);

#endif // MEMOPT_TOOLS_PLAN_ARENAFILE_H
