//===- NvvmOps.h - operations of NVIDIA's GPUs -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_NVVM_NVVMOPS_H
#define MEMOPT_CONVERSION_THREADS_NVVM_NVVMOPS_H

#include "memopt/Conversion/Threads/DeviceOps.h"

namespace mlir::memopt {

const DeviceOps &getNvvmOps();

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_NVVM_NVVMOPS_H
