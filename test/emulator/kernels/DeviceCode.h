//===- DeviceCode.h - kernels as code of this machine -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Device code is LLVM IR for NVPTX. It becomes code of this machine as it is: address spaces mean
// nothing there, the intrinsics of the device become calls of the emulator, and so is each load and
// store announced, with its address, size and kind. What the emulator does not know is an error
// that names it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_DEVICECODE_H
#define MEMOPT_EMULATOR_DEVICECODE_H

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memopt::emulator {

struct Kernel {
  std::string name;
  void (*run)(void **arguments);      ///< one thread, with the address of each parameter's value
  std::vector<size_t> parameterBytes; ///< in their order
  size_t sharedBytes;                 ///< that its module declares
  int mostThreads;                    ///< that it was compiled for; 0: any
};

class DeviceCode {
public:
  /// Reads an image: bitcode or text of LLVM IR. Null and a message when it is none, or needs what
  /// is not emulated. `shared` is where each block's shared memory lies.
  static std::unique_ptr<DeviceCode> load(const std::string &path, void *shared,
                                          std::string &message);
  ~DeviceCode();

  const Kernel *find(const std::string &name) const;

private:
  struct Engine; ///< LLVM's
  DeviceCode();

  std::unique_ptr<Engine> engine;
  std::vector<Kernel> kernels;
};

/// The functions that device code calls, by name (Kernels.cpp has them).
std::vector<std::pair<const char *, void *>> getDeviceFunctions();

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_DEVICECODE_H
