//===- Kernels.cpp - blocks of threads at work ----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/kernels/Kernels.h"
#include "emulator/kernels/DeviceFunctions.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sys/mman.h>

using namespace memopt::emulator;
using namespace memopt::cuda;

KernelRunner *memopt::emulator::runningKernel = nullptr;

/// What stands where nobody has written: a number of no use, and a quiet NaN.
static constexpr uint32_t poison = 0x7fc0dead;

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

KernelRunner::KernelRunner(const Memory &memory, RaceMap &races) : memory(memory), races(races) {
  void *room =
      ::mmap(nullptr, mostSharedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  shared = room == MAP_FAILED ? nullptr : static_cast<char *>(room);
  fibers.start(1024, &KernelRunner::runThread); // room for the largest block, before any runs
}

KernelRunner::~KernelRunner() {
  if (shared)
    ::munmap(shared, mostSharedBytes);
}

void KernelRunner::runThread() {
  KernelRunner &runner = *runningKernel;
  runner.launch->kernel->run(runner.arguments.data());
  runner.closeGroup();
  runner.awaitGroups(0);
  runner.threads[size_t(runner.fibers.getCurrent())].state = State::Done;
  runner.fibers.yield();
  std::abort(); // who is done is not resumed
}

CUresult KernelRunner::run(const Launch &what, const std::string &operation,
                           std::mt19937_64 &random, AccessLog &touched) {
  launch = &what;
  name = &operation;
  log = &touched;
  runningKernel = this;
  failure = CUDA_SUCCESS;
  reachable = {0, 0};
  count = int(what.threads[0] * what.threads[1] * what.threads[2]);
  sharedBytes = what.kernel->sharedBytes + what.sharedBytes;
  arguments.clear();
  for (const std::vector<char> &value : what.arguments)
    arguments.push_back(const_cast<char *>(value.data()));
  shadow.beginKernel();
  std::vector<uint64_t> order(uint64_t(what.blocks[0]) * what.blocks[1] * what.blocks[2]);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (uint64_t number : order) {
    block[0] = unsigned(number % what.blocks[0]);
    block[1] = unsigned(number / what.blocks[0] % what.blocks[1]);
    block[2] = unsigned(number / what.blocks[0] / what.blocks[1]);
    if (CUresult result = runBlock(random))
      return result;
  }
  return CUDA_SUCCESS;
}

CUresult KernelRunner::runBlock(std::mt19937_64 &random) {
  for (size_t i = 0; i + 4 <= sharedBytes; i += 4)
    std::memcpy(shared + i, &poison, 4);
  threads.assign(size_t(count), Thread{State::Runs, 0, 0, 0, 0, 0, 0});
  copies.assign(size_t(count), Copies(1));
  fibers.start(count, &KernelRunner::runThread);
  shadow.beginBlock(count);
  std::vector<int> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  auto isDone = [](const Thread &thread) { return thread.state == State::Done; };
  while (!std::all_of(threads.begin(), threads.end(), isDone)) {
    std::shuffle(order.begin(), order.end(), random);
    for (int thread : order)
      if (threads[size_t(thread)].state == State::Runs) {
        fibers.resume(thread);
        if (failure)
          return failure; // the fibers are left where they are
      }
    if (!release()) {
      fail(CUDA_ERROR_LAUNCH_FAILED,
           "threads wait for each other in vain: not all that a barrier or mask names get there");
      return failure;
    }
  }
  return CUDA_SUCCESS;
}

/// Lets go on who has met all that it waits for; false when nobody may, though some are left.
bool KernelRunner::release() {
  bool isAnyFree = false, isAnyLeft = false;
  for (int first = 0; first < count; first += warpThreads)
    isAnyFree |= releaseWarp(first);
  isAnyFree |= releaseBlock();
  for (const Thread &thread : threads)
    isAnyLeft |= thread.state != State::Done;
  return isAnyFree || !isAnyLeft;
}

/// Threads that have ended count as there, as on the device.
bool KernelRunner::releaseBlock() {
  int barrier = -1;
  for (const Thread &thread : threads) {
    if (thread.state == State::Done)
      continue;
    if (thread.state != State::AtBarrier || (barrier >= 0 && thread.kind != barrier))
      return false;
    barrier = thread.kind;
  }
  if (barrier < 0)
    return false;
  for (Thread &thread : threads)
    if (thread.state == State::AtBarrier)
      thread.state = State::Runs;
  shadow.passBlockBarrier();
  return true;
}

bool KernelRunner::releaseWarp(int first) {
  bool isAnyFree = false;
  int end = std::min(first + warpThreads, count);
  for (int thread = first; thread < end; ++thread) {
    const Thread &leader = threads[size_t(thread)];
    if (leader.state != State::InWarp)
      continue;
    uint32_t mask = leader.mask;
    bool isComplete = true;
    for (int other = first; other < end; ++other)
      if (const Thread &member = threads[size_t(other)]; isMember(other, mask))
        isComplete &=
            member.state == State::InWarp && member.mask == mask && member.kind == leader.kind;
    if (!isComplete)
      continue;
    exchange(first, mask);
    isAnyFree = true;
  }
  return isAnyFree;
}

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

/// All of the mask are there: each gets its value and goes on.
void KernelRunner::exchange(int first, uint32_t mask) {
  std::vector<uint32_t> values(warpThreads, poison);
  int end = std::min(first + warpThreads, count), kind = 0;
  for (int thread = first; thread < end; ++thread)
    if (isMember(thread, mask)) {
      values[size_t(thread - first)] = threads[size_t(thread)].value;
      kind = threads[size_t(thread)].kind;
    }
  if (kind >= firstProduct)
    multiply(first, kind - firstProduct == multiplyBrainFloats);
  else if (kind >= firstLoad)
    shareRows(first, kind - firstLoad == loadColumns);
  std::vector<uint32_t> results(warpThreads);
  for (int thread = first; thread < end; ++thread)
    if (isMember(thread, mask) && kind < warpBarrierKind)
      results[size_t(thread - first)] =
          kind < firstVote ? shuffle(first, thread, values) : countVotes(first, thread, values);
  for (int thread = first; thread < end; ++thread)
    if (isMember(thread, mask)) {
      threads[size_t(thread)].value = results[size_t(thread - first)];
      threads[size_t(thread)].state = State::Runs;
    }
  if (kind == warpBarrierKind)
    shadow.passWarpBarrier(first / warpThreads);
}

/// As PTX defines shfl.sync: the clamp has the last lane in its low bits, and which bits of a lane
/// name its segment in bits 8 to 12.
uint32_t KernelRunner::shuffle(int first, int number, const std::vector<uint32_t> &values) {
  Thread &thread = threads[size_t(number)];
  int lane = number - first, operand = int(thread.lane & 31), clamp = int(thread.clamp & 31),
      segment = int(thread.clamp >> 8 & 31), low = lane & segment,
      high = low | (clamp & ~segment & 31), source = lane;
  bool isInside = false;
  switch (thread.kind) {
  case shuffleUp:
    source = lane - operand;
    isInside = source >= high;
    break;
  case shuffleDown:
    source = lane + operand;
    isInside = source <= high;
    break;
  case shuffleButterfly:
    source = lane ^ operand;
    isInside = source <= high;
    break;
  default:
    source = low | (operand & ~segment & 31);
    isInside = source <= high;
  }
  thread.predicate = isInside;
  return values[size_t(isInside ? source : lane)];
}

uint32_t KernelRunner::countVotes(int first, int number,
                                  const std::vector<uint32_t> &values) const {
  const Thread &thread = threads[size_t(number)];
  uint32_t ballot = 0;
  for (int lane = 0; lane < warpThreads; ++lane)
    if (isMember(lane, thread.mask) && first + lane < count && values[size_t(lane)])
      ballot |= uint32_t(1) << lane;
  uint32_t all = count - first >= warpThreads
                     ? thread.mask
                     : thread.mask & ((uint32_t(1) << (count - first)) - 1);
  switch (thread.kind - firstVote) {
  case voteAll:
    return ballot == all;
  case voteAny:
    return ballot != 0;
  case voteUniform:
    return ballot == all || ballot == 0;
  default:
    return ballot;
  }
}

//===----------------------------------------------------------------------===//
// What threads do
//===----------------------------------------------------------------------===//

int KernelRunner::readRegister(int which) const {
  auto thread = unsigned(fibers.getCurrent());
  const unsigned *extent = launch->threads;
  switch (which) {
  case threadX:
    return int(thread % extent[0]);
  case threadY:
    return int(thread / extent[0] % extent[1]);
  case threadZ:
    return int(thread / extent[0] / extent[1]);
  case laneOfWarp:
    return int(thread % warpThreads);
  default:
    break;
  }
  if (which <= blockZ)
    return int(block[which - blockX]);
  return int(which <= threadsZ ? extent[which - threadsX] : launch->blocks[which - blocksX]);
}

std::string KernelRunner::nameThread() const {
  return *name + ", block " + std::to_string(block[0]) + ", thread " +
         std::to_string(fibers.getCurrent());
}

/// Called on a fiber or between them; a fiber that calls it is left.
void KernelRunner::fail(CUresult error, const std::string &message) {
  std::fprintf(stderr, "emulator: %s: %s\n", nameThread().c_str(), message.c_str());
  failure = error;
}

/// Most accesses are near the one before.
bool KernelRunner::isInside(uintptr_t address, size_t bytes) {
  if (address < reachable.first || address >= reachable.second)
    reachable = memory.findForKernels(address);
  return address >= reachable.first && address + bytes <= reachable.second;
}

void KernelRunner::access(uintptr_t address, size_t bytes, int flags) {
  if (fibers.isOnStack(address))
    return;
  uintptr_t offset = address - reinterpret_cast<uintptr_t>(shared);
  bool isShared = offset < mostSharedBytes, isWrite = flags & accessWrites;
  bool isAllowed = isShared ? offset + bytes <= sharedBytes : isInside(address, bytes),
       isAligned = address % (size_t(1) << (flags >> accessAlignmentShift)) == 0;
  const char *does = isWrite ? "writes " : "reads ";
  if (!isAllowed || !isAligned) {
    std::string place = isShared ? "offset " + std::to_string(offset) + " of shared memory of " +
                                       std::to_string(sharedBytes) + " bytes"
                                 : memory.describe(address);
    fail(CUDA_ERROR_ILLEGAL_ADDRESS, does + std::to_string(bytes) + " bytes at " + place +
                                         (isAllowed ? ", which is not aligned" : ""));
    fibers.yield();
  }
  if (!isShared)
    log->add(address, bytes, isWrite);
  if (!(flags & accessIsAtomic))
    touch(uint32_t(fibers.getCurrent()), address, bytes, isWrite, isShared);
}

void KernelRunner::touch(uint32_t thread, uintptr_t address, size_t bytes, bool isWrite,
                         bool isShared) {
  if (auto conflict = shadow.touch(thread, address, bytes, isWrite, isShared); conflict.isThere) {
    auto nameOther = [&](bool isOther) {
      return std::string(isOther ? "another block" : "another thread") + " of " + *name;
    };
    races.report(*name, conflict.isFirstWrite, nameOther(conflict.isOtherBlock),
                 conflict.isSecondWrite, conflict.at, bytes);
  }
}

void KernelRunner::meetBlock(int barrier) {
  Thread &thread = threads[size_t(fibers.getCurrent())];
  thread.state = State::AtBarrier;
  thread.kind = barrier;
  fibers.yield();
}

uint32_t KernelRunner::meetWarp(int kind, uint32_t mask, uint32_t value, uint32_t lane,
                                uint32_t clamp) {
  int number = fibers.getCurrent(), first = number / warpThreads * warpThreads;
  // Lanes that the block does not have are never waited for.
  if (count - first < warpThreads)
    mask &= (uint32_t(1) << (count - first)) - 1;
  if (!isMember(number, mask)) {
    fail(CUDA_ERROR_LAUNCH_FAILED, "meets others of its warp under a mask that leaves it out");
    fibers.yield();
  }
  threads[size_t(number)] = {State::InWarp, kind, mask, value, lane, clamp, 0, 0, nullptr};
  fibers.yield();
  return threads[size_t(number)].value;
}

//===----------------------------------------------------------------------===//
// What device code calls
//===----------------------------------------------------------------------===//

static int readDeviceRegister(int which) { return runningKernel->readRegister(which); }
static void announceDeviceAccess(void *address, uint64_t bytes, int flags) {
  runningKernel->access(reinterpret_cast<uintptr_t>(address), bytes, flags);
}
static void meetDeviceBlock(int barrier) { runningKernel->meetBlock(barrier); }
static void meetDeviceWarp(uint32_t mask) { runningKernel->meetWarp(mask); }
static uint32_t shuffleDeviceValues(int mode, uint32_t mask, uint32_t value, uint32_t lane,
                                    uint32_t clamp) {
  return runningKernel->meetWarp(mode, mask, value, lane, clamp);
}
static uint32_t readDevicePredicate() { return runningKernel->getPredicate(); }
static uint32_t takeDeviceVote(int mode, uint32_t mask, uint32_t predicate) {
  return runningKernel->vote(mode, mask, predicate);
}

static void copyForDevice(void *to, void *from, int bytes, int valid) {
  runningKernel->copy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                      size_t(bytes), size_t(valid));
}
static void closeDeviceGroup() { runningKernel->closeGroup(); }
static void awaitDeviceGroups(int left) { runningKernel->awaitGroups(size_t(left)); }
static void loadDeviceMatrices(int mode, void *row, uint32_t *words) {
  runningKernel->loadMatrices(mode, reinterpret_cast<uintptr_t>(row), words);
}
static void multiplyDeviceMatrices(int mode, uint32_t *words) {
  runningKernel->multiplyMatrices(mode, words);
}

std::vector<std::pair<const char *, void *>> memopt::emulator::getDeviceFunctions() {
  return {{accessFunction, reinterpret_cast<void *>(&announceDeviceAccess)},
          {registerFunction, reinterpret_cast<void *>(&readDeviceRegister)},
          {barrierFunction, reinterpret_cast<void *>(&meetDeviceBlock)},
          {warpBarrierFunction, reinterpret_cast<void *>(&meetDeviceWarp)},
          {shuffleFunction, reinterpret_cast<void *>(&shuffleDeviceValues)},
          {predicateFunction, reinterpret_cast<void *>(&readDevicePredicate)},
          {voteFunction, reinterpret_cast<void *>(&takeDeviceVote)},
          {copyFunction, reinterpret_cast<void *>(&copyForDevice)},
          {groupFunction, reinterpret_cast<void *>(&closeDeviceGroup)},
          {awaitFunction, reinterpret_cast<void *>(&awaitDeviceGroups)},
          {loadMatricesFunction, reinterpret_cast<void *>(&loadDeviceMatrices)},
          {multiplyMatricesFunction, reinterpret_cast<void *>(&multiplyDeviceMatrices)}};
}
