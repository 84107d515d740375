//===- CudaContext.cpp - the driver, opened for a device ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaContext.h"
#include "memopt-runtime/base/DynamicLibrary.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace memopt;
using namespace memopt::cuda;

/// Of the driver, as cuDriverGetVersion gives it: CUDA 12.0.
static constexpr int kLeastDriver = 12000;

static std::string nameCudaVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

StatusOr<std::unique_ptr<CudaContext>> CudaContext::open(int64_t rank) {
  std::unique_ptr<CudaContext> context(new CudaContext());
  auto prepare = [&]() -> Status {
    MEMOPT_RETURN_IF_ERROR(context->loadDriver());
    return context->openDevice(rank);
  };
  if (Status status = prepare(); !status.isOk())
    return status.withContext("device 'cuda'");
  return context;
}

Status CudaContext::loadDriver() {
  MEMOPT_ASSIGN_OR_RETURN(void *library, openLibrary("libcuda.so.1", "the NVIDIA driver",
                                                     "; install it, or use --device=cpu"));
#define MEMOPT_CUDA_FUNCTION(field, symbol, parameters)                                            \
  if (!findSymbol(library, driver.field, #symbol))                                                 \
    return environmentError("the NVIDIA driver lacks " #symbol "; memopt needs one for CUDA " +    \
                            nameCudaVersion(kLeastDriver) + " or newer");
#include "memopt-runtime/device/cuda/CudaDriver.def"
  findSymbol(library, driver.emulatedImage, "memoptEmulatedImage");
  findSymbol(library, driver.emulatedCall, "memoptEmulatedCall");
  findSymbol(library, driver.emulatedName, "memoptEmulatedName");
  int version = 0;
  MEMOPT_RETURN_IF_ERROR(explain(driver.driverGetVersion(&version), "cuDriverGetVersion"));
  if (version < kLeastDriver)
    return environmentError("the NVIDIA driver is for CUDA " + nameCudaVersion(version) +
                            ", memopt needs one for " + nameCudaVersion(kLeastDriver) +
                            " or newer");
  return Status::ok();
}

/// Kernels are loaded with their modules: else the first launch of each would take memory, in the
/// midst of a capture.
static void loadEagerly() { ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0); }

Status CudaContext::openDevice(int64_t rank) {
  loadEagerly();
  MEMOPT_RETURN_IF_ERROR(explain(driver.init(0), "cuInit"));
  int count = 0;
  MEMOPT_RETURN_IF_ERROR(explain(driver.deviceGetCount(&count), "cuDeviceGetCount"));
  if (count < 1)
    return environmentError("the NVIDIA driver finds no device");
  if (count > 1 && rank >= count)
    return environmentError("rank " + std::to_string(rank) + " needs a device of its own, there " +
                            "are " + std::to_string(count));
  number = count > 1 ? int(rank) : 0;
  MEMOPT_RETURN_IF_ERROR(explain(driver.deviceGet(&device, number), "cuDeviceGet"));
  MEMOPT_RETURN_IF_ERROR(
      explain(driver.devicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain"));
  return Status::ok();
}

CudaContext::~CudaContext() {
  if (context)
    (void)driver.devicePrimaryCtxRelease(device);
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

Status CudaContext::makeCurrent() const {
  return explain(driver.ctxSetCurrent(context), "cuCtxSetCurrent");
}

Status CudaContext::explain(CUresult result, const char *symbol) const {
  if (result == CUDA_SUCCESS)
    return Status::ok();
  const char *name = nullptr, *text = nullptr;
  (void)driver.getErrorName(result, &name);
  (void)driver.getErrorString(result, &text);
  return environmentError(std::string(symbol) + ": " + (text ? text : "unknown error") + " (" +
                          (name ? name : "CUDA error") + ", " + std::to_string(result) + ")");
}

std::string CudaContext::getDriverVersion() const {
  int version = 0;
  (void)driver.driverGetVersion(&version);
  return nameCudaVersion(version);
}

StatusOr<int> CudaContext::getAttribute(CUdeviceAttribute attribute) const {
  int value = 0;
  MEMOPT_RETURN_IF_ERROR(
      explain(driver.deviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute"));
  return value;
}

//===----------------------------------------------------------------------===//
// Staging
//===----------------------------------------------------------------------===//

Status CudaStaging::prepare() {
  MEMOPT_RETURN_IF_ERROR(context.streamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return context.memHostAlloc(&piece, size_t(pieceBytes), 0u);
}

CudaStaging::~CudaStaging() {
  if (piece)
    (void)context.memFreeHost(piece);
  if (stream)
    (void)context.streamDestroy(stream);
}

Status CudaStaging::read(CUdeviceptr from, void *to, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  for (int64_t begin = 0; begin < bytes; begin += pieceBytes) {
    auto size = size_t(std::min(pieceBytes, bytes - begin));
    MEMOPT_RETURN_IF_ERROR(
        context.memcpyAsync(toAddress(piece), from + CUdeviceptr(begin), size, stream));
    MEMOPT_RETURN_IF_ERROR(context.streamSynchronize(stream));
    std::memcpy(static_cast<char *>(to) + begin, piece, size);
  }
  return Status::ok();
}

Status CudaStaging::inspect(CUdeviceptr from, int64_t bytes,
                            const std::function<void(const char *bytes)> &look) {
  std::lock_guard<std::mutex> lock(mutex);
  MEMOPT_RETURN_IF_ERROR(context.memcpyAsync(toAddress(piece), from, size_t(bytes), stream));
  MEMOPT_RETURN_IF_ERROR(context.streamSynchronize(stream));
  look(static_cast<const char *>(piece));
  return Status::ok();
}

Status CudaStaging::write(CUdeviceptr to, const void *from, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  for (int64_t begin = 0; begin < bytes; begin += pieceBytes) {
    auto size = size_t(std::min(pieceBytes, bytes - begin));
    std::memcpy(piece, static_cast<const char *>(from) + begin, size);
    MEMOPT_RETURN_IF_ERROR(
        context.memcpyAsync(to + CUdeviceptr(begin), toAddress(piece), size, stream));
    MEMOPT_RETURN_IF_ERROR(context.streamSynchronize(stream));
  }
  return Status::ok();
}

Status CudaStaging::fill(CUdeviceptr to, unsigned char value, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  if (bytes == 0)
    return Status::ok();
  MEMOPT_RETURN_IF_ERROR(context.memsetD8Async(to, value, size_t(bytes), stream));
  return context.streamSynchronize(stream);
}
