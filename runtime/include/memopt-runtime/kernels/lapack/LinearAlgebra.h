//===- LinearAlgebra.h - calls that LAPACK computes ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_KERNELS_LAPACK_LINEARALGEBRA_H
#define MEMOPT_RUNTIME_KERNELS_LAPACK_LINEARALGEBRA_H

#include "memopt-runtime/descriptors/LinearAlgebraDescriptor.h"

namespace memopt::libraries {

/// One task for each matrix, which has LAPACK's memory in the workspace.
std::unique_ptr<LibraryCall> createLinearAlgebra(const LinearAlgebraDescriptor &descriptor,
                                                 int threads);

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_KERNELS_LAPACK_LINEARALGEBRA_H
