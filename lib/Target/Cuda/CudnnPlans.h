//===- CudnnPlans.h - cuDNN's plans, asked of a child -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuDNN runs in a process of its own, memopt-cudnn beside the running program: whatever it does
// there, an error is all that the compiler sees of it. The process starts when the first plan is
// asked for and ends with the compiler. Answers are kept, by description of the device and of the
// call, for as long as the compiler runs.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TARGET_CUDA_CUDNNPLANS_H
#define MEMOPT_LIB_TARGET_CUDA_CUDNNPLANS_H

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <string>
#include <vector>

namespace mlir::memopt {

struct CudnnPlan {
  std::string name; ///< the engine and its knobs
  int64_t workspaceBytes;
  std::string text; ///< as cuDNN writes it and reads it
};

struct CudnnPlans {
  std::string version;         ///< of cuDNN
  bool isDeviceAtHand = false; ///< so that workspaces are those of loaded plans
  std::vector<CudnnPlan> plans;
};

/// The plans for the call that `descriptor` describes, on a device with these `properties`, in
/// cuDNN's order of speed, each of a smaller workspace than those before; at least one. Any thread
/// may ask. Errors say what is missing, or what cuDNN said.
llvm::Expected<CudnnPlans> planWithCudnn(const llvm::json::Object &properties,
                                         const llvm::json::Object &descriptor);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TARGET_CUDA_CUDNNPLANS_H
