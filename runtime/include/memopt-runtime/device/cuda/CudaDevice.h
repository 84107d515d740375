//===- CudaDevice.h - an NVIDIA GPU as a device -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CUDA_CUDADEVICE_H
#define MEMOPT_RUNTIME_DEVICE_CUDA_CUDADEVICE_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/device/cuda/CudaContext.h"

namespace memopt {

class CudaLibraries;

/// The GPU of a rank (Device::open), or an Environment error that says what is missing.
StatusOr<std::unique_ptr<Device>> openCudaDevice(int64_t rank);

/// The text of a device description (docs/Cuda.md): what the compiler needs to know of the device.
StatusOr<std::string> describeCudaDevice(const CudaContext &context);

/// "sm_90".
StatusOr<std::string> getCudaChip(const CudaContext &context);

/// A library call in a stream of the device.
StatusOr<std::unique_ptr<DeviceCall>> createCudaCall(CudaLibraries &libraries,
                                                     const nlohmann::json &descriptor, int threads,
                                                     const LibraryCallFactory &reference);

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_CUDA_CUDADEVICE_H
