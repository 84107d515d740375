//===- StepPosition.h - where a running step is -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_STEPPOSITION_H
#define MEMOPT_RUNTIME_EXECUTION_STEPPOSITION_H

#include "memopt-runtime/package/Manifest.h"
#include <atomic>

namespace memopt {

/// Follows a step through its instructions and the repeats around them. Their order is fixed, so a
/// program that reports another one is caught.
class StepPosition {
public:
  explicit StepPosition(const Manifest &manifest);

  /// To before the first instruction.
  void reset();
  /// The instruction that comes next; the number of instructions at the end.
  int64_t getNext() const;
  /// The next instruction begins.
  void advance();

  /// The instruction that runs; -1 before the first and between steps. Any thread, and a signal's
  /// handler, may ask.
  int64_t getInstruction() const { return current.load(std::memory_order_relaxed); }
  /// Which time of its innermost repeat this is, from 0.
  int64_t getIteration() const;

private:
  struct Loop {
    int64_t begin, end, count, iteration;
  };

  std::vector<Loop> loops; ///< outer ones first
  std::atomic<int64_t> current{-1};
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_STEPPOSITION_H
