//===- DriverStreams.cpp - streams, events, graphs ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/driver/Emulator.h"
#include <algorithm>
#include <cstring>

using namespace memopt::emulator;

//===----------------------------------------------------------------------===//
// Streams and events
//===----------------------------------------------------------------------===//

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  return enter("cuStreamCreate", [&](Emulator &) {
    if (flags != CU_STREAM_NON_BLOCKING)
      return CUDA_ERROR_NOT_SUPPORTED; // those that wait for the legacy stream
    *stream = new CUstream_st();
    return CUDA_SUCCESS;
  });
}

/// What is in it is still done.
CUresult cuStreamDestroy_v2(CUstream stream) {
  return enter("cuStreamDestroy_v2", [&](Emulator &) {
    delete stream;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return enter("cuStreamSynchronize", [&](Emulator &emulator) {
    if (stream->capture) {
      stream->capture->isBroken = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return emulator.wait(stream->tail);
  });
}

CUresult cuStreamQuery(CUstream stream) {
  return enter("cuStreamQuery", [&](Emulator &emulator) {
    if (stream->capture) {
      stream->capture->isBroken = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return emulator.query(stream->tail);
  });
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  return enter("cuEventCreate", [&](Emulator &) {
    *event = new CUevent_st();
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent event) {
  return enter("cuEventDestroy_v2", [&](Emulator &) {
    delete event;
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return enter("cuEventRecord", [&](Emulator &) {
    *event = {stream->tail, stream->capture, stream->captureTail};
    return CUDA_SUCCESS;
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return enter("cuEventSynchronize", [&](Emulator &emulator) {
    return event->capture ? CUDA_ERROR_CAPTURED_EVENT : emulator.wait(event->place);
  });
}

CUresult cuEventQuery(CUevent event) {
  return enter("cuEventQuery", [&](Emulator &emulator) {
    return event->capture ? CUDA_ERROR_CAPTURED_EVENT : emulator.query(event->place);
  });
}

/// A stream that waits for an event of a capture joins it.
static CUresult waitInCapture(CUstream stream, CUevent event) {
  if (event->capture->isEnded)
    return CUDA_ERROR_CAPTURED_EVENT; // a place in a graph, and none in a stream
  if (!stream->capture) {
    stream->capture = event->capture;
    stream->captureTail.clear();
    event->capture->streams.push_back(stream);
  } else if (stream->capture != event->capture) {
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  std::vector<size_t> &tail = stream->captureTail;
  tail.insert(tail.end(), event->capturePlace.begin(), event->capturePlace.end());
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return enter("cuStreamWaitEvent", [&](Emulator &) {
    if (event->capture)
      return waitInCapture(stream, event);
    if (stream->capture) {
      stream->capture->isBroken = true;
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    stream->tail.insert(stream->tail.end(), event->place.begin(), event->place.end());
    return CUDA_SUCCESS;
  });
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

static Task makeCopy(const char *name, uintptr_t to, uintptr_t from, size_t bytes) {
  return {name, [=](AccessLog &log, std::mt19937_64 &, const std::string &) {
            std::memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
            log.add(from, bytes, /*isWrite=*/false);
            log.add(to, bytes, /*isWrite=*/true);
            return CUDA_SUCCESS;
          }};
}

/// Pageable memory is read, or written, before the call returns: the driver stages it.
static CUresult copyPageable(Emulator &emulator, CUstream stream, uintptr_t to, uintptr_t from,
                             size_t bytes, bool isFromPageable) {
  if (stream->capture) {
    stream->capture->isBroken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (!isFromPageable) {
    if (CUresult result =
            emulator.enqueue(stream, makeCopy("copy to pageable memory", to, from, bytes)))
      return result;
    return emulator.wait(stream->tail);
  }
  auto *source = reinterpret_cast<const char *>(from);
  auto staged = std::make_shared<std::vector<char>>(source, source + bytes);
  return emulator.enqueue(
      stream,
      {"copy from pageable memory", [=](AccessLog &log, std::mt19937_64 &, const std::string &) {
         std::memcpy(reinterpret_cast<void *>(to), staged->data(), bytes);
         log.add(to, bytes, /*isWrite=*/true);
         return CUDA_SUCCESS;
       }});
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return enter("cuMemcpyAsync", [&](Emulator &emulator) {
    const Memory &memory = emulator.memory;
    bool isToDevice = memory.isDevice(to), isFromDevice = memory.isDevice(from);
    for (auto [address, isDevice] : {std::pair(to, isToDevice), std::pair(from, isFromDevice)})
      if (isDevice && !memory.isReachable(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    bool isFromPageable = !isFromDevice && !memory.isPinned(from, bytes),
         isToPageable = !isToDevice && !memory.isPinned(to, bytes);
    if (isFromPageable || isToPageable)
      return copyPageable(emulator, stream, to, from, bytes, isFromPageable);
    const char *name = isFromDevice ? (isToDevice ? "copy on the device" : "copy to the host")
                                    : (isToDevice ? "copy from the host" : "copy on the host");
    return emulator.enqueue(stream, makeCopy(name, to, from, bytes));
  });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return enter("cuMemsetD8Async", [&](Emulator &emulator) {
    if (!emulator.memory.isReachable(to, bytes))
      return CUDA_ERROR_INVALID_VALUE;
    return emulator.enqueue(stream,
                            {"fill", [=](AccessLog &log, std::mt19937_64 &, const std::string &) {
                               std::memset(reinterpret_cast<void *>(to), value, bytes);
                               log.add(to, bytes, /*isWrite=*/true);
                               return CUDA_SUCCESS;
                             }});
  });
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                 unsigned flags) {
  return enter("cuStreamWriteValue32_v2", [&](Emulator &emulator) {
    if (address % 4 || !emulator.memory.isReachable(address, 4))
      return CUDA_ERROR_INVALID_VALUE;
    return emulator.enqueue(
        stream, {"write a number", [=](AccessLog &log, std::mt19937_64 &, const std::string &) {
                   std::memcpy(reinterpret_cast<void *>(address), &value, 4);
                   log.add(address, 4, /*isWrite=*/true);
                   return CUDA_SUCCESS;
                 }});
  });
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return enter("cuStreamBeginCapture_v2", [&](Emulator &emulator) {
    if (stream->capture)
      return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
      return CUDA_ERROR_NOT_SUPPORTED; // it would concern threads of others
    stream->capture = std::make_shared<Capture>();
    stream->capture->streams = {stream};
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->isRelaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    stream->captureTail.clear();
    emulator.captures.push_back(stream->capture);
    return CUDA_SUCCESS;
  });
}

/// Whether all that was captured is an ancestor of where the capture ends.
static bool isJoined(const Capture &capture, const std::vector<size_t> &tail) {
  std::vector<char> isReached(capture.nodes.size());
  std::vector<size_t> waiting = tail;
  while (!waiting.empty()) {
    size_t node = waiting.back();
    waiting.pop_back();
    if (isReached[node])
      continue;
    isReached[node] = 1;
    const std::vector<size_t> &more = capture.nodes[node].dependencies;
    waiting.insert(waiting.end(), more.begin(), more.end());
  }
  return std::find(isReached.begin(), isReached.end(), 0) == isReached.end();
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  return enter("cuStreamEndCapture", [&](Emulator &) {
    std::shared_ptr<Capture> capture = stream->capture;
    if (!capture || capture->streams[0] != stream)
      return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    bool isWhole = isJoined(*capture, stream->captureTail);
    capture->isEnded = true;
    for (CUstream member : capture->streams) {
      member->capture.reset();
      member->captureTail.clear();
    }
    if (capture->isBroken)
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!isWhole)
      return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = new CUgraph_st{std::move(capture->nodes)};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *instance, CUgraph graph,
                                     unsigned long long flags) {
  return enter("cuGraphInstantiateWithFlags", [&](Emulator &emulator) {
    if (CUresult refusal = emulator.refuseCapture())
      return refusal;
    size_t bytes = graph->nodes.size() * Memory::nodeBytes;
    if (CUresult refusal = emulator.memory.take(bytes))
      return refusal;
    *instance = new CUgraphExec_st{graph->nodes, bytes};
    return CUDA_SUCCESS;
  });
}

/// Takes nothing more: an instance has its memory.
CUresult cuGraphUpload(CUgraphExec instance, CUstream stream) {
  return enter("cuGraphUpload", [&](Emulator &) {
    return stream->capture ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  });
}

CUresult cuGraphLaunch(CUgraphExec instance, CUstream stream) {
  return enter("cuGraphLaunch", [&](Emulator &emulator) {
    if (stream->capture)
      return CUDA_ERROR_NOT_SUPPORTED; // a graph inside another
    std::vector<OperationId> numbers;
    for (const Node &node : instance->nodes) {
      std::vector<OperationId> before =
          node.dependencies.empty() ? stream->tail : std::vector<OperationId>();
      for (size_t dependency : node.dependencies)
        before.push_back(numbers[dependency]);
      numbers.push_back(emulator.submit(node.task, before));
    }
    numbers.insert(numbers.end(), stream->tail.begin(), stream->tail.end());
    stream->tail = {emulator.submit({"end of a graph", nullptr}, numbers)};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec instance) {
  return enter("cuGraphExecDestroy", [&](Emulator &emulator) {
    emulator.memory.giveBack(instance->bytes);
    delete instance;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return enter("cuGraphDestroy", [&](Emulator &) {
    delete graph;
    return CUDA_SUCCESS;
  });
}
