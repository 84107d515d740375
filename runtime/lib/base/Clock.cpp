//===- Clock.cpp - the time that waits are measured by===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Clock.h"

#include <algorithm>
#include <chrono>

int64_t memopt::getTime() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double memopt::Waiting::getSeconds() {
  constexpr int64_t mostBetweenLooks = 100'000'000;
  int64_t now = getTime();
  counted += std::min(now - last, mostBetweenLooks);
  last = now;
  return double(counted) * 1e-9;
}
