//===- CudaTarget.h - NVIDIA GPUs -------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TARGET_CUDA_CUDATARGET_H
#define MEMOPT_TARGET_CUDA_CUDATARGET_H

#include "mlir/IR/DialectRegistry.h"

namespace mlir::memopt {

/// Lets #memopt.cuda answer as a target.
void registerCudaTarget(DialectRegistry &registry);

/// Whether the last call that cuDNN was to plan failed for the machine's sake: cuDNN is missing or
/// too old, or the process that asks it ended.
bool isCudnnUnavailable();

} // namespace mlir::memopt

#endif // MEMOPT_TARGET_CUDA_CUDATARGET_H
