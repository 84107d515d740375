//===- Nccl.h - NCCL, found at run time -------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of NCCL's interface that memopt uses, so that it builds where NCCL is not: numbers as
// nccl.h has them, and a table of functions that is filled at run time. NVIDIA's documentation of
// NCCL says what each does.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CUDA_NCCL_H
#define MEMOPT_RUNTIME_DEVICE_CUDA_NCCL_H

#include "memopt-runtime/base/Status.h"
#include "memopt-runtime/device/cuda/CudaDriver.h"
#include <climits>
#include <string>

namespace memopt::cuda {

using NcclComm = struct ncclComm *;

struct NcclUniqueId {
  char bytes[128];
};

/// The first fields of NCCL's own, which it reads of who was compiled for this version.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21700;
  int blocking = 0;
  int clusterSize = INT_MIN, leastBlocks = INT_MIN; ///< as NCCL chooses
  /// A block of NCCL's holds a multiprocessor for as long as a collective takes. Half of what it
  /// takes by default leaves the others to the kernels beside it; NCCL_MAX_CTAS says otherwise.
  int mostBlocks = 16;
  const char *network = nullptr; ///< as NCCL chooses
};

namespace nccl {

enum Result : int { SUCCESS = 0, IN_PROGRESS = 7 };
enum DataType : int { INT8 = 0, INT32 = 2, INT64 = 4, FLOAT32 = 7, FLOAT64 = 8 };
enum Operation : int { SUM = 0 };
enum MemoryStatistic : int { MEMORY_TOTAL = 3 };

} // namespace nccl

/// The library, loaded. It stays until the process ends.
class Nccl {
public:
  /// What the loader finds under the name `path`. An Environment error says what is missing.
  static StatusOr<std::unique_ptr<Nccl>> load(const std::string &path);

  /// Success, also of what is in progress, or an Environment error that names the function.
  Status explain(int result, const char *symbol) const;

#define MEMOPT_NCCL_FUNCTION(field, symbol, parameters) int(*field) parameters = nullptr;
#include "memopt-runtime/device/cuda/Nccl.def"

  /// Null before version 2.30.
  int (*getMemory)(NcclComm communicator, int statistic, uint64_t *value) = nullptr;

private:
  const char *(*errorString)(int result) = nullptr;
};

} // namespace memopt::cuda

#endif // MEMOPT_RUNTIME_DEVICE_CUDA_NCCL_H
