//===- Program.h - planned program to machine code -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PACKAGE_PROGRAM_H
#define MEMOPT_PACKAGE_PROGRAM_H

#include "memopt-runtime/base/Status.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/raw_ostream.h"

#include <string>
#include <vector>

namespace memopt {
class Cache;
} // namespace memopt

namespace mlir::memopt {

struct ProgramOptions {
  int threads = 0; ///< compiler threads; 0: as many as the machine has. Bits do not depend on it.
  bool isInstrumented = true;       ///< each instruction is reported to the runtime
  ::memopt::Cache *cache = nullptr; ///< where code is found again, or null; for speed only
};

/// Generates code for every kernel of the planned module and its step function, and links it to
/// program.so in the folder `directory`. Kernels of a device go to an image beside it
/// (TargetAttrInterface::getImageName), and their names, by the numbers that the program launches
/// them under, to `deviceKernels`. A failure has a diagnostic and says who can help.
::memopt::StatusCode writeProgram(ModuleOp planned, const ProgramOptions &options,
                                  StringRef directory, std::vector<std::string> &deviceKernels);

/// Prints the program's module in the LLVM dialect, and then the module of a device's kernels.
LogicalResult printProgram(ModuleOp planned, const ProgramOptions &options, raw_ostream &out);

/// Prints a device's kernels as text: PTX of NVIDIA's. Fails, with a diagnostic, for a processor.
::memopt::StatusCode printDeviceText(ModuleOp planned, raw_ostream &out);

/// The path of a file in a folder.
std::string getPathIn(StringRef folder, StringRef name);

} // namespace mlir::memopt

#endif // MEMOPT_PACKAGE_PROGRAM_H
