//===- CudaRanks.cpp - ranks on GPUs --------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaRanks.h"
#include "memopt-runtime/device/cuda/CudaStream.h"

using namespace memopt;
using namespace memopt::cuda;

Status CudaRanks::copy(CUstream stream, const char *from, char *to, int64_t bytes) {
  return bytes ? context.memcpyAsync(reinterpret_cast<CUdeviceptr>(to),
                                     reinterpret_cast<CUdeviceptr>(from), size_t(bytes), stream)
               : Status::ok();
}

Status CudaRanks::clear(CUstream stream, char *to, int64_t bytes) {
  constexpr unsigned char zero = 0;
  return bytes
             ? context.memsetD8Async(reinterpret_cast<CUdeviceptr>(to), zero, size_t(bytes), stream)
             : Status::ok();
}

Status CudaRanks::start(ComputeStream &stream, const CollectiveSpec &collective, const char *from,
                        char *to) {
  CUstream queue = static_cast<CudaStream &>(stream).get();
  int64_t size = getByteSize(collective.dtype), operand = collective.elements * size,
          result = collective.resultElements * size;
  switch (collective.kind) {
  case CollectiveKind::AllReduce:
    return reduce(queue, {collective, {operand, operand}, from, to});
  case CollectiveKind::ReduceScatter:
    return reduce(queue, {collective, {operand, result}, from, to});
  case CollectiveKind::AllGather:
    return exchange(queue, {collective, {result, operand}, from, to});
  case CollectiveKind::OwnShard: {
    Shards shards{operand, result};
    MEMOPT_RETURN_IF_ERROR(copy(queue, from + shards.begin(rank), to, shards.bytes(rank)));
    return clear(queue, to + shards.bytes(rank), result - shards.bytes(rank));
  }
  case CollectiveKind::AllToAll:
    break;
  }
  Shards shards{operand, result / ranks};
  int64_t own = shards.bytes(rank);
  for (int64_t other = 0; other < ranks; ++other)
    MEMOPT_RETURN_IF_ERROR(clear(queue, to + other * shards.shard + own, shards.shard - own));
  return exchange(queue, {collective, shards, from, to});
}
