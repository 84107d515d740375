//===- FakeDriver.cpp - a driver that shows a device ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaDriver.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

using namespace memopt::cuda;

static int multiprocessors = 132, driverVersion = 13000, chip = 90;
static bool isBusy = false;

extern "C" {

/// The device has so many from now on.
void fakeDriverSetMultiprocessors(int count) { multiprocessors = count; }

/// The driver is for this version of CUDA from now on (12020 is 12.2), and the device this chip.
void fakeDriverSetVersion(int version) { driverVersion = version; }
void fakeDriverSetChip(int number) { chip = number; }

/// Streams and events have work before them from now on, or none.
void fakeDriverSetBusy(int busy) { isBusy = busy != 0; }

CUresult cuStreamQuery(CUstream) { return isBusy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
CUresult cuEventQuery(CUevent) { return isBusy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }

CUresult cuDriverGetVersion(int *version) {
  *version = driverVersion;
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
    *value = chip / 10;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *value = chip % 10;
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

/// As drivers do: a cubin is for a chip and newer ones of its major version (here the word behind
/// its head), and by ptxas 13 (ABI 8) for drivers from CUDA 13 on; PTX is for its version's drivers
/// and for all newer chips.
CUresult cuModuleLoad(CUmodule *module, const char *path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  *module = reinterpret_cast<CUmodule>(0x6000);
  if (text.compare(0, 4,
                   "\x7f"
                   "ELF") == 0) {
    if (text.size() < 17 || (text[8] >= 8 && driverVersion < 13000))
      return CUDA_ERROR_INVALID_IMAGE;
    int made = std::atoi(text.c_str() + 16);
    return made / 10 == chip / 10 && made <= chip ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  int major = 0, minor = 0, made = 0;
  if (std::sscanf(text.c_str(), ".version %d.%d .target sm_%d", &major, &minor, &made) != 3)
    return CUDA_ERROR_INVALID_PTX;
  if (1000 * (major + 4) + 10 * minor > driverVersion)
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  return made <= chip ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

CUresult cuMemFreeHost(void *address) {
  std::free(address);
  return CUDA_SUCCESS;
}
}
