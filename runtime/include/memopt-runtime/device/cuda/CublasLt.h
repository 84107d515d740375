//===- CublasLt.h - cuBLASLt, found at run time -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of cuBLASLt's interface that memopt uses, so that it builds where cuBLAS is not: numbers
// as cublasLt.h has them, and a table of functions that is filled at run time. NVIDIA's
// documentation of cuBLAS says what each does.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CUDA_CUBLASLT_H
#define MEMOPT_RUNTIME_DEVICE_CUDA_CUBLASLT_H

#include "memopt-runtime/base/Status.h"
#include "memopt-runtime/device/cuda/CudaDriver.h"
#include <string>

namespace memopt::cuda {

using CublasLtHandle = struct cublasLtContext *;

struct CublasLtAlgorithm {
  uint64_t data[8];
};

struct CublasLtHeuristic {
  CublasLtAlgorithm algorithm;
  size_t workspaceBytes;
  int state; ///< 0 where the algorithm can run
  float waves;
  int reserved[4];
};

namespace cublaslt {

enum ComputeType : int {
  COMPUTE_32F = 68,
  COMPUTE_64F = 70,
  COMPUTE_32F_FAST_16BF = 75,
  COMPUTE_32F_FAST_TF32 = 77,
};
enum DataType : int { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14 };
enum Operation : int32_t { OP_N = 0, OP_T = 1 };
enum Epilogue : uint32_t { EPILOGUE_BIAS = 4 };
/// Sums that are cut are added up in the workspace, in the type that they are made in.
enum ReductionScheme : uint32_t { REDUCTION_COMPUTE_TYPE = 2 };

enum DescriptorAttribute : int {
  DESC_TRANSPOSE_A = 3,
  DESC_TRANSPOSE_B = 4,
  DESC_EPILOGUE = 7,
  DESC_BIAS_POINTER = 8,
};
enum LayoutAttribute : int { LAYOUT_BATCH_COUNT = 5, LAYOUT_BATCH_STRIDE = 6 };
enum PreferenceAttribute : int {
  PREFERENCE_WORKSPACE = 1,
  PREFERENCE_REDUCTIONS = 3,
  PREFERENCE_ALIGNMENT_A = 5, // then b, c and d
};

} // namespace cublaslt

/// The library, loaded. It stays until the process ends.
class CublasLt {
public:
  /// What the loader finds under the name `path`. An Environment error says what is missing.
  static StatusOr<std::unique_ptr<CublasLt>> load(const std::string &path);

  /// Success, or an Environment error that names the function and the status.
  Status explain(int status, const char *symbol) const;

#define MEMOPT_CUBLASLT_FUNCTION(field, symbol, parameters) int(*field) parameters = nullptr;
#include "memopt-runtime/device/cuda/CublasLt.def"

private:
  const char *(*statusString)(int status) = nullptr;
};

} // namespace memopt::cuda

#endif // MEMOPT_RUNTIME_DEVICE_CUDA_CUBLASLT_H
