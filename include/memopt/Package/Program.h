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
#include "memopt/Conversion/Threads/KernelLaunch.h"

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

/// A planned program, and how its code is made.
struct ProgramSource {
  ModuleOp planned;
  ProgramOptions options;
};

/// What programs start on a device.
struct DeviceLaunches {
  std::vector<KernelLaunch> kernels; ///< by their numbers
  /// For each program and each of its instructions, the numbers that it launches.
  std::vector<std::vector<SmallVector<int64_t, 1>>> ofInstructions;
};

/// Generates the code of all programs of a package, for one machine: every kernel, once where several
/// programs have it, and a step function for each program. Links it to program.so in the folder
/// `directory`. Kernels of a device go to an image beside it (TargetAttrInterface::getImageName), and
/// how they are launched to `launches`. Threads and cache are those of the first program's options. A
/// failure has a diagnostic and says who can help.
::memopt::StatusCode writePrograms(ArrayRef<ProgramSource> programs, StringRef directory,
                                   DeviceLaunches &launches);

/// Prints the program's module in the LLVM dialect, and then the module of a device's kernels.
LogicalResult printProgram(ModuleOp planned, const ProgramOptions &options, raw_ostream &out);

/// Prints a device's kernels as text: PTX of NVIDIA's. Fails, with a diagnostic, for a processor.
::memopt::StatusCode printDeviceText(ModuleOp planned, raw_ostream &out);

/// The path of a file in a folder.
std::string getPathIn(StringRef folder, StringRef name);

} // namespace mlir::memopt

#endif // MEMOPT_PACKAGE_PROGRAM_H
