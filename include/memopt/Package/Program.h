//===- Program.h - planned program to machine code -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PACKAGE_PROGRAM_H
#define MEMOPT_PACKAGE_PROGRAM_H

#include "memopt-runtime/Status.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace mlir::memopt {

struct ProgramOptions {
  int threads = 0; ///< compiler threads; 0: as many as the machine has. Bits do not depend on it.
  bool isInstrumented = true; ///< each instruction is reported to the runtime
};

/// Generates code for every kernel of the planned module and its step function, and links it to
/// `path`. A failure has a diagnostic and says who can help.
::memopt::StatusCode writeProgram(ModuleOp planned, const ProgramOptions &options, StringRef path);

/// Prints the program's module in the LLVM dialect.
LogicalResult printProgram(ModuleOp planned, const ProgramOptions &options, raw_ostream &out);

} // namespace mlir::memopt

#endif // MEMOPT_PACKAGE_PROGRAM_H
