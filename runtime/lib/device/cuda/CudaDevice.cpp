//===- CudaDevice.cpp - an NVIDIA GPU as a device -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaDevice.h"
#include "CudaArena.h"
#include "CudaRanks.h"
#include "memopt-runtime/device/cuda/CudaLibraries.h"
#include "memopt-runtime/device/cuda/CudaStream.h"
#include "memopt-runtime/interface/ProgramInterface.h"

using namespace memopt;

namespace {

class CudaDevice final : public Device {
public:
  explicit CudaDevice(std::unique_ptr<CudaContext> opened)
      : context(std::move(opened)), staging(*context), libraries(*context) {}

  Status prepare() {
    MEMOPT_ASSIGN_OR_RETURN(contextBytes, getTakenBytes());
    MEMOPT_ASSIGN_OR_RETURN(chip, getCudaChip(*context));
    return staging.prepare();
  }

  std::string getName() const override { return "cuda"; }
  std::string getChip() const override { return chip; }
  int64_t getNumber() const override { return context->getNumber(); }
  StatusOr<int64_t> getTakenBytes() const override {
    size_t free = 0, total = 0;
    MEMOPT_RETURN_IF_ERROR(context->memGetInfo(&free, &total));
    return int64_t(total - free);
  }
  int64_t getContextBytes() const override { return contextBytes; }
  std::vector<std::string> getNotices() const override { return context->getNotices(); }

  StatusOr<std::string> describe() const override { return describeCudaDevice(*context); }

  StatusOr<std::unique_ptr<Arena>> allocate(int space, int64_t bytes, bool isChecked) override {
    return space == MEMOPT_SPACE_DEVICE ? CudaArena::allocate(*context, staging, bytes, isChecked)
                                        : allocatePinned(*context, bytes, isChecked);
  }

  StatusOr<std::unique_ptr<Stream>> createStream(int64_t capacity) override {
    if (capacity < 1)
      return badInput("a stream needs room for at least one task");
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<CudaStream> stream, make<CudaStream>());
    return std::unique_ptr<Stream>(std::move(stream));
  }

  StatusOr<std::unique_ptr<Event>> createEvent() override {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<CudaEvent> event, make<CudaEvent>());
    return std::unique_ptr<Event>(std::move(event));
  }

  StatusOr<std::unique_ptr<ComputeStream>> createComputeStream() override {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<CudaStream> stream, make<CudaStream>());
    return std::unique_ptr<ComputeStream>(std::move(stream));
  }

  StatusOr<std::unique_ptr<Module>> loadModule(const InputFile &image, const InputFile &source,
                                               const std::vector<std::string> &kernels) override {
    auto module = std::make_unique<CudaModule>(*context);
    MEMOPT_RETURN_IF_ERROR(module->load(image, source, kernels));
    return std::unique_ptr<Module>(std::move(module));
  }

  StatusOr<std::unique_ptr<DeviceCall>> createCall(const nlohmann::json &descriptor, int threads,
                                                   const LibraryCallFactory &reference) override {
    return createCudaCall(libraries, descriptor, threads, reference);
  }

  StatusOr<std::unique_ptr<DeviceCommunicator>> joinRanks(Communicator &hosts,
                                                          double seconds) override {
    return context->isEmulated() ? joinEmulated(*context, hosts)
                                 : joinNccl(*context, hosts, seconds);
  }

private:
  /// What is made first and then asked of the driver.
  template <typename T> StatusOr<std::unique_ptr<T>> make() {
    auto made = std::make_unique<T>(*context);
    MEMOPT_RETURN_IF_ERROR(made->prepare());
    return made;
  }

  std::unique_ptr<CudaContext> context;
  CudaStaging staging;
  CudaLibraries libraries;
  std::string chip;
  int64_t contextBytes = 0;
};

} // namespace

StatusOr<std::unique_ptr<Device>> memopt::openCudaDevice(int64_t rank) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context, CudaContext::open(rank));
  auto device = std::make_unique<CudaDevice>(std::move(context));
  MEMOPT_RETURN_IF_ERROR(device->prepare());
  return std::unique_ptr<Device>(std::move(device));
}
