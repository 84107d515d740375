//===- FakeDriver.cpp - a driver that shows a device ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaDriver.h"
#include <cstdlib>
#include <cstring>

using namespace memopt::cuda;

static int multiprocessors = 132;
static bool isBusy = false;

extern "C" {

/// The device has so many from now on.
void fakeDriverSetMultiprocessors(int count) { multiprocessors = count; }

/// Streams and events have work before them from now on, or none.
void fakeDriverSetBusy(int busy) { isBusy = busy != 0; }

CUresult cuStreamQuery(CUstream) { return isBusy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
CUresult cuEventQuery(CUevent) { return isBusy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }

CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice) {
  std::strncpy(name, "a device that computes nothing", size_t(size));
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
  *bytes = size_t(80) << 30;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdeviceAttribute attribute, CUdevice) {
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *value = multiprocessors;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *value = 9;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = 0;
    break;
  default:
    *value = 1;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned) {
  *stream = reinterpret_cast<CUstream>(0x5000);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned) {
  *address = std::calloc(1, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *address) {
  std::free(address);
  return CUDA_SUCCESS;
}
}
