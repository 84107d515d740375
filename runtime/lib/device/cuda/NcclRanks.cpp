//===- NcclRanks.cpp - ranks on GPUs, by NCCL -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The communicator is one that does not block: calls return while it still makes connections, and
// whether it has failed is asked for. A kernel of NCCL's that waits for a rank that is gone ends
// when the communicator is aborted, and with it every wait of this host.
//
//===----------------------------------------------------------------------===//

#include "CudaRanks.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/device/cuda/CudaLibraries.h"
#include "memopt-runtime/device/cuda/CudaStream.h"
#include "memopt-runtime/device/cuda/Nccl.h"
#include "memopt-runtime/ranks/KeepAlive.h"
#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

using namespace memopt;
using namespace memopt::cuda;

namespace {

class NcclRanks final : public CudaRanks {

public:
  NcclRanks(const CudaContext &context, Communicator &hosts, double seconds,
            std::unique_ptr<Nccl> library)
      : CudaRanks(context, hosts), seconds(seconds), nccl(std::move(library)) {}

  ~NcclRanks() override {
    if (!communicator)
      return;
    (void)context.makeCurrent();
    for (void *handle : registered)
      (void)nccl->deregisterMemory(communicator, handle);
    close();
  }

  /// Two ranks on one device would need its memory twice, and wait for each other's kernels.
  Status checkOwnDevice() {
    CUuuid mine{};
    MEMOPT_RETURN_IF_ERROR(context.explain(
        context.getDriver().deviceGetUuid(&mine, context.getDevice()), "cuDeviceGetUuid"));
    std::vector<CUuuid> all(static_cast<size_t>(ranks));
    MEMOPT_RETURN_IF_ERROR(hosts.exchange(&mine, sizeof mine, all.data()));
    for (int64_t other = 0; other < ranks; ++other)
      if (other != rank && std::memcmp(&all[size_t(other)], &mine, sizeof mine) == 0)
        return environmentError("ranks " + std::to_string(std::min(rank, other)) + " and " +
                                std::to_string(std::max(rank, other)) +
                                " have the same device: each needs one of its own. Start fewer "
                                "ranks, or let CUDA_VISIBLE_DEVICES show more devices");
    return Status::ok();
  }

  /// The first rank's id is that of the communicator.
  Status join() {
    MEMOPT_RETURN_IF_ERROR(checkOwnDevice());
    NcclUniqueId mine{};
    MEMOPT_RETURN_IF_ERROR(context.makeCurrent());
    if (rank == 0)
      MEMOPT_RETURN_IF_ERROR(nccl->explain(nccl->getUniqueId(&mine), "ncclGetUniqueId"));
    std::vector<NcclUniqueId> all(static_cast<size_t>(ranks));
    MEMOPT_RETURN_IF_ERROR(hosts.exchange(&mine, sizeof mine, all.data()));
    NcclConfig config;
    MEMOPT_RETURN_IF_ERROR(
        nccl->explain(nccl->initRank(&communicator, int(ranks), all[0], int(rank), &config),
                      "ncclCommInitRankConfig"));
    return settle();
  }

  Status registerMemory(Arena &memory) override {
    if (memory.size() == 0)
      return Status::ok();
    MEMOPT_RETURN_IF_ERROR(context.makeCurrent());
    void *handle = nullptr;
    MEMOPT_RETURN_IF_ERROR(nccl->explain(
        nccl->registerMemory(communicator, memory.base(), size_t(memory.size()), &handle),
        "ncclCommRegister"));
    registered.push_back(handle);
    return settle();
  }

  Status wait(Stream &stream) override {
    CUstream queue = static_cast<CudaStream &>(stream).get();
    MEMOPT_RETURN_IF_ERROR(
        waitUntil([&] { return context.getDriver().streamQuery(queue); }, "cuStreamQuery"));
    return stream.synchronize();
  }

  Status wait(Event &event) override {
    CUevent place = static_cast<CudaEvent &>(event).get();
    MEMOPT_RETURN_IF_ERROR(
        waitUntil([&] { return context.getDriver().eventQuery(place); }, "cuEventQuery"));
    return event.synchronize();
  }

  int64_t getTakenBytes() const override {
    uint64_t bytes = 0;
    bool isKnown = nccl->getMemory && communicator &&
                   nccl->getMemory(communicator, nccl::MEMORY_TOTAL, &bytes) == nccl::SUCCESS;
    return isKnown ? int64_t(bytes) : -1;
  }

protected:
  Status exchange(CUstream stream, const Work &work) override {
    MEMOPT_RETURN_IF_ERROR(begin());
    const Shards &shards = work.shards;
    int64_t own = shards.bytes(rank);
    // Equal shards are what NCCL gathers by itself, over rings and switches.
    if (work.isGather() && shards.whole == ranks * shards.shard) {
      MEMOPT_RETURN_IF_ERROR(nccl->explain(nccl->allGather(work.from, work.to, size_t(shards.shard),
                                                           nccl::INT8, communicator, stream),
                                           "ncclAllGather"));
      return settle();
    }
    char *mine = work.to + (work.isGather() ? shards.begin(rank) : rank * shards.shard);
    MEMOPT_RETURN_IF_ERROR(
        copy(stream, work.from + (work.isGather() ? 0 : shards.begin(rank)), mine, own));
    MEMOPT_RETURN_IF_ERROR(nccl->explain(nccl->groupStart(), "ncclGroupStart"));
    Status status;
    for (int64_t other = 0; other < ranks && status.isOk(); ++other)
      if (other != rank)
        status = trade(stream, work, other);
    Status end = nccl->explain(nccl->groupEnd(), "ncclGroupEnd");
    MEMOPT_RETURN_IF_ERROR(std::move(status));
    MEMOPT_RETURN_IF_ERROR(std::move(end));
    return settle();
  }

  Status reduce(CUstream stream, const Work &work) override {
    MEMOPT_RETURN_IF_ERROR(begin());
    MEMOPT_ASSIGN_OR_RETURN(int type, findType(work.collective.dtype));
    bool isWhole = work.collective.kind == CollectiveKind::AllReduce;
    auto count = size_t(work.collective.resultElements);
    MEMOPT_RETURN_IF_ERROR(isWhole
                               ? nccl->explain(nccl->allReduce(work.from, work.to, count, type,
                                                               nccl::SUM, communicator, stream),
                                               "ncclAllReduce")
                               : nccl->explain(nccl->reduceScatter(work.from, work.to, count, type,
                                                                   nccl::SUM, communicator, stream),
                                               "ncclReduceScatter"));
    return settle();
  }

private:
  /// A communicator is destroyed by all ranks of a host together. A rank that ends while others go on
  /// leaves without them; what it sent has arrived, as its stream stands still.
  void close() {
    (void)nccl->finalize(communicator);
    int result = nccl::IN_PROGRESS;
    for (Waiting waiting; result == nccl::IN_PROGRESS && waiting.getSeconds() < graceSeconds;
         std::this_thread::yield())
      if (nccl->getAsyncError(communicator, &result) != nccl::SUCCESS)
        break;
    (void)(result == nccl::SUCCESS ? nccl->destroy(communicator) : nccl->abort(communicator));
  }

  Status begin() const {
    return communicator ? context.makeCurrent()
                        : environmentError("the ranks' communicator was given up");
  }

  /// Both directions between this rank and another.
  Status trade(CUstream stream, const Work &work, int64_t other) {
    const Shards &shards = work.shards;
    int64_t sent = shards.bytes(work.isGather() ? rank : other),
            received = shards.bytes(work.isGather() ? other : rank);
    const char *from = work.from + (work.isGather() ? 0 : shards.begin(other));
    char *to = work.to + (work.isGather() ? shards.begin(other) : other * shards.shard);
    if (sent)
      MEMOPT_RETURN_IF_ERROR(nccl->explain(
          nccl->send(from, size_t(sent), nccl::INT8, int(other), communicator, stream),
          "ncclSend"));
    if (!received)
      return Status::ok();
    return nccl->explain(
        nccl->receive(to, size_t(received), nccl::INT8, int(other), communicator, stream),
        "ncclRecv");
  }

  static StatusOr<int> findType(DType type) {
    switch (type) {
    case DType::F32:
      return int(nccl::FLOAT32);
    case DType::F64:
      return int(nccl::FLOAT64);
    case DType::I32:
      return int(nccl::INT32);
    case DType::I64:
      return int(nccl::INT64);
    default:
      return badInput("NCCL is not asked to add up elements of this type");
    }
  }

  /// Returns when the communicator has done what the last call asked for, kernels excepted.
  Status settle() {
    return waitUntil([] { return CUDA_SUCCESS; }, "");
  }

  /// Asks again and again: `query`, and the communicator.
  Status waitUntil(const std::function<CUresult()> &query, const char *symbol) {
    Patience patience(seconds);
    Status closed;
    for (Waiting sinceClosed;; std::this_thread::yield()) {
      MEMOPT_RETURN_IF_ERROR(context.makeCurrent());
      int result = nccl::SUCCESS;
      if (communicator)
        MEMOPT_RETURN_IF_ERROR(
            nccl->explain(nccl->getAsyncError(communicator, &result), "ncclCommGetAsyncError"));
      if (Status status = nccl->explain(result, "ncclCommGetAsyncError"); !status.isOk())
        return giveUp(std::move(status));
      CUresult answer = query();
      if (answer != CUDA_ERROR_NOT_READY && result != nccl::IN_PROGRESS)
        return context.explain(answer, symbol);
      if (Status reason = hosts.look(); !reason.isOk())
        return giveUp(std::move(reason));
      if (!closed.isOk() && sinceClosed.getSeconds() > graceSeconds)
        return giveUp(std::move(closed));
      if (closed.isOk()) {
        closed = hosts.findClosed();
        sinceClosed = Waiting();
      }
      if (patience.isOver(hosts.countSigns()))
        return giveUp(environmentError("waited " + std::to_string(int64_t(seconds)) +
                                       " s for the devices of other ranks; "
                                       "--rank-timeout=SECONDS gives them longer"));
    }
  }

  /// Ends what the device waits for.
  Status giveUp(Status reason) {
    if (communicator)
      (void)nccl->abort(std::exchange(communicator, nullptr));
    registered.clear();
    hosts.leave(reason);
    return reason;
  }

  /// For what is still on its way from, or to, a rank that has closed.
  static constexpr double graceSeconds = 1;

  const double seconds;
  const std::unique_ptr<Nccl> nccl;
  NcclComm communicator = nullptr;
  std::vector<void *> registered;
};

} // namespace

StatusOr<std::unique_ptr<DeviceCommunicator>>
memopt::joinNccl(const CudaContext &context, Communicator &hosts, double seconds) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Nccl> library, loadNccl());
  auto ranks = std::make_unique<NcclRanks>(context, hosts, seconds, std::move(library));
  MEMOPT_RETURN_IF_ERROR(ranks->join());
  return std::unique_ptr<DeviceCommunicator>(std::move(ranks));
}
