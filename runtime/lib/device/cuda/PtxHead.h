//===- PtxHead.h - what PTX needs of a driver and a chip --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_DEVICE_CUDA_PTXHEAD_H
#define MEMOPT_RUNTIME_LIB_DEVICE_CUDA_PTXHEAD_H

#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/device/cuda/CudaContext.h"

namespace memopt {

/// Why the driver makes no code of the PTX in `source`: which driver and chip it needs, and which
/// there are.
Status explainRefusal(const CudaContext &context, const InputFile &source, cuda::CUresult result);

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_DEVICE_CUDA_PTXHEAD_H
