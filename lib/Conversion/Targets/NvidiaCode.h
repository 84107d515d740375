//===- NvidiaCode.h - code of NVIDIA's GPUs ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_TARGETS_NVIDIACODE_H
#define MEMOPT_LIB_CONVERSION_TARGETS_NVIDIACODE_H

#include "mlir/IR/MLIRContext.h"

namespace mlir::memopt {

/// Gives CudaAttr its code.
void attachNvidiaCode(MLIRContext &context);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_TARGETS_NVIDIACODE_H
