//===- AttentionTiles.cpp - attention on the threads of a device ----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Kernels/AttentionTiles.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace mlir::memopt;

/// Registers of 4 bytes that a thread's part of the results may take; it has 255.
static constexpr int64_t kMostRegisters = 96;
/// Threads of a block stand in a square of at most this side, half a warp.
static constexpr int64_t kSide = 16;
static constexpr int64_t kLeastTile = 8;

/// Of sm_75, and of every chip from sm_80 on, of which sm_86, sm_89 and sm_120 have the least (CUDA
/// C++ Programming Guide, table of technical specifications).
int64_t mlir::memopt::getBlockSharedBytes(TargetAttrInterface target) {
  constexpr int64_t kTuring = 64 << 10, kAmpere = 99 << 10;
  auto cuda = dyn_cast<CudaAttr>(static_cast<Attribute>(target));
  return cuda && cuda.getCapability() < 80 ? kTuring : kAmpere;
}

/// Registers for a thread's part of `rows` vectors.
static int64_t countRegisters(const AttentionHeads &heads, const AttentionTiles &tiles,
                              int64_t features) {
  int64_t vectors = llvm::divideCeil(features, heads.getVector());
  int64_t ofThread = llvm::divideCeil(vectors, tiles.threadColumns);
  constexpr int64_t registersOfVector = 4;
  return tiles.rows / tiles.threadRows * ofThread * registersOfVector;
}

std::optional<AttentionTiles> mlir::memopt::chooseAttentionTiles(const AttentionHeads &heads,
                                                                 int64_t sharedBytes, int64_t rows,
                                                                 int64_t columns, bool isBackward) {
  auto enough = [](int64_t extent) {
    return std::max(kLeastTile, static_cast<int64_t>(llvm::PowerOf2Ceil(extent)));
  };
  int64_t vector = heads.getVector(), bytes = heads.type.getIntOrFloatBitWidth() / 8;
  // Lines are a vector longer than their features, so that threads which read one element each of
  // neighbouring lines meet different banks.
  auto getLine = [&](int64_t features) {
    return static_cast<int64_t>(llvm::alignTo(features, vector)) + vector;
  };
  constexpr std::pair<int64_t, int64_t> shapes[] = {{64, 64}, {64, 32}, {32, 32}, {32, 16},
                                                    {16, 16}, {16, 8},  {8, 8}};
  for (auto [wantedRows, wantedColumns] : shapes) {
    AttentionTiles tiles{};
    tiles.rows = std::min(wantedRows, enough(rows));
    tiles.columns = std::min(wantedColumns, enough(columns));
    tiles.threadRows = std::min(kSide, tiles.rows);
    tiles.threadColumns = std::min(kSide, tiles.columns);
    tiles.headLine = getLine(heads.head);
    tiles.valueLine = getLine(heads.value);
    tiles.line = getLine(tiles.columns);
    int64_t ofRows = tiles.headLine + (isBackward ? tiles.valueLine : 0);
    tiles.sharedBytes = bytes * (tiles.rows * (ofRows + tiles.line) +
                                 tiles.columns * (tiles.headLine + tiles.valueLine));
    int64_t registers = countRegisters(heads, tiles, heads.value);
    if (isBackward)
      registers += countRegisters(heads, tiles, heads.head);
    if (tiles.sharedBytes <= sharedBytes && registers <= kMostRegisters)
      return tiles;
  }
  return std::nullopt;
}

int64_t mlir::memopt::getAttentionWorkspace(AttentionAttr call) {
  if (call.getKind() == AttentionKind::Forward)
    return 0;
  int64_t numbers = call.getBatch() * call.getHeads() * call.getQueryLength();
  return numbers * (call.getAccumulator().getIntOrFloatBitWidth() / 8);
}

bool mlir::memopt::fitsAttentionTiles(const AttentionHeads &heads, int64_t sharedBytes) {
  return chooseAttentionTiles(heads, sharedBytes, 1, 1, /*isBackward=*/true).has_value();
}
