//===- Kernels.h - blocks of threads at work --------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kernel runs block by block in a drawn order. A block's threads run in a drawn order too, each
// until it meets others: at a barrier of the block, or in a shuffle, a vote or a barrier of its
// warp. Each access is checked: that it is within reach, and that no other thread touches the byte
// without something that orders the two.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_KERNELS_H
#define MEMOPT_EMULATOR_KERNELS_H

#include "emulator/kernels/DeviceCode.h"
#include "emulator/kernels/Fibers.h"
#include "emulator/memory/Memory.h"
#include "emulator/memory/Races.h"
#include "emulator/memory/ThreadShadow.h"

namespace memopt::emulator {

struct Launch {
  const Kernel *kernel;
  unsigned blocks[3], threads[3];
  size_t sharedBytes;                       ///< beside what the kernel declares
  std::vector<std::vector<char>> arguments; ///< values of its parameters
};

class KernelRunner {
public:
  static constexpr size_t mostSharedBytes = size_t(256) << 10;

  KernelRunner(const Memory &memory, RaceMap &races);
  ~KernelRunner();

  /// Where shared memory lies.
  void *getShared() const { return shared; }
  bool isShared(uintptr_t address) const {
    return address - reinterpret_cast<uintptr_t>(shared) < mostSharedBytes;
  }

  /// Runs all blocks; what they touch goes into the log.
  CUresult run(const Launch &launch, const std::string &name, std::mt19937_64 &random,
               AccessLog &log);

  // What device code calls; on a thread's fiber.
  int readRegister(int which) const;
  void access(uintptr_t address, size_t bytes, int flags);
  void meetBlock(int barrier);
  /// Waits for the warp's threads of a mask; the value that `combine` gives this thread.
  uint32_t meetWarp(int kind, uint32_t mask, uint32_t value, uint32_t lane, uint32_t clamp);
  void copy(uintptr_t to, uintptr_t from, size_t bytes, size_t valid);
  void closeGroup();
  /// Does the copies of all groups of the thread but the last `left`.
  void awaitGroups(size_t left);
  /// `row`: eight numbers in shared memory; `words`: the thread's of four matrices.
  void loadMatrices(int mode, uintptr_t row, uint32_t *words);
  void multiplyMatrices(int mode, uint32_t *words);
  void meetWarp(uint32_t mask) { meetWarp(warpBarrierKind, mask, 0, 0, 0); }
  uint32_t vote(int mode, uint32_t mask, uint32_t predicate) {
    return meetWarp(firstVote + mode, mask, predicate, 0, 0);
  }
  uint32_t getPredicate() const { return threads[size_t(fibers.getCurrent())].predicate; }

private:
  enum class State { Runs, AtBarrier, InWarp, Done };
  /// Kinds of meetings of a warp: shuffles, then votes, barriers and instructions on matrices.
  enum { firstVote = 16, warpBarrierKind = 32, firstLoad = 40, firstProduct = 48 };
  struct Thread {
    State state;
    int kind;      ///< of what it waits for: a barrier's number, or of a meeting of its warp
    uint32_t mask; ///< of a meeting
    uint32_t value, lane, clamp, predicate;
    uintptr_t row = 0; ///< of a matrix that the warp loads
    uint32_t *words = nullptr;
  };
  struct Copy {
    uintptr_t to, from;
    size_t bytes, valid;
  };
  /// What has been asked for and not been done: groups, the last of which is open.
  using Copies = std::vector<std::vector<Copy>>;

  static void runThread();
  CUresult runBlock(std::mt19937_64 &random);
  bool release();
  bool releaseBlock();
  bool releaseWarp(int warp);
  void exchange(int warp, uint32_t mask);
  uint32_t shuffle(int first, int thread, const std::vector<uint32_t> &values);
  uint32_t countVotes(int first, int thread, const std::vector<uint32_t> &values) const;
  /// Meets the whole warp for an instruction on matrices.
  void meetAtMatrices(int kind, uintptr_t row, uint32_t *words);
  void shareRows(int first, bool isTransposed);
  void multiply(int first, bool isBrainFloat);
  /// Takes note of what a thread does to memory, and reports whom it meets there.
  void touch(uint32_t thread, uintptr_t address, size_t bytes, bool isWrite, bool isShared);
  bool isInside(uintptr_t address, size_t bytes);
  bool isMember(int thread, uint32_t mask) const { return mask >> thread % warpThreads & 1; }
  void fail(CUresult error, const std::string &message);
  std::string nameThread() const;

  static constexpr int warpThreads = 32;

  const Memory &memory;
  RaceMap &races;
  Fibers fibers;
  ThreadShadow shadow;
  char *shared;

  // Of the kernel that runs.
  const Launch *launch = nullptr;
  const std::string *name = nullptr;
  AccessLog *log = nullptr;
  std::vector<void *> arguments;
  std::vector<Thread> threads;
  std::vector<Copies> copies; ///< of each thread
  unsigned block[3] = {};
  int count = 0; ///< threads of a block
  size_t sharedBytes = 0;
  std::pair<uintptr_t, uintptr_t> reachable; ///< around the last access to memory of the device
  CUresult failure = cuda::CUDA_SUCCESS;
};

/// The one that runs: device code has no other way to find it.
extern KernelRunner *runningKernel;

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_KERNELS_H
