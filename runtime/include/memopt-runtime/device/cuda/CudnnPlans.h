//===- CudnnPlans.h - plans of cuDNN from a description ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuDNN plans a call from a device's properties alone: neither device nor driver need be there.
// What a plan says as text loads where chip, number of multiprocessors and version of cuDNN agree.
// Some engines divide their sums by what the device says of itself once a plan is loaded, and then
// need more workspace than the plan said. So where the device is at hand, each plan is loaded, and
// the workspace is that of the loaded plan.
//
// Taken are engines that cuDNN does not mark as different from run to run, that keep operands and
// sums as wide as they are, and whose code cuDNN brings along: what it would compile asks for a
// driver, and choices would depend on the machine. Products of f32 are those of tensor cores
// (TF32), as they are PyTorch's in convolutions.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CUDA_CUDNNPLANS_H
#define MEMOPT_RUNTIME_DEVICE_CUDA_CUDNNPLANS_H

#include "memopt-runtime/base/Status.h"
#include "memopt-runtime/device/cuda/Cudnn.h"
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace memopt {

class CudaContext;

struct CudnnPlan {
  std::string name;       ///< the engine and its knobs, "engine62(2=1,5=0)"
  int64_t workspaceBytes; ///< exact where the device is at hand
  std::string text;       ///< cuDNN's own JSON

  /// Engine 0 takes any call, without a workspace, and time.
  bool isLastResort() const { return name == "engine0" || name.rfind("engine0(", 0) == 0; }
};

/// The plans for a library call (docs/LibraryCalls.md) in cuDNN's order of speed, without those
/// that need as much workspace as one before. None at all is an Environment error. Buffers begin at
/// multiples of 16 bytes, and the numbers of tensors are those of the call's buffers. `properties`
/// is the JSON text of a device description's properties (docs/Cuda.md). `handle` is of this device
/// where it is at hand: plans that it refuses are left out.
StatusOr<std::vector<CudnnPlan>> planWithCudnn(const cuda::Cudnn &library,
                                               const std::string &properties,
                                               const nlohmann::json &descriptor,
                                               cuda::CudnnHandle handle = nullptr);

/// A plan from its text, on the device of the handle.
StatusOr<cuda::CudnnObject> loadCudnnPlan(const cuda::Cudnn &library, cuda::CudnnHandle handle,
                                          const std::string &text);

/// The same with a library of its own, and with the device at hand where it has the properties.
class CudnnPlanner {
public:
  /// `library` is the file of libcudnn, or its name where the loader finds it.
  static StatusOr<std::unique_ptr<CudnnPlanner>> open(const std::string &library,
                                                      std::string properties);
  ~CudnnPlanner();

  /// "9.26.0".
  const std::string &getVersion() const;
  /// Whether a device with these properties is at hand: plans say what they need once loaded there.
  bool hasDevice() const { return handle != nullptr; }

  StatusOr<std::vector<CudnnPlan>> plan(const nlohmann::json &descriptor) const;

private:
  CudnnPlanner(std::unique_ptr<cuda::Cudnn> library, std::string properties);
  /// Takes a handle where a device with these properties is at hand.
  void openDevice();

  std::unique_ptr<cuda::Cudnn> library;
  std::string properties;
  std::unique_ptr<CudaContext> context;
  cuda::CudnnHandle handle = nullptr;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_CUDA_CUDNNPLANS_H
