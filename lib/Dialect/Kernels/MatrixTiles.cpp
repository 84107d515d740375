//===- MatrixTiles.cpp - attention on tensor cores ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Kernels/AttentionTiles.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <tuple>

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

//===----------------------------------------------------------------------===//
// Price
//===----------------------------------------------------------------------===//

namespace {
/// How a block cuts scores, as far as its resources follow from it. Lengths are in matrices.
struct Cut {
  AttentionStage stage;
  int64_t head, value; ///< features
  int64_t rowsOfWarp, columns, warps;

  int64_t getRows() const { return warps * rowsOfWarp; }
  bool isBackward() const { return stage != AttentionStage::Forward; }

  /// Sums and scores of a thread: a sixteenth of what a warp has of 16 x 16 of them, and both of
  /// probabilities and their gradients.
  int64_t countRegisters() const {
    int64_t ofRow = stage == AttentionStage::Forward         ? value
                    : stage == AttentionStage::QueryGradient ? head
                                                             : head + value;
    return rowsOfWarp * 8 * (ofRow + columns * (isBackward() ? 2 : 1));
  }

  /// Two tiles of what columns have: one is copied while the other is computed with.
  int64_t countSharedBytes() const {
    int64_t ofHead = getMatrixLine(head * kMatrix), ofValue = getMatrixLine(value * kMatrix);
    int64_t ofRow = isBackward() ? ofHead + ofValue : ofHead;
    // The logarithm and the sum of each query.
    int64_t ofColumn = ofHead + ofValue + (stage == AttentionStage::KeyGradient ? 8 : 0);
    return kMatrix * (getRows() * ofRow + 2 * columns * ofColumn);
  }

  /// What a warp reads from shared memory, and a tile's wait and barrier, by what it multiplies.
  double getCost() const {
    constexpr double ofTile = 24;
    double products = double(rowsOfWarp * columns * (head + value)) * 2;
    double reads = double(head * (rowsOfWarp + columns) + columns * value);
    if (isBackward()) { // also of values and the result's gradient, and to sum up dq, or dk and dv
      bool ownsKeys = stage == AttentionStage::KeyGradient;
      products += double(rowsOfWarp * columns * (ownsKeys ? head + value : head)) * 2;
      reads = double((head + value) * (rowsOfWarp + columns) +
                     columns * (ownsKeys ? head + value : head));
    }
    return (reads + ofTile) / products;
  }
};
} // namespace

/// Shared memory of a multiprocessor, of which a block costs 1 KiB more than it has (CUDA C++
/// Programming Guide, table of technical specifications).
static int64_t getSmSharedBytes(int64_t capability) {
  constexpr int64_t ampere = 164 << 10, ada = 100 << 10, hopper = 228 << 10;
  return capability == 80 ? ampere : capability == 90 || capability == 100 ? hopper : ada;
}

/// What sums and scores may take of a thread's 255 registers, so that ptxas does not spill; see
/// test/benchmark/attention_registers.py. Masks and dropout need more of the others.
static int64_t getMostRegisters(AttentionAttr call, AttentionStage stage) {
  constexpr int64_t most = 160, beside = 112, ofNarrowKeys = 192;
  if (call.getMaskType() || call.getDropout())
    return beside;
  bool isNarrow = call.getHeadDim() + call.getValueDim() <= 128;
  return stage == AttentionStage::KeyGradient && isNarrow ? ofNarrowKeys : most;
}

//===----------------------------------------------------------------------===//
// Choice
//===----------------------------------------------------------------------===//

/// No more rows and columns than there are tokens, in whole matrices.
static Cut fitTokens(Cut cut, int64_t rows, int64_t columns) {
  int64_t needed = llvm::divideCeil(rows, kMatrix);
  if (needed <= cut.warps)
    cut.rowsOfWarp = 1;
  cut.warps = std::min(cut.warps, int64_t(llvm::divideCeil(needed, cut.rowsOfWarp)));
  cut.columns = std::min(cut.columns, int64_t(llvm::divideCeil(columns, kMatrix)));
  return cut;
}

std::optional<MatrixTiles> mlir::memopt::chooseMatrixTiles(AttentionAttr call, AttentionStage stage,
                                                           TargetAttrInterface target) {
  constexpr int64_t ampere = 80, ofBlock = 1 << 10, least = 160;
  auto cuda = dyn_cast<CudaAttr>(static_cast<Attribute>(target));
  auto isNarrow = [](Type type) { return type.isBF16() || type.isF16(); };
  int64_t head = call.getHeadDim(), value = call.getValueDim();
  if (stage == AttentionStage::MaskGradient || !cuda || cuda.getCapability() < ampere ||
      !isNarrow(call.getType()) || !call.getAccumulator().isF32() || head % kMatrix ||
      value % kMatrix)
    return std::nullopt;
  // Drawing one word after the other takes registers that such sums do not leave.
  constexpr int64_t wide = 128, counter = 4;
  if (call.getDropout() && call.getKeyLength() % counter && std::max(head, value) > wide)
    return std::nullopt;
  int64_t rows = call.getQueryLength(), columns = call.getKeyLength();
  if (stage == AttentionStage::KeyGradient)
    std::swap(rows, columns);
  std::optional<MatrixTiles> best;
  double lowest = 0;
  for (auto [rowsOfWarp, warps, blocks] : {std::tuple(2, 4, 2), {1, 4, 2}, {1, 8, 1}, {1, 4, 1}})
    for (int64_t columnsOfTile : {4, 2, 1}) {
      Cut cut{stage, head / kMatrix, value / kMatrix, rowsOfWarp, columnsOfTile, warps};
      // The narrowest cut is taken where none leaves registers for the rest, if it is possible.
      int64_t limit = rowsOfWarp * columnsOfTile == 1 ? least : getMostRegisters(call, stage);
      int64_t shared = std::min(getBlockSharedBytes(target),
                                getSmSharedBytes(cuda.getCapability()) / blocks - ofBlock);
      // Two blocks, or at least more warps, hide each other's waits.
      double cost = cut.getCost() * (blocks > 1 ? 1 : warps > 4 ? 1.2 : 1.6);
      if (cut.countRegisters() > limit || cut.countSharedBytes() > shared ||
          (best && cost >= lowest))
        continue;
      lowest = cost;
      Cut fitted = fitTokens(cut, rows, columns);
      best = {fitted.getRows() * kMatrix, fitted.columns * kMatrix, fitted.warps, blocks,
              fitted.countSharedBytes()};
    }
  return best;
}
