//===- Settings.h - what a run on the emulator is told ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// memopt-emulate passes its options on by the environment, for the command that it runs loads the
// emulator as any other driver.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_SETTINGS_H
#define MEMOPT_EMULATOR_SETTINGS_H

#include "memopt-runtime/device/cuda/CudaDriver.h"
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace memopt::emulator {

using cuda::CUresult;

constexpr const char *seedVariable = "MEMOPT_EMULATOR_SEED";
constexpr const char *deviceVariable = "MEMOPT_EMULATOR_DEVICE";
constexpr const char *driverVariable = "MEMOPT_EMULATOR_DRIVER"; ///< as cuDriverGetVersion gives it
constexpr const char *racesVariable = "MEMOPT_EMULATOR_RACES";   ///< a folder
constexpr const char *faultsVariable = "MEMOPT_EMULATOR_FAULTS";

/// What the device claims to be.
struct Description {
  std::string name, image;
  int version = 0; ///< of the driver, as cuDriverGetVersion gives it
  size_t totalBytes = 0;
  int sharedBytes = 0, optinSharedBytes = 0, threadsPerBlock = 0;
  std::map<int, int> attributes; ///< by CUdeviceAttribute

  /// Reads a description of a device. A file that cannot be used ends the process: tests would go
  /// on with another device than they ask for.
  static Description read(const std::string &path);
};

/// Failures that a test asks for: the n-th call of a driver's function, or the n-th kernel that
/// runs (`kernel`), gives an error.
class Faults {
public:
  /// `FUNCTION:N=ERROR`, separated by commas; errors by their numbers.
  static Faults parse(const std::string &text);

  /// What a call of `function` is to answer.
  CUresult count(const char *function);

private:
  struct Fault {
    std::string function;
    int64_t left; ///< calls until it fails
    CUresult error;
  };
  std::vector<Fault> faults;
};

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_SETTINGS_H
