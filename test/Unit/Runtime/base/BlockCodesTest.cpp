//===- BlockCodesTest.cpp - tensors in few bits ---------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/numbers/BlockCodes.h"
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

using namespace memopt;

namespace {
struct Encoded {
  std::vector<uint8_t> codes, scaleBytes;
  std::vector<float> scales, scaleScales;

  Encoded(BlockCode code, const std::vector<float> &values, bool hasNarrowScales = false) {
    auto elements = int64_t(values.size()), blocks = getBlockCount(elements);
    codes.resize(size_t(code == BlockCode::BF16 ? 2 * elements : getCodeBytes(code, elements)));
    BlockParts<uint8_t, float> parts{codes.data()};
    if (hasNarrowScales) {
      scaleBytes.resize(size_t(getScaleBytes(blocks)));
      scaleScales.resize(size_t(getScaleBlockCount(blocks)));
      parts.scaleBytes = scaleBytes.data();
      parts.scaleScales = scaleScales.data();
    } else {
      scales.resize(size_t(blocks));
      parts.scales = scales.data();
    }
    encodeBlocks(code, values.data(), elements, parts);
  }

  std::vector<float> decode(BlockCode code, size_t elements) const {
    BlockParts<const uint8_t, const float> parts{codes.data(), scales.data()};
    if (!scaleScales.empty())
      parts = {codes.data(), nullptr, scaleBytes.data(), scaleScales.data()};
    std::vector<float> values(elements);
    decodeBlocks(code, parts, int64_t(elements), values.data());
    return values;
  }
};
} // namespace

static std::vector<float> makeWave(size_t elements) {
  std::vector<float> values;
  for (size_t i = 0; i < elements; ++i)
    values.push_back(std::sin(0.7f * float(i)) * float(1 + i % 5));
  return values;
}

// Values of the table times a scale are kept as they are, wherever they lie in a block.
TEST(BlockCodes, KeepsItsOwnValues) {
  std::vector<float> values;
  for (size_t i = 0; i < 100; ++i)
    values.push_back(nf4Values[i * 7 % 16] * (i < 64 ? 2.0f : 0.5f));
  values[3] = 2.0f;
  values[70] = -0.5f;
  Encoded nf4(BlockCode::NF4, values);
  EXPECT_EQ(nf4.scales, (std::vector<float>{2.0f, 0.5f}));
  EXPECT_EQ(nf4.codes.size(), 64u);
  EXPECT_EQ(nf4.decode(BlockCode::NF4, values.size()), values);
}

TEST(BlockCodes, RoundsToTheNearest) {
  std::vector<float> values = makeWave(200);
  for (BlockCode code : {BlockCode::BF16, BlockCode::Int8, BlockCode::NF4}) {
    Encoded encoded(code, values);
    std::vector<float> again = encoded.decode(code, values.size());
    // Half the widest gap: a last bit of bf16, 1 / 254 of the largest, and that from -1 on.
    float allowed = code == BlockCode::BF16   ? 5.0f / 256
                    : code == BlockCode::Int8 ? 5.0f / 253
                                              : 0.76f;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(again[i], values[i], allowed) << getName(code) << " " << i;
  }
}

// Codes are made for the scales that are read, of which none that is not 0 becomes 0.
TEST(BlockCodes, NarrowsScales) {
  std::vector<float> values(64 * 300, 0.0f);
  for (size_t block = 0; block < 299; ++block)
    values[64 * block + 5] = block % 7 == 0 ? 1e-4f : float(1 + block % 3);
  Encoded nf4(BlockCode::NF4, values, /*hasNarrowScales=*/true);
  EXPECT_EQ(nf4.scaleBytes.size(), 512u);
  EXPECT_EQ(nf4.scaleScales.size(), 2u);
  std::vector<float> again = nf4.decode(BlockCode::NF4, values.size());
  EXPECT_NEAR(again[64 * 1 + 5], 2.0f, 1.0f / 255);
  EXPECT_GE(again[64 * 7 + 5], 0.0f);
  EXPECT_EQ(nf4.scaleBytes[7], 1);
  EXPECT_EQ(again[64 * 299 + 5], 0.0f);
}

TEST(BlockCodes, TakesBlocksOfZeros) {
  std::vector<float> values(64, 0.0f);
  for (BlockCode code : {BlockCode::Int8, BlockCode::NF4})
    EXPECT_EQ(Encoded(code, values).decode(code, 64), values);
}
