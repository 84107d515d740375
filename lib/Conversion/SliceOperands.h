//===- SliceOperands.h - kernels that read one part of a buffer -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_SLICEOPERANDS_H
#define MEMOPT_LIB_CONVERSION_SLICEOPERANDS_H

#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

/// Rewrites a kernel that reads only slices of an operand to take the address at which they begin:
/// the offsets that the slices have in common go from the kernel to whoever calls it. So the steps
/// of a recurrent layer, which differ in nothing but the rows that they read, are one function.
/// Operands whose bytes a result takes (`resultBuffers`) stay as they are, and those whose slices
/// begin at no multiple of `alignment` bytes. Gives, for each operand, the number of the element to
/// pass the address of.
SmallVector<int64_t> moveSliceOffsets(KernelOp kernel, ArrayRef<int64_t> resultBuffers,
                                      int64_t alignment);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_SLICEOPERANDS_H
