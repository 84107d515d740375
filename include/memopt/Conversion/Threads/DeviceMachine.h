//===- DeviceMachine.h - numbers of a GPU ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_THREADS_DEVICEMACHINE_H
#define MEMOPT_CONVERSION_THREADS_DEVICEMACHINE_H

#include <cstdint>

namespace mlir::memopt {

/// What schedules and launches are made for.
struct DeviceMachine {
  int64_t sms = 0;          ///< multiprocessors
  int64_t warpThreads = 32; ///< that exchange values by shuffles
  /// Threads of the blocks that share an iteration: the registers of a multiprocessor are enough
  /// for eight such blocks of plain code, and for one that uses all that a thread can have.
  int64_t blockThreads = 256;
  int64_t tileThreads = 32; ///< rows and columns of the tiles that are transposed
  int64_t accessBytes = 16; ///< of the widest access to memory; buffers begin at their multiples
  /// Of a block, on every device (CUDA C++ Programming Guide, table of technical specifications).
  int64_t sharedBytes = 48 << 10;
  int64_t threadsOfSm = 2048; ///< that a multiprocessor holds; 1536 or 1024 of some chips
  /// Price of a launch, which takes as long as a few megabytes of traffic.
  double launchCost = 30000;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_THREADS_DEVICEMACHINE_H
