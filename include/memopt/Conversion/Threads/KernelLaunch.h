//===- KernelLaunch.h - a kernel that is started on a device -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_KERNELLAUNCH_H
#define MEMOPT_CONVERSION_THREADS_KERNELLAUNCH_H

#include "mlir/Support/LLVM.h"

#include <cstdint>
#include <string>

namespace mlir::memopt {

/// One start of a function of a device.
struct KernelLaunch {
  std::string symbol;
  int64_t number; ///< of the symbol among all device kernels
  int64_t blocks, threads;
  int64_t sharedBytes = 0; ///< beside what the kernel declares
  bool isStrided = false;  ///< threads go on where there are more iterations than threads
};

/// On the constant of a host's launch that says how many blocks there are: the launch's number.
inline constexpr llvm::StringLiteral kBlocksOfLaunchAttr = "memopt.blocks_of_launch";

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_KERNELLAUNCH_H
