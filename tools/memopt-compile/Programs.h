//===- Programs.h - what several programs of a package are made of -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_PROGRAMS_H
#define MEMOPT_TOOLS_COMPILE_PROGRAMS_H

#include "Options.h"

#include <memory>
#include <string>
#include <vector>

namespace memopt::tool {

/// One of several programs.
struct ProgramRequest {
  std::string name;
  std::string optimizer; ///< whose state it has; programs of one name share it
  std::vector<std::pair<std::string, std::string>> variables; ///< own names, and shared ones
  bool isAveraged; ///< an evaluation that reads averages in the place of parameters
  std::unique_ptr<CompileOptions> options;
};

/// What a command line asks for.
struct CompileRequest {
  std::unique_ptr<CompileOptions> single; ///< null where there are several
  std::vector<ProgramRequest> programs;
  std::string output, reportPath, pagePath; ///< of all of them
  std::string state;                        ///< the package whose state they have; empty: their own
};

/// Reads a command line, and the file of --programs.
llvm::Expected<CompileRequest> parseRequest(int argc, char **argv);

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_PROGRAMS_H
