//===- Calibrate.h - measures the machine -----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_CALIBRATE_H
#define MEMOPT_TOOLS_COMPILE_CALIBRATE_H

#include "Options.h"

#include "memopt-runtime/base/Status.h"

#include "mlir/IR/MLIRContext.h"

namespace memopt::tool {

/// Compiles the calibration graphs, of a processor or of the device at hand, with the options
/// given, runs them with the memopt-run that lies beside `program` (argv[0]), fits the rates of a
/// profile to the times of their instructions, and writes it, or the device's description with
/// them, to options.calibrationPath. Says on standard output what it does. A failure stands in
/// `error`.
StatusCode calibrate(mlir::MLIRContext &context, const CompileOptions &options, const char *program,
                     std::string &error);

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_CALIBRATE_H
