//===- CudaStream.h - queues of a GPU ---------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CUDA_CUDASTREAM_H
#define MEMOPT_RUNTIME_DEVICE_CUDA_CUDASTREAM_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/device/cuda/CudaContext.h"
#include <vector>

namespace memopt {

class CudaEvent final : public Event {
public:
  explicit CudaEvent(const CudaContext &context) : context(context) {}
  ~CudaEvent() override;
  Status prepare();

  Status synchronize() override { return context.eventSynchronize(event); }
  cuda::CUevent get() const { return event; }

private:
  const CudaContext &context;
  cuda::CUevent event = nullptr;
};

class CudaModule final : public Module {
public:
  explicit CudaModule(const CudaContext &context) : context(context) {}
  ~CudaModule() override;
  /// Of `image`, or where the driver refuses its code, of the PTX in `source`.
  Status load(const InputFile &image, const InputFile &source,
              const std::vector<std::string> &names);

  /// Puts a kernel into a stream.
  Status launch(cuda::CUstream stream, int32_t kernel, const LaunchShape &shape,
                void *const *arguments);

private:
  struct Kernel {
    std::string name;
    cuda::CUfunction function;
    int32_t mostSharedBytes; ///< that launches may ask for
  };

  Status loadAny(const InputFile &image, const InputFile &source);
  cuda::CUresult loadFile(const InputFile &file);
  Status reserveShared(Kernel &kernel, int32_t bytes);

  const CudaContext &context;
  cuda::CUmodule module = nullptr;
  std::vector<Kernel> kernels;
};

class CudaGraph final : public Graph {
public:
  explicit CudaGraph(const CudaContext &context) : context(context) {}
  ~CudaGraph() override;
  /// Makes what was captured ready to run, and takes the memory for it.
  Status instantiate(cuda::CUgraph graph, cuda::CUstream stream);

  cuda::CUgraphExec get() const { return instance; }

private:
  const CudaContext &context;
  cuda::CUgraphExec instance = nullptr;
};

/// A stream of the driver has room for any number of tasks.
class CudaStream final : public ComputeStream {
public:
  explicit CudaStream(const CudaContext &context) : context(context) {}
  ~CudaStream() override;
  Status prepare();

  Status copy(Arena &to, int64_t toOffset, const Arena &from, int64_t fromOffset,
              int64_t bytes) override;
  Status record(Event &event) override;
  Status waitFor(Event &event) override;
  Status synchronize() override { return context.streamSynchronize(stream); }
  Status launch(Module &module, int32_t kernel, const LaunchShape &shape,
                void *const *arguments) override;
  Status beginCapture() override;
  StatusOr<std::unique_ptr<Graph>> endCapture() override;
  Status replay(Graph &graph) override;
  Status leaveMark(uint32_t number) override;
  uint32_t getMark() const override { return *mark; }

  cuda::CUstream get() const { return stream; }

private:
  const CudaContext &context;
  cuda::CUstream stream = nullptr;
  volatile uint32_t *mark = nullptr; ///< pinned: it outlasts a device that is lost
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_CUDA_CUDASTREAM_H
