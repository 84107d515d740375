//===- CudaLibraries.h - what makes calls on a GPU --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CUDA_CUDALIBRARIES_H
#define MEMOPT_RUNTIME_DEVICE_CUDA_CUDALIBRARIES_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/device/cuda/CublasLt.h"
#include "memopt-runtime/device/cuda/CudaContext.h"
#include "memopt-runtime/device/cuda/Cudnn.h"
#include "memopt-runtime/device/cuda/Nccl.h"

namespace memopt {

/// cuDNN and cuBLASLt with a handle each for a context, opened when a call first needs them. They
/// are what the loader finds, or what lies in the toolkit that $CUDA_HOME names.
class CudaLibraries {
public:
  explicit CudaLibraries(const CudaContext &context) : context(context) {}
  ~CudaLibraries();
  CudaLibraries(const CudaLibraries &) = delete;
  CudaLibraries &operator=(const CudaLibraries &) = delete;

  Status openCudnn();
  Status openCublas();

  const CudaContext &getContext() const { return context; }
  /// Of an opened library.
  const cuda::Cudnn &getCudnn() const { return *cudnn; }
  cuda::CudnnHandle getCudnnHandle() const { return cudnnHandle; }
  const cuda::CublasLt &getCublas() const { return *cublas; }
  cuda::CublasLtHandle getCublasHandle() const { return cublasHandle; }

private:
  const CudaContext &context;
  std::unique_ptr<cuda::Cudnn> cudnn;
  cuda::CudnnHandle cudnnHandle = nullptr;
  std::unique_ptr<cuda::CublasLt> cublas;
  cuda::CublasLtHandle cublasHandle = nullptr;
};

/// Refuses a workspace of so many bytes that does not begin where libraries demand it.
Status checkWorkspace(const void *workspace, int64_t bytes);

/// NCCL, found as the other libraries are.
StatusOr<std::unique_ptr<cuda::Nccl>> loadNccl();

/// A convolution by cuDNN: by the plan in `descriptor`, where it was made for this device and this
/// version of cuDNN, else by one that is made here and keeps to the planned workspace.
StatusOr<std::unique_ptr<DeviceCall>> createCudnnCall(CudaLibraries &libraries,
                                                      const nlohmann::json &descriptor);

/// A product of matrices by cuBLASLt, by the kernel that its heuristics prefer among those that
/// keep to the planned workspace. Products of f32 are made of f32.
StatusOr<std::unique_ptr<DeviceCall>> createCublasCall(CudaLibraries &libraries,
                                                       const nlohmann::json &descriptor);

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_CUDA_CUDALIBRARIES_H
