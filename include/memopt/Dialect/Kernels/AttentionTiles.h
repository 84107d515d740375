//===- AttentionTiles.h - attention on the threads of a device --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How kernels of a device cut the scores of attention. A block of threads owns the rows of a tile
// and goes through all columns, tile by tile, with the vectors of both in shared memory. Rows are
// queries and columns keys, or the other way around.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_KERNELS_ATTENTIONTILES_H
#define MEMOPT_DIALECT_KERNELS_ATTENTIONTILES_H

#include "memopt/Dialect/Memopt.h"

#include <optional>

namespace mlir::memopt {

/// The implementation of a library call that is kernels of the package, which the program launches.
inline constexpr llvm::StringLiteral kOwnKernels = "memopt:kernels";

/// Vectors of queries and keys have `head` features, those of values `value`.
struct AttentionHeads {
  int64_t head, value;
  Type type; ///< that scores are computed in

  static AttentionHeads of(AttentionAttr call) {
    return {call.getHeadDim(), call.getValueDim(), call.getAccumulator()};
  }
  /// Features in one access of 16 bytes.
  int64_t getVector() const { return 16 / (type.getIntOrFloatBitWidth() / 8); }
};

struct AttentionTiles {
  int64_t rows, columns;             ///< of a tile of scores
  int64_t threadRows, threadColumns; ///< the threads of a block; columns are neighbours in a warp
  int64_t headLine, valueLine, line; ///< elements from one line in shared memory to the next
  int64_t sharedBytes;

  int64_t getThreads() const { return threadRows * threadColumns; }
};

/// The kernels of a call, which run in order. Those of a gradient leave in the call's workspace what
/// later ones need.
enum class AttentionStage { Forward, QueryGradient, KeyGradient, MaskGradient };

/// How warps cut scores of 16-bit vectors, whose products tensor cores make. A warp owns as many
/// rows as the others, one warp below the other, of all columns.
struct MatrixTiles {
  int64_t rows, columns; ///< of a tile of scores
  int64_t warps;
  int64_t blocks; ///< whose registers fit a multiprocessor
  int64_t sharedBytes;

  int64_t getThreads() const { return warps * 32; }
  int64_t getRowsOfWarp() const { return rows / warps; }
};

/// Bytes from one vector to the next in shared memory: as many as it has where pieces of 16 bytes
/// change places within 128 bytes, else one piece more.
int64_t getMatrixLine(int64_t features);
bool swizzlesMatrixLines(int64_t features);

/// Nothing where single numbers are multiplied: for vectors of other types or odd sizes, on chips
/// without the instructions, for gradients of masks.
std::optional<MatrixTiles> chooseMatrixTiles(AttentionAttr call, AttentionStage stage,
                                             TargetAttrInterface target);

/// Shared memory that the target's chip gives a block.
int64_t getBlockSharedBytes(TargetAttrInterface target);

/// The largest tiles that `sharedBytes` of a block and registers are enough for, not much larger
/// than what there is of rows and columns. `isBackward`: of both, vectors of both kinds are held.
/// Nothing where heads are too wide.
std::optional<AttentionTiles> chooseAttentionTiles(const AttentionHeads &heads, int64_t sharedBytes,
                                                   int64_t rows, int64_t columns, bool isBackward);

/// A number of each query, which the kernels of a gradient share.
int64_t getAttentionWorkspace(AttentionAttr call);

/// Whether heads are narrow enough for both directions.
bool fitsAttentionTiles(const AttentionHeads &heads, int64_t sharedBytes);

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_KERNELS_ATTENTIONTILES_H
