//===- PhiloxTest.cpp - known answers of the random generator ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The vectors are those of Random123's kat_vectors for philox4x32 with 10 rounds.

#include "memopt-runtime/numbers/Philox.h"
#include <gtest/gtest.h>
#include <vector>

using namespace memopt;

static std::vector<uint32_t> words(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  PhiloxWords result = philox4x32(counter, key0, key1);
  return {result.word, result.word + 4};
}

TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(words({{0, 0, 0, 0}}, 0, 0),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ones = 0xffffffff;
  EXPECT_EQ(words({{ones, ones, ones, ones}}, ones, ones),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
            (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, FourWordsShareTheCounterOfTheirWholeNumber) {
  int64_t number = 0x85a308d3'243f6a88, seed = 0x299f31d0'a4093822;
  PhiloxWords expected =
      philox4x32({{0x243f6a88 >> 2 | 0x3u << 30, 0x85a308d3 >> 2, 0x13198a2e, 0x03707344}},
                 0xa4093822, 0x299f31d0);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(philoxWord(number + i, 0x13198a2e, 0x03707344, seed), expected.word[i]);
  // Known answer: counter 0 of step 0.
  EXPECT_EQ(philoxWord(3, 0, 0, 0), 0x9b00dbd8u);
}

TEST(Philox, ThresholdRoundsUp) {
  EXPECT_EQ(dropoutThreshold(0), 0u);
  EXPECT_EQ(dropoutThreshold(0.5), uint64_t(1) << 31);
  EXPECT_EQ(dropoutThreshold(1), uint64_t(1) << 32);
  EXPECT_EQ(dropoutThreshold(1e-12), 1u);
}
