//===- Options.h - the command line of memopt-compile -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_OPTIONS_H
#define MEMOPT_TOOLS_COMPILE_OPTIONS_H

#include "memopt/Pipelines/Pipelines.h"
#include "memopt/Planning/Ranks/RankModel.h"
#include "memopt/Search/FormSearch.h"
#include "memopt/Target/Cpu/MachineProfile.h"
#include "memopt/Target/Cuda/DeviceDescription.h"

#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace memopt::tool {

enum class Emit { Graph, Joint, Kernels, Planned, Llvm, Ptx, Package };

/// The command line, checked and with defaults filled in.
struct CompileOptions {
  std::string input, output;
  Emit emit = Emit::Package;
  bool evaluate = false;
  bool explain = false;
  bool explainsTechniques = false; ///< each planned by itself
  bool isEstimate = false;         ///< print what a step would hold, plan nothing
  std::string reportPath, pagePath, loss, targetFeatures;
  bool dropout = true;
  bool allowsC = false;         ///< operators in C source, which the model brings
  bool isBatchSearched = false; ///< for the largest batch that fits
  bool isFormSearched = false;  ///< among those that `automatic` allows
  mlir::memopt::FormChoices automatic;
  bool isQuiet = false;   ///< neither the stage at work nor what was made is said
  bool isTimed = false;   ///< stages, in a table at the end
  bool reference = false; ///< plain loops instead of libraries
  int runThreads = 1;     ///< that library calls are planned for
  int ranksAtOnce = 1;    ///< of a host, that a calibration is of
  bool isInstrumented = true;
  int compilerThreads = 0; ///< 0: as many as the machine has
  int64_t deviceBudget = -1, hostBudget = -1, diskBudget = -1;
  int64_t givenDeviceBudget = -1; ///< with what a device holds beside the arena
  std::vector<std::pair<std::string, int64_t>> dimensions; ///< sizes of symbolic dimensions
  std::string diskFolder;                                  ///< absolute; empty without a disk
  mlir::memopt::PipelineOptions pipeline;
  std::string optimizerName;
  double learningRate = 0.0;
  std::optional<mlir::memopt::MachineProfile> profile;   ///< none: the shipped one
  std::optional<mlir::memopt::DeviceDescription> device; ///< none: a processor
  ::memopt::planning::RankNetwork network;               ///< without levels where none is given
  bool isCalibration = false;                            ///< write a profile, compile no model
  bool isDeviceCalibrated = false;                       ///< of the device at hand
  std::string calibrationPath;
  int frontierPoints = 0;   ///< 0: no frontier
  std::string frontierPath; ///< without its ending; empty: print only
};

/// Parses; an error is one sentence that names the option. `--help` and `--version` print and
/// leave.
llvm::Expected<std::unique_ptr<CompileOptions>> parseCompileOptions(int argc, char **argv);

/// "16GiB", "4096", "1.5MiB" in bytes.
llvm::Expected<int64_t> parseBytes(llvm::StringRef option, llvm::StringRef text);

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_OPTIONS_H
