//===- BlockCodes.h - tensors in few bits -----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Frozen weights are kept as codes, 64 consecutive elements in row-major order to a block, with a
// scale for each block. The last block is filled up with zeros. Compiler and runtime agree on the
// forms below, for kernels read what the runtime writes.
//
//   bf16  no blocks: each element rounded to nearest
//   int8  scale = largest magnitude / 127, element = code * scale
//   nf4   scale = largest magnitude, element = nf4Values[code] * scale (Dettmers et al., QLoRA,
//         2023, appendix E). A block has 32 bytes: byte j has the code of element j in its lower
//         four bits and that of element 32 + j in the upper ones, so that neighbours are read from
//         neighbours.
//
// Scales are f32, or bytes with one f32 for each 256 of them: scale = byte * (largest / 255), and
// at least 1 where the scale is not 0.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_NUMBERS_BLOCKCODES_H
#define MEMOPT_RUNTIME_NUMBERS_BLOCKCODES_H

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace memopt {

enum class BlockCode { BF16, Int8, NF4 };

inline constexpr std::array<const char *, 3> blockCodeNames = {"bf16", "int8", "nf4"};
inline const char *getName(BlockCode code) { return blockCodeNames[size_t(code)]; }
inline std::optional<BlockCode> parseBlockCode(std::string_view name) {
  for (size_t i = 0; i < blockCodeNames.size(); ++i)
    if (name == blockCodeNames[i])
      return BlockCode(i);
  return std::nullopt;
}

inline constexpr int64_t codeBlock = 64, scaleBlock = 256;

/// Quantiles of the normal distribution, scaled to [-1, 1].
inline constexpr std::array<float, 16> nf4Values = {-1.0f,
                                                    -0.6961928009986877f,
                                                    -0.5250730514526367f,
                                                    -0.39491748809814453f,
                                                    -0.28444138169288635f,
                                                    -0.18477343022823334f,
                                                    -0.09105003625154495f,
                                                    0.0f,
                                                    0.07958029955625534f,
                                                    0.16093020141124725f,
                                                    0.24611230194568634f,
                                                    0.33791524171829224f,
                                                    0.44070982933044434f,
                                                    0.5626170039176941f,
                                                    0.7229568362236023f,
                                                    1.0f};

/// Blocks of so many elements, which are their scales, too.
inline int64_t getBlockCount(int64_t elements) { return (elements + codeBlock - 1) / codeBlock; }
/// Bytes of the codes of int8 or nf4.
inline int64_t getCodeBytes(BlockCode code, int64_t elements) {
  return getBlockCount(elements) * (code == BlockCode::NF4 ? codeBlock / 2 : codeBlock);
}
/// Blocks of so many scales that are bytes.
inline int64_t getScaleBlockCount(int64_t scales) { return (scales + scaleBlock - 1) / scaleBlock; }
/// Bytes of scales that are bytes: whole blocks, unless there is one alone.
inline int64_t getScaleBytes(int64_t scales) {
  return scales <= scaleBlock ? scales : getScaleBlockCount(scales) * scaleBlock;
}

/// Where the parts of a tensor lie. Scales are bytes where `scaleScales` is not null; bf16 has
/// codes alone.
template <typename Byte, typename Float> struct BlockParts {
  Byte *codes;
  Float *scales = nullptr;
  Byte *scaleBytes = nullptr;
  Float *scaleScales = nullptr;
};

void encodeBlocks(BlockCode code, const float *values, int64_t elements,
                  BlockParts<uint8_t, float> parts);
void decodeBlocks(BlockCode code, BlockParts<const uint8_t, const float> parts, int64_t elements,
                  float *values);

} // namespace memopt

#endif // MEMOPT_RUNTIME_NUMBERS_BLOCKCODES_H
