//===- Emulator.h - an emulated device and its driver -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All state of the emulator: one device, made when it is first asked for. Calls of the driver come
// from any thread and are done one at a time; what runs, runs on the thread that waits for it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_EMULATOR_H
#define MEMOPT_EMULATOR_EMULATOR_H

#include "emulator/kernels/Kernels.h"
#include <mutex>
#include <thread>

namespace memopt::cuda {

struct CUmod_st {
  std::unique_ptr<emulator::DeviceCode> code;
  size_t bytes; ///< of the device's memory, for the code
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

struct CUfunc_st {
  const emulator::Kernel *kernel;
  size_t mostSharedBytes; ///< that a launch may ask for
};

} // namespace memopt::cuda

namespace memopt::emulator {

/// What a stream is given: an operation that is put in now, or a node of a graph that is captured.
struct Task {
  std::string name;
  std::function<CUresult(AccessLog &, std::mt19937_64 &, const std::string &name)> run;
};

struct Node {
  Task task;
  std::vector<size_t> dependencies; ///< indices of nodes
};

struct Capture {
  std::vector<Node> nodes;
  std::vector<cuda::CUstream> streams; ///< that take part, the first where it began
  std::thread::id thread;
  bool isRelaxed, isBroken = false, isEnded = false;
};

} // namespace memopt::emulator

namespace memopt::cuda {

struct CUstream_st {
  std::vector<emulator::OperationId> tail; ///< what the next operation waits for
  std::shared_ptr<emulator::Capture> capture;
  std::vector<size_t> captureTail;
};

struct CUevent_st {
  std::vector<emulator::OperationId> place; ///< what stood before it when it was recorded
  std::shared_ptr<emulator::Capture> capture;
  std::vector<size_t> capturePlace;
};

struct CUgraph_st {
  std::vector<emulator::Node> nodes;
};

struct CUgraphExec_st {
  std::vector<emulator::Node> nodes;
  size_t bytes; ///< of the device's memory
};

} // namespace memopt::cuda

namespace memopt::emulator {

class Emulator {
public:
  static Emulator &get();

  Emulator(const std::string &devicePath);

  /// Puts a task behind all that is in a stream, or into the graph that it captures.
  CUresult enqueue(cuda::CUstream stream, Task task);
  /// The same behind given operations.
  OperationId submit(const Task &task, const std::vector<OperationId> &dependencies);
  /// The host waits.
  CUresult wait(const std::vector<OperationId> &goals);
  /// Whether all is done; asking again and again gets there.
  CUresult query(const std::vector<OperationId> &goals);
  /// Calls that a graph under construction does not allow break it.
  CUresult refuseCapture();
  /// What holds an address, and the offset there.
  std::pair<std::string, uint64_t> locate(uintptr_t address) const;

  std::mutex mutex;
  CUresult lost = cuda::CUDA_SUCCESS; ///< what every call answers from now on
  Description description;
  Faults faults;
  Memory memory;
  Timeline timeline;
  RaceMap races;
  KernelRunner runner;
  std::vector<std::weak_ptr<Capture>> captures;
  int contextUsers = 0;
};

/// Does a call of the driver: alone, unless the device is lost or the test wants it to fail.
template <typename Body> CUresult enter(const char *function, Body body) {
  Emulator &emulator = Emulator::get();
  std::lock_guard<std::mutex> lock(emulator.mutex);
  if (emulator.lost)
    return emulator.lost;
  if (CUresult error = emulator.faults.count(function))
    return error;
  return body(emulator);
}

} // namespace memopt::emulator

// The driver's functions, as the runtime's table has them.
using namespace memopt::cuda;
extern "C" {
#define MEMOPT_CUDA_FUNCTION(field, symbol, parameters)                                            \
  __attribute__((visibility("default"))) CUresult symbol parameters;
#include "memopt-runtime/device/cuda/CudaDriver.def"
}

#endif // MEMOPT_EMULATOR_EMULATOR_H
