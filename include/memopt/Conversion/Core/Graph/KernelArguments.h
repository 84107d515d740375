//===- KernelArguments.h - what callers say to equal kernels ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

//
// Kernels of layers that do the same differ in the rows that they read and in the random numbers
// that they draw. Both go from the kernel to whoever calls it, so that one function serves all
// layers.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_GRAPH_KERNELARGUMENTS_H
#define MEMOPT_CONVERSION_CORE_GRAPH_KERNELARGUMENTS_H

#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

/// Whether `kernel` checks indices or divisors: its function then takes, behind its buffers, the
/// address of the word in which it reports them.
bool hasChecks(KernelOp kernel);

/// Rewrites a kernel that reads only slices of an operand to take the address at which they begin:
/// the offsets that the slices have in common go from the kernel. So the steps of a recurrent layer
/// are one function.
/// Operands whose bytes a result takes (`resultBuffers`) stay as they are, and those whose slices
/// begin at no multiple of `alignment` bytes. Gives, for each operand, the number of the element to
/// pass the address of.
SmallVector<int64_t> moveSliceOffsets(KernelOp kernel, ArrayRef<int64_t> resultBuffers,
                                      int64_t alignment);

/// Gives the different ids of the kernel's random words, and puts their places in this list where
/// they stood. So the dropouts of all layers are one function.
SmallVector<int64_t> moveRandomIds(KernelOp kernel);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_GRAPH_KERNELARGUMENTS_H
