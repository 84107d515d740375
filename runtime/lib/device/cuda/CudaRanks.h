//===- CudaRanks.h - ranks on GPUs ------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_DEVICE_CUDA_CUDARANKS_H
#define MEMOPT_RUNTIME_LIB_DEVICE_CUDA_CUDARANKS_H

#include "memopt-runtime/device/DeviceCommunicator.h"
#include "memopt-runtime/device/cuda/CudaContext.h"

namespace memopt {

/// What collectives are made of: copies, zeros behind the last shard, and messages.
class CudaRanks : public DeviceCommunicator {
public:
  Status start(ComputeStream &stream, const CollectiveSpec &collective, const char *from,
               char *to) final;

protected:
  /// How the bytes of a tensor are cut.
  struct Shards {
    int64_t whole, shard;
    int64_t begin(int64_t rank) const { return std::min(whole, rank * shard); }
    int64_t bytes(int64_t rank) const { return std::min(shard, whole - begin(rank)); }
  };
  /// One tensor at work.
  struct Work {
    const CollectiveSpec &collective;
    Shards shards;
    const char *from;
    char *to;
    bool isGather() const { return collective.kind == CollectiveKind::AllGather; }
  };

  CudaRanks(const CudaContext &context, Communicator &hosts)
      : context(context), hosts(hosts), rank(hosts.getRank()), ranks(hosts.getRanks()) {}

  /// Sends each rank its shard, or all of them this rank's own, and receives as much.
  virtual Status exchange(cuda::CUstream stream, const Work &work) = 0;
  /// A sum that the library makes, of whole shards.
  virtual Status reduce(cuda::CUstream stream, const Work &work) = 0;

  Status copy(cuda::CUstream stream, const char *from, char *to, int64_t bytes);
  Status clear(cuda::CUstream stream, char *to, int64_t bytes);

  const CudaContext &context;
  Communicator &hosts;
  const int64_t rank, ranks;
};

/// By NCCL, whose communicator this makes with the other ranks; `seconds` is how long to wait for
/// them, now and later.
StatusOr<std::unique_ptr<DeviceCommunicator>> joinNccl(const CudaContext &context,
                                                       Communicator &hosts, double seconds);

/// On an emulated device: the hosts send what the devices should, in the order of the stream.
std::unique_ptr<DeviceCommunicator> joinEmulated(const CudaContext &context, Communicator &hosts);

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_DEVICE_CUDA_CUDARANKS_H
