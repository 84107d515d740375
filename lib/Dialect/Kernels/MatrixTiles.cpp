//===- MatrixTiles.cpp - attention on tensor cores ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/AttentionTiles.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace mlir::memopt;

/// Rows, columns and features of the matrices that one instruction multiplies, or twice that.
static constexpr int64_t kMatrix = 16;

bool mlir::memopt::swizzlesMatrixLines(int64_t features) {
  constexpr int64_t banks = 128;
  return features * 2 % banks == 0;
}

/// Eight lines that follow each other are read at once, 16 bytes of each: these are to lie in
/// different banks. Where lines are a multiple of all banks pieces change places, else lines have an
/// odd number of pieces.
int64_t mlir::memopt::getMatrixLine(int64_t features) {
  constexpr int64_t piece = 16;
  return features * 2 + (swizzlesMatrixLines(features) ? 0 : piece);
}

namespace {
/// Tiles for vectors of up to `features`, and a warp's rows.
struct Shape {
  int64_t features, rows, columns, warps, blocks;
};
} // namespace

/// The largest that ptxas assembles without spilling on any chip; see test/Conversion.
static ArrayRef<Shape> getShapes(AttentionStage stage, bool isHeavy) {
  static constexpr Shape forward[] = {{64, 128, 64, 4, 2}, {128, 128, 64, 8, 1}, {256, 64, 32, 4, 1}};
  static constexpr Shape ofQueries[] = {{64, 64, 64, 4, 2}, {128, 64, 32, 4, 2}, {256, 64, 16, 4, 1}};
  static constexpr Shape ofKeys[] = {{64, 64, 64, 4, 2}, {128, 64, 32, 4, 2}};
  switch (stage) {
  case AttentionStage::Forward:
    return forward;
  case AttentionStage::QueryGradient:
    return ofQueries;
  case AttentionStage::KeyGradient:
    return ofKeys;
  case AttentionStage::MaskGradient:
    return {};
  }
  llvm_unreachable("all stages are known");
}

/// Two tiles of what columns have: one is copied while the other is computed with.
static int64_t countSharedBytes(AttentionAttr call, AttentionStage stage,
                                const MatrixTiles &tiles) {
  int64_t head = getMatrixLine(call.getHeadDim()), value = getMatrixLine(call.getValueDim());
  int64_t ofRow = stage == AttentionStage::Forward ? head : head + value;
  // The logarithm and the sum of each query.
  int64_t ofColumn = head + value + (stage == AttentionStage::KeyGradient ? 8 : 0);
  return tiles.rows * ofRow + 2 * tiles.columns * ofColumn;
}

/// No more rows and columns than there are tokens, in whole matrices.
static MatrixTiles fitTokens(const Shape &shape, int64_t rows, int64_t columns) {
  int64_t ofWarp = shape.rows / shape.warps;
  if (rows <= shape.warps * kMatrix)
    ofWarp = kMatrix;
  int64_t warps = std::min<int64_t>(shape.warps, llvm::divideCeil(rows, ofWarp));
  return {warps * ofWarp, std::min<int64_t>(shape.columns, llvm::alignTo(columns, kMatrix)), warps,
          shape.blocks, 0};
}

std::optional<MatrixTiles> mlir::memopt::chooseMatrixTiles(AttentionAttr call, AttentionStage stage,
                                                           TargetAttrInterface target) {
  constexpr int64_t ampere = 80;
  auto cuda = dyn_cast<CudaAttr>(static_cast<Attribute>(target));
  auto isNarrow = [](Type type) { return type.isBF16() || type.isF16(); };
  int64_t head = call.getHeadDim(), value = call.getValueDim();
  if (!cuda || cuda.getCapability() < ampere || !isNarrow(call.getType()) ||
      !call.getAccumulator().isF32() || head % kMatrix || value % kMatrix)
    return std::nullopt;
  int64_t rows = call.getQueryLength(), columns = call.getKeyLength();
  if (stage == AttentionStage::KeyGradient)
    std::swap(rows, columns);
  bool isHeavy = call.getMaskType() || call.getDropout();
  for (const Shape &shape : getShapes(stage, isHeavy)) {
    if (std::max(head, value) > shape.features)
      continue;
    MatrixTiles tiles = fitTokens(shape, rows, columns);
    tiles.sharedBytes = countSharedBytes(call, stage, tiles);
    if (tiles.sharedBytes <= getBlockSharedBytes(target))
      return tiles;
  }
  return std::nullopt;
}
