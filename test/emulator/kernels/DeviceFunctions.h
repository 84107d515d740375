//===- DeviceFunctions.h - what emulated device code calls ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Names and numbers that the lowering of device code and the emulator's kernels agree on.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_DEVICEFUNCTIONS_H
#define MEMOPT_EMULATOR_DEVICEFUNCTIONS_H

namespace memopt::emulator {

constexpr int warpThreads = 32;

/// void(pointer, i64 bytes, i32 flags), before each access.
constexpr const char *accessFunction = "memopt_emulate_access";
/// Above the flags, the power of two that the address is a multiple of.
enum AccessFlags : int { accessWrites = 1, accessIsAtomic = 2, accessAlignmentShift = 4 };

/// i32(i32 which)
constexpr const char *registerFunction = "memopt_emulate_register";
enum DeviceRegister : int {
  threadX,
  threadY,
  threadZ,
  blockX,
  blockY,
  blockZ,
  threadsX,
  threadsY,
  threadsZ,
  blocksX,
  blocksY,
  blocksZ,
  laneOfWarp
};

/// void(i32 barrier), and void(i32 mask) for a warp.
constexpr const char *barrierFunction = "memopt_emulate_barrier";
constexpr const char *warpBarrierFunction = "memopt_emulate_warp_barrier";

/// i32(i32 mode, i32 mask, i32 value, i32 lane, i32 clamp), then i32() for its predicate.
constexpr const char *shuffleFunction = "memopt_emulate_shuffle";
constexpr const char *predicateFunction = "memopt_emulate_predicate";
enum ShuffleMode : int { shuffleIndex, shuffleUp, shuffleDown, shuffleButterfly };

/// i32(i32 mode, i32 mask, i32 predicate)
constexpr const char *voteFunction = "memopt_emulate_vote";
enum VoteMode : int { voteAll, voteAny, voteUniform, voteBallot };

/// void(shared pointer, pointer, i32 bytes, i32 valid): a copy that goes on behind the call; zeros
/// stand for what is not valid. Then void(), which makes a group of a thread's copies, and void(i32)
/// to wait for all groups but the last ones.
constexpr const char *copyFunction = "memopt_emulate_copy";
constexpr const char *groupFunction = "memopt_emulate_group";
constexpr const char *awaitFunction = "memopt_emulate_await";

/// void(i32 mode, shared pointer, i32 *words): four matrices of 8 x 8 numbers of 16 bits.
constexpr const char *loadMatricesFunction = "memopt_emulate_load_matrices";
enum LoadMatricesMode : int { loadRows, loadColumns };

/// void(i32 mode, i32 *words): of the left operand, four of the right one, two, and of sums, four,
/// where the result goes.
constexpr const char *multiplyMatricesFunction = "memopt_emulate_multiply_matrices";
enum MultiplyMatricesMode : int { multiplyHalves, multiplyBrainFloats };
constexpr int leftWords = 4, rightWords = 2, sumWords = 4,
              matrixWords = leftWords + rightWords + sumWords;

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_DEVICEFUNCTIONS_H
