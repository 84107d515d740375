//===- CudaContext.h - the driver, opened for a device ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CUDA_CUDACONTEXT_H
#define MEMOPT_RUNTIME_DEVICE_CUDA_CUDACONTEXT_H

#include "memopt-runtime/base/Status.h"
#include "memopt-runtime/device/cuda/CudaDriver.h"
#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace memopt {

/// Workspaces of library calls, and so arenas, begin at multiples of this: cuBLAS demands it of
/// them.
constexpr int64_t workspaceAlignment = 256;

/// The driver's name for an address.
inline cuda::CUdeviceptr toAddress(const volatile void *pointer) {
  return reinterpret_cast<cuda::CUdeviceptr>(pointer);
}

/// NVIDIA's driver, found at run time, and the first device's primary context. The driver's
/// functions are members of the same name; each makes the context that of the calling thread, and
/// a failure names the function and what the driver says of it.
class CudaContext {
public:
  /// An Environment error that says what is missing: driver, function, version or device.
  static StatusOr<std::unique_ptr<CudaContext>> open(int64_t rank = 0);
  ~CudaContext();
  CudaContext(const CudaContext &) = delete;
  CudaContext &operator=(const CudaContext &) = delete;

#define MEMOPT_CUDA_FUNCTION(field, symbol, parameters)                                            \
  template <typename... Arguments> Status field(Arguments... arguments) const {                    \
    MEMOPT_RETURN_IF_ERROR(makeCurrent());                                                         \
    return explain(driver.field(arguments...), #symbol);                                           \
  }
#include "memopt-runtime/device/cuda/CudaDriver.def"

  const cuda::Driver &getDriver() const { return driver; }
  cuda::CUdevice getDevice() const { return device; }
  int64_t getNumber() const { return number; } ///< among the devices that this process sees
  StatusOr<int> getAttribute(cuda::CUdeviceAttribute attribute) const;

  /// An emulated driver runs library calls on the cpu.
  bool isEmulated() const { return driver.emulatedCall != nullptr; }

  /// What could not be done as it should, for who started the run; the same only once.
  void note(std::string text) const {
    if (std::find(notices.begin(), notices.end(), text) == notices.end())
      notices.push_back(std::move(text));
  }
  const std::vector<std::string> &getNotices() const { return notices; }
  /// Of the driver, "12.4".
  std::string getDriverVersion() const;

  /// Success, or what the driver says of a result of its function `symbol`.
  Status explain(cuda::CUresult result, const char *symbol) const;
  Status makeCurrent() const;

private:
  CudaContext() = default;
  Status loadDriver();
  Status openDevice(int64_t rank);

  mutable std::vector<std::string> notices;
  cuda::Driver driver{};
  cuda::CUdevice device = 0;
  int number = 0;
  cuda::CUcontext context = nullptr;
};

/// Copies between the device and memory of the host that is not pinned, by way of some that is.
/// They return when they are done; any thread may ask.
class CudaStaging {
public:
  explicit CudaStaging(const CudaContext &context) : context(context) {}
  ~CudaStaging();
  Status prepare();

  Status read(cuda::CUdeviceptr from, void *to, int64_t bytes);
  Status write(cuda::CUdeviceptr to, const void *from, int64_t bytes);
  /// Shows at most pieceBytes; allocates nothing of size, so steps may be looked at.
  Status inspect(cuda::CUdeviceptr from, int64_t bytes,
                 const std::function<void(const char *bytes)> &look);
  Status fill(cuda::CUdeviceptr to, unsigned char value, int64_t bytes);

  static constexpr int64_t pieceBytes = int64_t(1) << 20;

private:
  const CudaContext &context;
  std::mutex mutex;
  cuda::CUstream stream = nullptr;
  void *piece = nullptr; ///< pinned
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_CUDA_CUDACONTEXT_H
