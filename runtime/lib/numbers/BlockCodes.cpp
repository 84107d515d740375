//===- BlockCodes.cpp - tensors in few bits -------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/numbers/BlockCodes.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

using namespace memopt;

static uint16_t roundToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value))
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16); // ties to even
}

static float widenBFloat16(uint16_t narrow) {
  uint32_t bits = uint32_t(narrow) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

/// The nearest of the table, of two that are equally near the lower one.
static uint8_t findNf4(float value) {
  static const std::array<float, 15> middles = [] {
    std::array<float, 15> between{};
    for (size_t i = 0; i < between.size(); ++i)
      between[i] = float((double(nf4Values[i]) + double(nf4Values[i + 1])) / 2);
    return between;
  }();
  return uint8_t(std::lower_bound(middles.begin(), middles.end(), value) - middles.begin());
}

//===----------------------------------------------------------------------===//
// Scales
//===----------------------------------------------------------------------===//

static float findLargest(const float *values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::fabs(values[i]));
  return largest;
}

static void encodeScales(const float *scales, int64_t count, uint8_t *bytes, float *largest) {
  std::memset(bytes, 0, size_t(getScaleBytes(count)));
  for (int64_t begin = 0; begin < count; begin += scaleBlock) {
    int64_t end = std::min(count, begin + scaleBlock);
    float unit = findLargest(scales + begin, end - begin) / 255;
    largest[begin / scaleBlock] = unit;
    for (int64_t i = begin; i < end; ++i)
      bytes[i] = unit == 0 || scales[i] == 0
                     ? 0
                     : uint8_t(std::clamp(std::nearbyint(scales[i] / unit), 1.0f, 255.0f));
  }
}

static void decodeScales(const uint8_t *bytes, const float *units, int64_t count, float *scales) {
  for (int64_t i = 0; i < count; ++i)
    scales[i] = float(bytes[i]) * units[i / scaleBlock];
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

static void encodeBlock(BlockCode code, const float *block, float scale, uint8_t *codes) {
  if (code == BlockCode::Int8) {
    for (int64_t i = 0; i < codeBlock; ++i) {
      float units = scale == 0 ? 0 : std::nearbyint(block[i] / scale);
      codes[i] = uint8_t(int8_t(std::clamp(units, -127.0f, 127.0f)));
    }
    return;
  }
  auto find = [&](int64_t i) { return findNf4(scale == 0 ? 0 : block[i] / scale); };
  for (int64_t i = 0; i < codeBlock / 2; ++i)
    codes[i] = uint8_t(find(i) | find(i + codeBlock / 2) << 4);
}

void memopt::encodeBlocks(BlockCode code, const float *values, int64_t elements,
                          BlockParts<uint8_t, float> parts) {
  if (code == BlockCode::BF16) {
    for (int64_t i = 0; i < elements; ++i) {
      uint16_t narrow = roundToBFloat16(values[i]);
      std::memcpy(parts.codes + 2 * i, &narrow, 2);
    }
    return;
  }
  int64_t blocks = getBlockCount(elements), blockBytes = getCodeBytes(code, codeBlock);
  std::vector<float> scales(static_cast<size_t>(blocks));
  for (int64_t b = 0; b < blocks; ++b) {
    int64_t count = std::min(codeBlock, elements - b * codeBlock);
    float largest = findLargest(values + b * codeBlock, count);
    scales[size_t(b)] = code == BlockCode::Int8 ? largest / 127 : largest;
  }
  if (parts.scaleScales) { // what is read is what the codes are for
    encodeScales(scales.data(), blocks, parts.scaleBytes, parts.scaleScales);
    decodeScales(parts.scaleBytes, parts.scaleScales, blocks, scales.data());
  } else {
    std::copy(scales.begin(), scales.end(), parts.scales);
  }
  for (int64_t b = 0; b < blocks; ++b) {
    std::array<float, codeBlock> block{};
    int64_t count = std::min(codeBlock, elements - b * codeBlock);
    std::copy_n(values + b * codeBlock, count, block.begin());
    encodeBlock(code, block.data(), scales[size_t(b)], parts.codes + b * blockBytes);
  }
}

void memopt::decodeBlocks(BlockCode code, BlockParts<const uint8_t, const float> parts,
                          int64_t elements, float *values) {
  if (code == BlockCode::BF16) {
    for (int64_t i = 0; i < elements; ++i) {
      uint16_t narrow;
      std::memcpy(&narrow, parts.codes + 2 * i, 2);
      values[i] = widenBFloat16(narrow);
    }
    return;
  }
  int64_t blocks = getBlockCount(elements), blockBytes = getCodeBytes(code, codeBlock);
  std::vector<float> scales(static_cast<size_t>(blocks));
  if (parts.scaleScales)
    decodeScales(parts.scaleBytes, parts.scaleScales, blocks, scales.data());
  else
    std::copy_n(parts.scales, blocks, scales.begin());
  for (int64_t i = 0; i < elements; ++i) {
    int64_t b = i / codeBlock, within = i % codeBlock;
    const uint8_t *codes = parts.codes + b * blockBytes;
    if (code == BlockCode::Int8)
      values[i] = float(int8_t(codes[within])) * scales[size_t(b)];
    else
      values[i] =
          nf4Values[codes[within % (codeBlock / 2)] >> (within / (codeBlock / 2) * 4) & 15] *
          scales[size_t(b)];
  }
}
