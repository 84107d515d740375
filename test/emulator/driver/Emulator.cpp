//===- Emulator.cpp - an emulated device and its driver -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/driver/Emulator.h"
#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>

using namespace memopt::emulator;

static std::string readVariable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// The description asked for, or the one beside the library.
static std::string findDescription() {
  if (std::string path = readVariable(deviceVariable); !path.empty())
    return path;
  Dl_info self;
  if (!::dladdr(reinterpret_cast<void *>(&cuInit), &self))
    return "device.json";
  std::string library = self.dli_fname;
  return library.substr(0, library.rfind('/') + 1) + "device.json";
}

/// Never destroyed: threads may call the driver until the process ends.
Emulator &Emulator::get() {
  static auto *emulator = new Emulator(findDescription());
  return *emulator;
}

Emulator::Emulator(const std::string &devicePath)
    : description(Description::read(devicePath)),
      faults(Faults::parse(readVariable(faultsVariable))), memory(description.totalBytes),
      timeline(std::strtoull(readVariable(seedVariable).c_str(), nullptr, 10)),
      races(
          timeline, [this](uintptr_t address) { return locate(address); },
          readVariable(racesVariable)),
      runner(memory, races) {
  timeline.onSettled = [this] { races.forget(); };
}

std::pair<std::string, uint64_t> Emulator::locate(uintptr_t address) const {
  if (!runner.isShared(address))
    return memory.locate(address);
  return {"shared memory", address - reinterpret_cast<uintptr_t>(runner.getShared())};
}

OperationId Emulator::submit(const Task &task, const std::vector<OperationId> &dependencies) {
  auto work = [this, run = task.run](Operation &operation) {
    if (!run)
      return CUDA_SUCCESS;
    Memory::Open open(memory);
    AccessLog log;
    CUresult result = run(log, timeline.getRandom(), operation.name);
    races.check(operation, log.take());
    return result;
  };
  return timeline.submit(task.name, work, dependencies);
}

CUresult Emulator::enqueue(CUstream stream, Task task) {
  if (!stream)
    return CUDA_ERROR_NOT_SUPPORTED; // the legacy stream, which the runtime never uses
  if (Capture *capture = stream->capture.get()) {
    capture->nodes.push_back({std::move(task), stream->captureTail});
    stream->captureTail = {capture->nodes.size() - 1};
    return CUDA_SUCCESS;
  }
  stream->tail = {submit(task, stream->tail)};
  return CUDA_SUCCESS;
}

CUresult Emulator::wait(const std::vector<OperationId> &goals) {
  return lost = timeline.finish(goals);
}

CUresult Emulator::query(const std::vector<OperationId> &goals) {
  lost = timeline.advance();
  if (lost)
    return lost;
  bool isDone =
      std::all_of(goals.begin(), goals.end(), [&](OperationId id) { return timeline.isDone(id); });
  return isDone ? wait(goals) : CUDA_ERROR_NOT_READY;
}

CUresult Emulator::refuseCapture() {
  bool isRefused = false;
  for (const std::weak_ptr<Capture> &place : captures)
    if (auto capture = place.lock(); capture && !capture->isEnded && !capture->isRelaxed &&
                                     capture->thread == std::this_thread::get_id())
      isRefused = capture->isBroken = true;
  return isRefused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
