//===- CudnnGraph.h - a library call as cuDNN's operations ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_DEVICE_CUDA_CUDNNGRAPH_H
#define MEMOPT_RUNTIME_LIB_DEVICE_CUDA_CUDNNGRAPH_H

#include "memopt-runtime/device/cuda/Cudnn.h"
#include <deque>
#include <nlohmann/json_fwd.hpp>

namespace memopt::cuda {

/// Operations on tensors whose numbers are those of the call's buffers.
class CudnnGraph {
public:
  /// A convolution, as docs/LibraryCalls.md describes it; other calls are an Environment error.
  static StatusOr<std::unique_ptr<CudnnGraph>> create(const Cudnn &library,
                                                      const nlohmann::json &descriptor);

  const CudnnObject &get() const { return parts.back(); }

private:
  friend class ConvolutionGraph;
  /// What the graph, the last of them, refers to; each stays where it is.
  std::deque<CudnnObject> parts;
};

} // namespace memopt::cuda

#endif // MEMOPT_RUNTIME_LIB_DEVICE_CUDA_CUDNNGRAPH_H
