//===- drill.cpp - programs that use a device well and badly --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   emulator-drill KERNELS SCENARIO [FLAG...]
//
// Uses the driver as the runtime does, on kernels of Inputs/kernels.cu. A scenario prints what it
// found; an error of the driver is printed as it is and ends it with 1.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/cuda/CudaContext.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

using namespace memopt;
using namespace memopt::cuda;

namespace {

/// Ends the scenario with what a failure says.
void need(const Status &status) {
  if (status.isOk())
    return;
  std::printf("%s\n", status.getMessage().c_str());
  std::exit(1);
}

/// The driver, with what all scenarios need of it.
class Drill {
public:
  Drill(const char *image, std::set<std::string> flags) : flags(std::move(flags)) {
    auto opened = CudaContext::open();
    if (!opened.isOk())
      need(opened.takeStatus());
    context = *std::move(opened);
    need(context->moduleLoad(&module, image));
    compute = createStream();
  }

  bool has(const char *flag) const { return flags.count(flag) != 0; }

  CUstream createStream() {
    CUstream stream = nullptr;
    need(context->streamCreate(&stream, unsigned(CU_STREAM_NON_BLOCKING)));
    return stream;
  }
  CUevent createEvent() {
    CUevent event = nullptr;
    need(context->eventCreate(&event, unsigned(CU_EVENT_DISABLE_TIMING)));
    return event;
  }
  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr address = 0;
    need(context->memAlloc(&address, bytes));
    return address;
  }
  template <typename T> T *pin(size_t count) {
    void *memory = nullptr;
    need(context->memHostAlloc(&memory, count * sizeof(T), 0u));
    return static_cast<T *>(memory);
  }
  void copy(void *to, const void *from, size_t bytes, CUstream stream) {
    need(context->memcpyAsync(reinterpret_cast<CUdeviceptr>(to),
                              reinterpret_cast<CUdeviceptr>(from), bytes, stream));
  }
  void wait(CUstream stream) { need(context->streamSynchronize(stream)); }

  template <typename... Arguments>
  void launch(const char *name, unsigned blocks, unsigned threads, unsigned sharedBytes,
              Arguments... arguments) {
    CUfunction function = nullptr;
    need(context->moduleGetFunction(&function, module, name));
    void *places[] = {&arguments...};
    need(context->launchKernel(function, blocks, 1u, 1u, threads, 1u, 1u, sharedBytes, compute,
                               static_cast<void **>(places), static_cast<void **>(nullptr)));
  }

  std::unique_ptr<CudaContext> context;
  CUmodule module = nullptr;
  CUstream compute = nullptr;

private:
  std::set<std::string> flags;
};

void *at(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

//===----------------------------------------------------------------------===//
// Kernels alone
//===----------------------------------------------------------------------===//

void countWrong(int wrong, int of) { std::printf("%d of %d results are wrong\n", wrong, of); }

/// Sums of rows of small integers, which are exact in any order.
void sumRows(Drill &drill) {
  constexpr int rows = 8, columns = 1200;
  auto *x = drill.pin<float>(rows * columns), *y = drill.pin<float>(rows);
  CUdeviceptr deviceX = drill.allocate(rows * columns * 4), deviceY = drill.allocate(rows * 4);
  for (int i = 0; i < rows * columns; ++i)
    x[i] = float(i * 7 % 31 - 15);
  drill.copy(at(deviceX), x, rows * columns * 4, drill.compute);
  drill.launch(drill.has("--no-barrier") ? "sum_rows_without_barrier" : "sum_rows", rows, 96, 0,
               deviceX, deviceY, columns);
  drill.copy(y, at(deviceY), rows * 4, drill.compute);
  drill.wait(drill.compute);
  int wrong = 0;
  for (int row = 0; row < rows; ++row) {
    float sum = 0;
    for (int i = 0; i < columns; ++i)
      sum += x[row * columns + i];
    wrong += y[row] != sum;
  }
  countWrong(wrong, rows);
}

/// What each lane gets in the kernel `meet`, as PTX says.
std::vector<int> expectMeeting(int lane) {
  auto valueOf = [](int other) { return other * 10; };
  int ballot = 0;
  for (int other = 0; other < 32; other += 3)
    ballot |= int(1u << other);
  return {valueOf((lane + 5) % 32),
          valueOf(lane < 3 ? lane : lane - 3),
          valueOf(lane + 4 < 32 ? lane + 4 : lane),
          valueOf(lane ^ 6),
          valueOf(lane % 8 == 7 ? lane : lane + 1),
          ballot,
          1,
          1,
          1};
}

void meet(Drill &drill) {
  auto *out = drill.pin<int>(32 * 9);
  CUdeviceptr device = drill.allocate(32 * 9 * 4);
  drill.launch("meet", 1, 32, 0, device);
  drill.copy(out, at(device), 32 * 9 * 4, drill.compute);
  drill.wait(drill.compute);
  int wrong = 0;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 9; ++i)
      wrong += out[lane * 9 + i] != expectMeeting(lane)[size_t(i)];
  countWrong(wrong, 32 * 9);
}

void turnAround(Drill &drill) {
  constexpr int count = 256;
  auto *x = drill.pin<float>(count);
  CUdeviceptr device = drill.allocate(count * 4);
  for (int i = 0; i < count; ++i)
    x[i] = float(i);
  drill.copy(at(device), x, count * 4, drill.compute);
  drill.launch("turn_around", 1, count, drill.has("--too-little") ? 512 : count * 4, device);
  drill.copy(x, at(device), count * 4, drill.compute);
  drill.wait(drill.compute);
  int wrong = 0;
  for (int i = 0; i < count; ++i)
    wrong += x[i] != float(count - 1 - i);
  countWrong(wrong, count);
}

/// Whole numbers below 128 in 16 bits, and back from f32.
uint16_t toBrainFloat(int number) {
  float wide = float(number);
  uint32_t bits = 0;
  std::memcpy(&bits, &wide, sizeof(bits));
  return uint16_t(bits >> 16);
}
uint16_t toHalf(int number) {
  _Float16 half = _Float16(number);
  uint16_t bits = 0;
  std::memcpy(&bits, &half, sizeof(bits));
  return bits;
}

/// 16 x 16 numbers times 16 x 16, of which half is zeros, plus one.
void multiply(Drill &drill) {
  constexpr int side = 16, count = side * side;
  bool isByRows = drill.has("--rows");
  auto narrow = isByRows ? toHalf : toBrainFloat;
  auto a = [](int row, int column) { return row * 3 - column * 5; };
  auto b = [&](int row, int column) {
    return (isByRows ? row : column) < side / 2 ? row * 2 + column * 7 - 40 : 0;
  };
  auto *left = drill.pin<uint16_t>(count), *right = drill.pin<uint16_t>(count);
  auto *sums = drill.pin<float>(count);
  for (int row = 0; row < side; ++row)
    for (int column = 0; column < side; ++column) {
      left[row * side + column] = narrow(a(row, column));
      right[isByRows ? row * side + column : column * side + row] = narrow(b(row, column));
    }
  // What is not to be copied is not there.
  CUdeviceptr deviceLeft = drill.allocate(count * 2), deviceRight = drill.allocate(count);
  CUdeviceptr deviceSums = drill.allocate(count * 4);
  drill.copy(at(deviceLeft), left, count * 2, drill.compute);
  drill.copy(at(deviceRight), right, count, drill.compute);
  int waits = drill.has("--no-wait") ? 0 : drill.has("--one-group") ? 1 : 2;
  drill.launch(isByRows ? "multiply_rows" : "multiply", 1, 32, 0, deviceLeft, deviceRight,
               deviceSums, waits, int(!drill.has("--no-barrier")));
  drill.copy(sums, at(deviceSums), count * 4, drill.compute);
  drill.wait(drill.compute);
  int wrong = 0;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i) {
      int row = lane / 4 + i / 2 % 2 * 8, column = lane % 4 * 2 + i % 2 + i / 4 * 8, sum = 1;
      for (int term = 0; term < side; ++term)
        sum += a(row, term) * b(term, column);
      wrong += sums[lane * 8 + i] != float(sum);
    }
  countWrong(wrong, count);
}

void countAll(Drill &drill) {
  auto *x = drill.pin<int>(1);
  CUdeviceptr device = drill.allocate(4);
  need(drill.context->memsetD8Async(device, static_cast<unsigned char>(0), size_t(4),
                                    drill.compute));
  drill.launch("count_all", 6, 128, 0, device);
  drill.copy(x, at(device), 4, drill.compute);
  drill.wait(drill.compute);
  std::printf("%d threads were counted\n", *x);
}

/// The byte behind an allocation of 1000 bytes; then the device is lost.
void stray(Drill &drill) {
  CUdeviceptr device = drill.allocate(1000);
  drill.launch("write_at", 2, 32, 0, device, int64_t(250));
  std::printf("%s\n", drill.context->streamSynchronize(drill.compute).getMessage().c_str());
  size_t free = 0, total = 0;
  std::printf("%s\n", drill.context->memGetInfo(&free, &total).getMessage().c_str());
}

void writeTogether(Drill &drill) {
  drill.launch("all_write", 2, 32, 0, drill.allocate(128));
  drill.wait(drill.compute);
}

void partWays(Drill &drill) {
  drill.launch("part_ways", 1, 32, 0, drill.allocate(128));
  drill.wait(drill.compute);
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

/// A pipeline: one stream brings rows into two buffers in turn, another scales and sums them.
class Pipeline {
public:
  explicit Pipeline(Drill &drill) : drill(drill) {
    for (CUdeviceptr &buffer : in)
      buffer = drill.allocate(bytes);
    for (CUevent *events : {loaded, used})
      for (int i = 0; i < 2; ++i)
        events[i] = drill.createEvent();
    for (int i = 0; i < steps * count; ++i)
      host[i] = float(i * 7 % 31 - 15);
  }

  void run() {
    if (!drill.has("--graph"))
      return putIn();
    need(drill.context->streamBeginCapture(drill.compute, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUevent fork = drill.createEvent();
    need(drill.context->eventRecord(fork, drill.compute));
    need(drill.context->streamWaitEvent(load, fork, 0u));
    putIn();
    if (drill.has("--unjoined"))
      drill.copy(at(in[0]), host, bytes, load);
    if (drill.has("--synchronize"))
      std::printf("%s\n", drill.context->streamSynchronize(load).getMessage().c_str());
    if (drill.has("--allocate")) {
      CUdeviceptr more = 0;
      std::printf("%s\n", drill.context->memAlloc(&more, size_t(64)).getMessage().c_str());
    }
    CUgraph graph = nullptr;
    CUgraphExec instance = nullptr;
    need(drill.context->streamEndCapture(drill.compute, &graph));
    need(drill.context->graphInstantiate(&instance, graph, 0ull));
    if (drill.has("--stale")) // an event of the capture is no place in a stream
      std::printf("%s\n",
                  drill.context->streamWaitEvent(drill.compute, used[0], 0u).getMessage().c_str());
    for (int replay = 0; replay < 2; ++replay)
      need(drill.context->graphLaunch(instance, drill.compute));
  }

  int countWrong() const {
    int wrong = 0;
    for (int step = 0; step < steps; ++step)
      for (int row = 0; row < rows; ++row) {
        float sum = 0;
        for (int i = 0; i < columns; ++i)
          sum += 2 * host[step * count + row * columns + i];
        wrong += result[step * rows + row] != sum;
      }
    return wrong;
  }

  static constexpr int rows = 4, columns = 384, count = rows * columns, steps = 6;

private:
  void putIn() {
    for (int step = 0; step < steps; ++step) {
      int buffer = step % 2;
      if (step >= 2 && !drill.has("--no-wait"))
        need(drill.context->streamWaitEvent(load, used[buffer], 0u));
      drill.copy(at(in[buffer]), host + step * count, bytes, load);
      need(drill.context->eventRecord(loaded[buffer], load));
      need(drill.context->streamWaitEvent(drill.compute, loaded[buffer], 0u));
      drill.launch("scale", count / 128, 128, 0, in[buffer], middle, 2.0f, count);
      need(drill.context->eventRecord(used[buffer], drill.compute));
      drill.launch("sum_rows", rows, 96, 0, middle, out, columns);
      drill.copy(result + step * rows, at(out), rows * 4, drill.compute);
    }
  }

  static constexpr size_t bytes = count * 4;

  Drill &drill;
  CUstream load = drill.createStream();
  CUdeviceptr in[2], middle = drill.allocate(bytes), out = drill.allocate(rows * 4);
  CUevent loaded[2], used[2];
  float *host = drill.pin<float>(steps * count), *result = drill.pin<float>(steps * rows);
};

void pipe(Drill &drill) {
  Pipeline pipeline(drill);
  pipeline.run();
  drill.wait(drill.compute);
  countWrong(pipeline.countWrong(), Pipeline::rows * Pipeline::steps);
}

/// A host that does not wait for what it reads.
void readEarly(Drill &drill) {
  constexpr size_t bytes = 4096;
  auto *from = drill.pin<char>(bytes), *to = drill.pin<char>(bytes);
  CUdeviceptr device = drill.allocate(bytes);
  std::memset(from, 1, bytes);
  std::memset(to, 0, bytes);
  drill.copy(at(device), from, bytes, drill.compute);
  drill.copy(to, at(device), bytes, drill.compute);
  std::printf("early: %d", to[0]);
  drill.wait(drill.compute);
  std::printf(", in time: %d\n", to[0]);
}

} // namespace

int main(int argc, char **argv) {
  static const std::pair<const char *, void (*)(Drill &)> scenarios[] = {
      {"sum-rows", sumRows},   {"meet", meet},     {"turn-around", turnAround},
      {"count-all", countAll}, {"stray", stray},   {"write-together", writeTogether},
      {"part-ways", partWays}, {"pipeline", pipe}, {"read-early", readEarly},
      {"multiply", multiply},
  };
  if (argc < 3)
    return 2;
  Drill drill(argv[1], {argv + 3, argv + argc});
  for (auto [name, run] : scenarios)
    if (std::strcmp(name, argv[2]) == 0) {
      run(drill);
      return 0;
    }
  std::printf("no scenario is named '%s'\n", argv[2]);
  return 2;
}
