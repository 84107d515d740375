//===- KernelLaunch.h - a kernel that is started on a device -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_KERNELLAUNCH_H
#define MEMOPT_CONVERSION_THREADS_KERNELLAUNCH_H

#include <cstdint>
#include <string>

namespace mlir::memopt {

/// One start of a function of a device.
struct KernelLaunch {
  std::string symbol;
  int64_t number; ///< of the symbol among all device kernels
  int64_t blocks, threads;
  int64_t sharedBytes = 0; ///< beside what the kernel declares
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_KERNELLAUNCH_H
