//===- EmulatedRanks.cpp - ranks on emulated devices ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A collective is a library call of the emulated device: in the order of its stream, on its memory,
// with every byte that it touches told to the emulator. It sends by way of the hosts'
// communicator, which the hosts themselves use between steps alone.
//
//===----------------------------------------------------------------------===//

#include "CudaRanks.h"
#include "memopt-runtime/device/cuda/CudaStream.h"
#include "memopt-runtime/ranks/RankSums.h"
#include <cstring>
#include <map>

using namespace memopt;
using namespace memopt::cuda;

namespace {

class EmulatedRanks final : public CudaRanks {
public:
  EmulatedRanks(const CudaContext &context, Communicator &hosts)
      : CudaRanks(context, hosts), pool(*ThreadPool::create(1, 1)),
        pieces(size_t(ranks * Communicator::mostExchangedBytes)) {}

  Status registerMemory(Arena &) override { return Status::ok(); }
  Status wait(Stream &stream) override { return explain(stream.synchronize()); }
  Status wait(Event &event) override { return explain(event.synchronize()); }

protected:
  Status exchange(CUstream stream, const Work &work) override { return put(stream, work); }
  Status reduce(CUstream stream, const Work &work) override { return put(stream, work); }

private:
  struct Call {
    EmulatedRanks &self;
    Work work;
    std::vector<char> all; ///< what every rank has; steps allocate nothing
  };

  Status put(CUstream stream, const Work &work) {
    // Graphs hold calls for long; the same collective is always the same one.
    auto [place, isNew] = calls.try_emplace(&work.collective, nullptr);
    int64_t size = getByteSize(work.collective.dtype);
    if (isNew)
      place->second = std::make_unique<Call>(
          Call{*this, work, std::vector<char>(size_t(work.collective.elements * size * ranks))});
    EmulatedAccess accesses[] = {{work.from, work.collective.elements * size, 0, 1},
                                 {work.to, work.collective.resultElements * size, 1, 1}};
    return context.explain(context.getDriver().emulatedCall(stream, "collective", &run,
                                                            place->second.get(), nullptr, 0,
                                                            accesses, std::size(accesses)),
                           "memoptEmulatedCall");
  }

  static CUresult run(void *object, void *const *) {
    auto &call = *static_cast<Call *>(object);
    Status status = call.self.trade(call.work, call.all.data());
    if (status.isOk())
      return CUDA_SUCCESS;
    if (call.self.failure.isOk())
      call.self.failure = std::move(status);
    return CUDA_ERROR_LAUNCH_FAILED;
  }

  /// As Communicator::exchangeAny does.
  Status exchangeAll(const char *mine, int64_t bytes, char *all) {
    for (int64_t begin = 0; begin < bytes; begin += Communicator::mostExchangedBytes) {
      int64_t size = std::min(bytes - begin, Communicator::mostExchangedBytes);
      MEMOPT_RETURN_IF_ERROR(hosts.exchange(mine + begin, size, pieces.data()));
      for (int64_t other = 0; other < ranks; ++other)
        std::memcpy(all + other * bytes + begin, pieces.data() + other * size, size_t(size));
    }
    return Status::ok();
  }

  Status trade(const Work &work, char *all) {
    const CollectiveSpec &spec = work.collective;
    int64_t operand = spec.elements * getByteSize(spec.dtype);
    MEMOPT_RETURN_IF_ERROR(exchangeAll(work.from, operand, all));
    const Shards &shards = work.shards;
    auto of = [&](int64_t other) -> const char * { return all + other * operand; };
    if (spec.kind == CollectiveKind::AllReduce || spec.kind == CollectiveKind::ReduceScatter) {
      int64_t begin = spec.kind == CollectiveKind::AllReduce ? 0 : rank * spec.resultElements;
      addRanks(spec.dtype, ranks, of, begin, begin + spec.resultElements, work.to, *pool);
      return Status::ok();
    }
    for (int64_t other = 0; other < ranks; ++other)
      if (work.isGather())
        std::memcpy(work.to + shards.begin(other), of(other), size_t(shards.bytes(other)));
      else
        std::memcpy(work.to + other * shards.shard, of(other) + shards.begin(rank),
                    size_t(shards.bytes(rank)));
    return Status::ok();
  }

  /// What the ranks say is the reason of what the device says.
  Status explain(Status status) {
    return status.isOk() || failure.isOk() ? std::move(status)
                                           : Status(failure.getCode(), failure.getMessage());
  }

  const std::unique_ptr<ThreadPool> pool;
  std::vector<char> pieces;
  std::map<const CollectiveSpec *, std::unique_ptr<Call>> calls;
  Status failure;
};

} // namespace

std::unique_ptr<DeviceCommunicator> memopt::joinEmulated(const CudaContext &context,
                                                         Communicator &hosts) {
  return std::make_unique<EmulatedRanks>(context, hosts);
}
