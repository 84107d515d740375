//===- CudaCalls.cpp - library calls in streams of a GPU ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Products are cuBLASLt's and convolutions cuDNN's. On an emulated device the cpu's call does the
// work, in the order of the stream and on the device's memory, and every buffer of it counts as
// touched.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/device/cuda/CudaDevice.h"
#include "memopt-runtime/device/cuda/CudaLibraries.h"
#include "memopt-runtime/device/cuda/CudaStream.h"
#include <algorithm>

using namespace memopt;
using namespace memopt::cuda;

namespace {

class EmulatedDeviceCall final : public DeviceCall {
public:
  EmulatedDeviceCall(const CudaContext &context, std::unique_ptr<LibraryCall> call,
                     std::vector<int64_t> alignments)
      : context(context), call(std::move(call)), alignments(std::move(alignments)) {
    size_t count = this->call->getBuffers().size();
    this->alignments.resize(count, 1);
    accesses.resize(count + 1); // the workspace
  }

  int64_t workspaceBytes() const override { return call->workspaceBytes(); }
  int getTeam() const override { return call->getTeam(); }

  /// On buffers of the host, all of which but the workspace may lie in one place.
  Status warmUp(ComputeStream &, void *const *, ThreadPool &threads) override {
    int64_t largest = 0, workspace = call->workspaceBytes();
    for (const BufferUse &use : call->getBuffers())
      largest = std::max(largest, use.bytes);
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Arena> scratch,
                            HostArena::allocate((workspace + 63) / 64 * 64 + largest, false));
    std::vector<void *> buffers(call->getBuffers().size(),
                                scratch->base() + (workspace + 63) / 64 * 64);
    buffers.push_back(scratch->base());
    return call->warmUp(buffers.data(), threads);
  }

  Status start(ComputeStream &stream, void *const *buffers, ThreadPool &threads) override {
    pool = &threads;
    const std::vector<BufferUse> &uses = call->getBuffers();
    for (size_t i = 0; i < uses.size(); ++i)
      accesses[i] = {buffers[i], uses[i].bytes, uses[i].isWritten, int32_t(alignments[i])};
    size_t count = uses.size();
    if (call->workspaceBytes())
      accesses[count++] = {buffers[uses.size()], call->workspaceBytes(), 1,
                           int32_t(workspaceAlignment)};
    return context.explain(context.getDriver().emulatedCall(static_cast<CudaStream &>(stream).get(),
                                                            call->implementation().c_str(), &run,
                                                            this, buffers, uses.size() + 1,
                                                            accesses.data(), count),
                           "memoptEmulatedCall");
  }

private:
  static CUresult run(void *object, void *const *buffers) {
    auto &self = *static_cast<EmulatedDeviceCall *>(object);
    return self.call->run(buffers, *self.pool).isOk() ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
  }

  const CudaContext &context;
  std::unique_ptr<LibraryCall> call;
  std::vector<int64_t> alignments; ///< of the buffers, as the package promises them
  std::vector<EmulatedAccess> accesses;
  ThreadPool *pool = nullptr;
};

} // namespace

/// Of operands and results, where the package has them.
static StatusOr<std::vector<int64_t>> readAlignments(const nlohmann::json &descriptor) {
  std::vector<int64_t> alignments;
  for (const char *key : {"operand_alignments", "result_alignments"})
    if (descriptor.contains(key)) {
      MEMOPT_ASSIGN_OR_RETURN(JsonView list, JsonView(descriptor).get(key));
      MEMOPT_ASSIGN_OR_RETURN(std::vector<int64_t> some, list.asIntegers());
      alignments.insert(alignments.end(), some.begin(), some.end());
    }
  for (int64_t bytes : alignments)
    if (bytes < 1 || bytes > workspaceAlignment)
      return badInput("an alignment of " + std::to_string(bytes) + " bytes, expected 1 to " +
                      std::to_string(workspaceAlignment));
  return alignments;
}

static StatusOr<std::unique_ptr<DeviceCall>>
createEmulatedCall(const CudaContext &context, const nlohmann::json &descriptor, int threads,
                   const LibraryCallFactory &reference) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<LibraryCall> call, reference(descriptor, threads));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<int64_t> alignments, readAlignments(descriptor));
  return std::unique_ptr<DeviceCall>(
      std::make_unique<EmulatedDeviceCall>(context, std::move(call), std::move(alignments)));
}

StatusOr<std::unique_ptr<DeviceCall>> memopt::createCudaCall(CudaLibraries &libraries,
                                                             const nlohmann::json &descriptor,
                                                             int threads,
                                                             const LibraryCallFactory &reference) {
  if (libraries.getContext().isEmulated())
    return createEmulatedCall(libraries.getContext(), descriptor, threads, reference);
  MEMOPT_ASSIGN_OR_RETURN(std::string kind, JsonView(descriptor).getString("kind"));
  if (kind == "matmul")
    return createCublasCall(libraries, descriptor);
  if (kind.rfind("convolution_", 0) == 0)
    return createCudnnCall(libraries, descriptor);
  return environmentError("a library call of kind " + quote(kind) +
                          " has no library on a GPU; compile the model for the device again");
}
