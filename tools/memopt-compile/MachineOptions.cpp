//===- MachineOptions.cpp - what steps are compiled for -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OptionGroups.h"

#include "memopt-runtime/threads/ThreadPool.h"

#include "llvm/ADT/StringExtras.h"

#include <cstdlib>

using namespace memopt::tool;

/// Options of processors, which say nothing of a device.
static constexpr llvm::StringLiteral kOfProcessors[] = {"reference", "machine-profile",
                                                        "run-threads"};

/// And those of devices.
static constexpr llvm::StringLiteral kOfDevices[] = {"matmul-precision", "conv-precision",
                                                     "reduce"};

static llvm::Error fillPrecisions(const CommandLine &line,
                                  mlir::memopt::DeviceDescription &device) {
  device.matmulPrecision = line.get("matmul-precision");
  device.convPrecision = line.get("conv-precision");
  if (!llvm::is_contained({"highest", "high", "medium"}, device.matmulPrecision))
    return invalid("--matmul-precision expects highest, high or medium, found '" +
                   device.matmulPrecision + "'");
  if (!llvm::is_contained({"highest", "high"}, device.convPrecision))
    return invalid("--conv-precision expects highest or high, found '" + device.convPrecision +
                   "'");
  return llvm::Error::success();
}

static llvm::Error fillTarget(const CommandLine &line, CompileOptions &options) {
  options.targetFeatures = line.get("target-features");
  std::string target = line.get("target");
  if (target == "cpu") {
    for (llvm::StringRef name : kOfDevices)
      if (line.isSet(name))
        return invalid("--" + name + " is for --target=cuda");
    return llvm::Error::success();
  }
  if (target != "cuda")
    return invalid("--target expects cpu or cuda, found '" + target + "'");
  if (line.isSet("calibrate")) {
    options.isDeviceCalibrated = true;
    return line.isSet("target-features")
               ? invalid("--calibrate measures the device at hand, which --target-features does "
                         "not choose; leave it out")
               : llvm::Error::success();
  }
  if (!line.isSet("target-features"))
    return invalid("--target=cuda needs --target-features with " +
                   llvm::join(mlir::memopt::DeviceDescription::getNames(), ", ") +
                   " or a FILE.json that describes the device");
  for (llvm::StringRef name : kOfProcessors)
    if (line.isSet(name))
      return invalid("--" + name + " is for --target=cpu");
  auto device = mlir::memopt::DeviceDescription::find(options.targetFeatures);
  if (!device)
    return invalid("--target-features: " + llvm::toString(device.takeError()));
  options.device = std::move(*device);
  // Of devices on one host; the training options may name another network.
  if (const auto &link = options.device->link)
    options.network.levels = {{1, {link->latency, link->bytesPerSecond}}};
  return fillPrecisions(line, *options.device);
}

/// A profile is named by the option or the environment, never found by itself: what a compilation
/// depends on is said where it is started.
static llvm::Error fillProfile(const CommandLine &line, CompileOptions &options) {
  const char *variable = std::getenv("MEMOPT_MACHINE_PROFILE");
  std::string fromEnvironment = variable ? variable : "";
  options.isCalibration = line.isSet("calibrate");
  if (options.isCalibration) {
    options.calibrationPath = line.get("calibrate");
    if (options.calibrationPath.empty() && options.isDeviceCalibrated)
      options.calibrationPath = "device.json";
    if (options.calibrationPath.empty())
      options.calibrationPath = fromEnvironment.empty() ? "machine-profile.json" : fromEnvironment;
    if (line.isSet("machine-profile"))
      return invalid("--calibrate makes a profile and --machine-profile reads one; give one");
    return llvm::Error::success();
  }
  std::string path = line.isSet("machine-profile") ? line.get("machine-profile") : fromEnvironment;
  // A device's rates come with its description.
  if (path.empty() || options.device)
    return llvm::Error::success();
  llvm::Expected<mlir::memopt::MachineProfile> profile = mlir::memopt::MachineProfile::read(path);
  if (!profile)
    return invalid(
        (line.isSet("machine-profile") ? "--machine-profile: " : "$MEMOPT_MACHINE_PROFILE: ") +
        llvm::toString(profile.takeError()));
  options.profile = std::move(*profile);
  return llvm::Error::success();
}

static llvm::Error fillThreads(const CommandLine &line, CompileOptions &options) {
  auto take = [&](llvm::StringRef name, int &number) -> llvm::Error {
    llvm::Expected<int> found = line.getCount(name);
    if (found)
      number = *found;
    return found.takeError();
  };
  if (llvm::Error error = llvm::joinErrors(take("threads", options.compilerThreads),
                                           take("run-threads", options.runThreads)))
    return error;
  if (options.isCalibration)
    if (llvm::Error error = take("ranks", options.ranksAtOnce))
      return error;
  if (options.ranksAtOnce < 1)
    return invalid("--calibrate expects --ranks=N of 1 or more, found '0'");
  // Each of the ranks of a host has its part.
  if (!options.runThreads)
    options.runThreads = std::max(1, ::memopt::countProcessors() / options.ranksAtOnce);
  return llvm::Error::success();
}

llvm::Error memopt::tool::fillMachineOptions(const CommandLine &line, CompileOptions &options) {
  for (auto fill : {fillTarget, fillProfile, fillThreads})
    if (llvm::Error error = fill(line, options))
      return error;
  return llvm::Error::success();
}
