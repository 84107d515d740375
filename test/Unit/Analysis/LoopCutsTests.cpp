//===- LoopCutsTests.cpp - long loops as several -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/LoopCuts.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <numeric>

using namespace mlir::memopt;

TEST(LoopCutsTest, LoopsHaveAllTurnsAndAboutAsManyEach) {
  for (int64_t count = 1; count <= 10'000; ++count) {
    auto counts = cutLoop(count);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t(0)), count);
    auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    EXPECT_GT(*least, 0);
    EXPECT_LE(*most - *least, 1);
  }
}

// Few turns are one loop, some are loops of 8 turns at least, and more are 64 loops until their square root is more.
TEST(LoopCutsTest, MoreTurnsAreMoreLoopsUpToALimit) {
  EXPECT_EQ(cutLoop(8).size(), 1u);
  EXPECT_EQ(cutLoop(64).size(), 8u);
  EXPECT_EQ(cutLoop(256).size(), 32u);
  EXPECT_EQ(cutLoop(1024).size(), 64u);
  EXPECT_EQ(cutLoop(4096).size(), 64u);
  EXPECT_EQ(cutLoop(8192).size(), 90u);
}

// Two layers have as many loops each as one, and more have 128 in all until the square root is more.
TEST(LoopCutsTest, ManyLayersAreFewerLoopsEach) {
  EXPECT_EQ(cutLoop(32, 4).size(), cutLoop(32).size());
  EXPECT_EQ(cutLoop(1024, 2).size(), 64u);
  EXPECT_EQ(cutLoop(512, 4).size(), 32u);
  EXPECT_EQ(cutLoop(512, 1024).size(), 22u);
}
