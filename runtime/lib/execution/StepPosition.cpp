//===- StepPosition.cpp - where a running step is -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/StepPosition.h"

using namespace memopt;

StepPosition::StepPosition(const Manifest &manifest) {
  for (const RegionSpec &region : manifest.regions)
    loops.push_back({region.begin, region.end, region.count, 0});
}

void StepPosition::reset() {
  current.store(-1, std::memory_order_relaxed);
  for (Loop &loop : loops)
    loop.iteration = 0;
}

int64_t StepPosition::getNext() const {
  int64_t following = getInstruction() + 1;
  // Of repeats that end here the inner ones go on first.
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop)
    if (loop->end == following && loop->iteration + 1 < loop->count)
      return loop->begin;
  return following;
}

void StepPosition::advance() {
  int64_t following = getInstruction() + 1;
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
    if (loop->end != following)
      continue;
    if (++loop->iteration < loop->count)
      return current.store(loop->begin, std::memory_order_relaxed);
    loop->iteration = 0;
  }
  current.store(following, std::memory_order_relaxed);
}

int64_t StepPosition::getIteration() const {
  int64_t instruction = getInstruction();
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop)
    if (instruction >= loop->begin && instruction < loop->end)
      return loop->iteration;
  return 0;
}
