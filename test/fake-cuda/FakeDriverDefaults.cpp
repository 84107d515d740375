//===- FakeDriverDefaults.cpp - a driver that does nothing ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every function that the runtime looks up succeeds; FakeDriver.cpp has those that answer more.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaDriver.h"

using namespace memopt::cuda;

extern "C" {
#define MEMOPT_CUDA_FUNCTION(field, symbol, parameters)                                            \
  __attribute__((weak)) CUresult symbol parameters { return CUDA_SUCCESS; }
#include "memopt-runtime/device/cuda/CudaDriver.def"
}
