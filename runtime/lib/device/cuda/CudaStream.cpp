//===- CudaStream.cpp - queues of a GPU -----------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaStream.h"
#include "PtxHead.h"
#include "memopt-runtime/base/Json.h"

using namespace memopt;
using namespace memopt::cuda;

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

Status CudaEvent::prepare() {
  return context.eventCreate(&event, unsigned(CU_EVENT_DISABLE_TIMING));
}

CudaEvent::~CudaEvent() {
  if (event)
    (void)context.eventDestroy(event);
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

/// Blocks have so much without being asked for more.
static constexpr int32_t usualSharedBytes = 48 << 10;

/// By the open file: at its path there may be another one by now.
CUresult CudaModule::loadFile(const InputFile &file) {
  std::string open = "/proc/self/fd/" + std::to_string(file.getDescriptor().get());
  return context.getDriver().moduleLoad(&module, open.c_str());
}

/// Code is for one chip and those of its major version behind it, and for drivers of its
/// assembler's major version.
static bool isOfOtherDevice(CUresult result) {
  return result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU;
}

Status CudaModule::loadAny(const InputFile &image, const InputFile &source) {
  MEMOPT_RETURN_IF_ERROR(context.makeCurrent());
  CUresult result = loadFile(image);
  if (isOfOtherDevice(result) && source.getDescriptor().get() >= 0) {
    if (CUresult again = loadFile(source); again != CUDA_SUCCESS)
      return explainRefusal(context, source, again);
    context.note(quote(image.getPath()) +
                 " is no code for this device and its driver, which made "
                 "code of " +
                 quote(source.getPath()) + " instead");
    return Status::ok();
  }
  return context.explain(result, "cuModuleLoad").withContext("loading " + quote(image.getPath()));
}

Status CudaModule::load(const InputFile &image, const InputFile &source,
                        const std::vector<std::string> &names) {
  MEMOPT_RETURN_IF_ERROR(loadAny(image, source));
  const std::string &path = image.getPath();
  for (const std::string &name : names) {
    CUfunction function = nullptr;
    if (Status status = context.moduleGetFunction(&function, module, name.c_str()); !status.isOk())
      return badInput(quote(path) + " has no kernel " + quote(name) + ": " + status.getMessage());
    kernels.push_back({name, function, usualSharedBytes});
  }
  return Status::ok();
}

CudaModule::~CudaModule() {
  if (module)
    (void)context.moduleUnload(module);
}

Status CudaModule::reserveShared(Kernel &kernel, int32_t bytes) {
  if (bytes <= kernel.mostSharedBytes)
    return Status::ok();
  MEMOPT_RETURN_IF_ERROR(context.funcSetAttribute(
      kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(bytes)));
  kernel.mostSharedBytes = bytes;
  return Status::ok();
}

static std::string describeLaunch(const std::string &kernel, const LaunchShape &shape) {
  return "kernel " + quote(kernel) + " with " + std::to_string(shape.blocks) + " blocks of " +
         std::to_string(shape.threads) + " threads and " + std::to_string(shape.sharedBytes) +
         " bytes of shared memory";
}

Status CudaModule::launch(CUstream stream, int32_t number, const LaunchShape &shape,
                          void *const *arguments) {
  if (number < 0 || number >= int64_t(kernels.size()))
    return badInput("there is no kernel " + std::to_string(number) + " among " +
                    std::to_string(kernels.size()));
  Kernel &kernel = kernels[size_t(number)];
  if (shape.blocks < 1 || shape.threads < 1 || shape.sharedBytes < 0)
    return badInput(describeLaunch(kernel.name, shape) + " is no launch");
  auto start = [&]() -> Status {
    MEMOPT_RETURN_IF_ERROR(reserveShared(kernel, shape.sharedBytes));
    return context.launchKernel(kernel.function, unsigned(shape.blocks), 1u, 1u,
                                unsigned(shape.threads), 1u, 1u, unsigned(shape.sharedBytes),
                                stream, const_cast<void **>(arguments),
                                static_cast<void **>(nullptr));
  };
  Status status = start();
  return status.isOk() ? Status::ok()
                       : std::move(status).withContext(describeLaunch(kernel.name, shape));
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

Status CudaGraph::instantiate(CUgraph graph, CUstream stream) {
  MEMOPT_RETURN_IF_ERROR(context.graphInstantiate(&instance, graph, 0ull));
  MEMOPT_RETURN_IF_ERROR(context.graphUpload(instance, stream));
  return context.streamSynchronize(stream);
}

CudaGraph::~CudaGraph() {
  if (instance)
    (void)context.graphExecDestroy(instance);
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

Status CudaStream::prepare() {
  MEMOPT_RETURN_IF_ERROR(context.streamCreate(&stream, unsigned(CU_STREAM_NON_BLOCKING)));
  void *word = nullptr;
  MEMOPT_RETURN_IF_ERROR(context.memHostAlloc(&word, sizeof(uint32_t), 0u));
  mark = static_cast<volatile uint32_t *>(word);
  *mark = 0;
  return Status::ok();
}

CudaStream::~CudaStream() {
  if (stream) {
    (void)context.streamSynchronize(stream);
    (void)context.streamDestroy(stream);
  }
  if (mark)
    (void)context.memFreeHost(const_cast<uint32_t *>(mark));
}

Status CudaStream::copy(Arena &to, int64_t toOffset, const Arena &from, int64_t fromOffset,
                        int64_t bytes) {
  MEMOPT_RETURN_IF_ERROR(checkCopy(to, toOffset, from, fromOffset, bytes));
  if (bytes == 0)
    return Status::ok();
  return context.memcpyAsync(toAddress(to.base() + toOffset), toAddress(from.base() + fromOffset),
                             size_t(bytes), stream);
}

Status CudaStream::record(Event &event) {
  return context.eventRecord(static_cast<CudaEvent &>(event).get(), stream);
}

Status CudaStream::waitFor(Event &event) {
  return context.streamWaitEvent(stream, static_cast<CudaEvent &>(event).get(), 0u);
}

Status CudaStream::launch(Module &module, int32_t kernel, const LaunchShape &shape,
                          void *const *arguments) {
  return static_cast<CudaModule &>(module).launch(stream, kernel, shape, arguments);
}

/// Other threads may go on to allocate: of the calling one alone such calls are refused.
Status CudaStream::beginCapture() {
  return context.streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

StatusOr<std::unique_ptr<Graph>> CudaStream::endCapture() {
  CUgraph captured = nullptr;
  MEMOPT_RETURN_IF_ERROR(context.streamEndCapture(stream, &captured));
  auto graph = std::make_unique<CudaGraph>(context);
  Status status = graph->instantiate(captured, stream);
  (void)context.graphDestroy(captured);
  MEMOPT_RETURN_IF_ERROR(std::move(status));
  return std::unique_ptr<Graph>(std::move(graph));
}

Status CudaStream::replay(Graph &graph) {
  return context.graphLaunch(static_cast<CudaGraph &>(graph).get(), stream);
}

Status CudaStream::leaveMark(uint32_t number) {
  return context.streamWriteValue32(stream, toAddress(mark), number, 0u);
}
