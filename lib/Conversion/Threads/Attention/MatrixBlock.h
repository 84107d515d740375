//===- MatrixBlock.h - warps at products of matrices ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What kernels of attention on tensor cores are made of. The warps of a block stand one below the
// other in the rows of a tile of scores; a warp has 16 rows, or several times 16, of all columns.
// Vectors lie in shared memory, and sums in registers, as the instructions hand them out: of 16 rows
// and 8 columns a thread has four numbers, of the rows lane / 4 and 8 more, and of the columns
// 2 (lane mod 4) and 1 more. Scores in these places are the left operand of the next product as they
// are, rounded to 16 bits.
//
// Vectors of columns come tile by tile into one of two buffers, while the tile in the other one is
// computed with: one wait and one barrier for each tile.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_MATRIXBLOCK_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_MATRIXBLOCK_H

#include "BlockBuilder.h"
#include "memopt/Dialect/Kernels/AttentionTiles.h"

namespace mlir::memopt {

/// Vectors of 16-bit numbers in memory, the features of each side by side, at multiples of 16 bytes.
struct MatrixView {
  Value base;
  SmallVector<int64_t, 4> strides; ///< [batch, head, token, feature]
  int64_t tokens, features;
};

/// Vectors in shared memory.
struct MatrixTile {
  int64_t begin; ///< bytes
  int64_t rows, features;

  int64_t getLine() const { return getMatrixLine(features); }
  int64_t getBytes() const { return rows * getLine(); }
};

/// The place of one of a thread's four numbers of 16 rows and 8 columns.
struct MatrixPlace {
  int64_t matrix; ///< of 16 rows, in the warp's
  int64_t half;   ///< the upper or the lower eight rows
  int64_t column; ///< of 8 columns, in the tile's
  int64_t parity; ///< the left or the right one of two columns

  int64_t getRow() const { return matrix * 16 + half * 8; }
  int64_t getColumn() const { return column * 8 + parity; }
  /// Of the rows that a thread has.
  int64_t getRowNumber() const { return matrix * 2 + half; }
};

class MatrixBlock : public BlockBuilder {
public:
  MatrixBlock(OpBuilder &builder, Location location, const DeviceOps &ops, const MatrixTiles &tiles,
              Type element);

  // Indices, i32, and numbers, f32.
  Value subtract(Value x, Value y);
  Value shiftRight(Value x, Value y);
  Value both(Value x, Value y); ///< bits, or conditions; a condition may be null
  Value widen(Value x);         ///< to i64
  Value multiplyAdd(Value x, Value y, Value z);
  Value larger(Value x, Value y); ///< the other one where one is no number
  Value negate(Value x);
  Value toNumber(Value x); ///< of the element type, to f32

  // Control.
  Values choose(Value condition, TypeRange types, llvm::function_ref<Values()> yes,
                llvm::function_ref<Values()> no);
  void awaitCopies() { ops.awaitCopies(b); }
  Value shuffle(Value value, int64_t distance);
  /// What the four threads of a row have of one number.
  Value sumOverRow(Value value);
  Value maximumOverRow(Value value);

  // Memory.
  /// The first element of a head, and that of a token.
  Value getHead(const MatrixView &view, Value batch, Value head);
  Value getToken(const MatrixView &view, Value ofHead, Value token);
  MatrixTile addTile(int64_t rows, int64_t features, int64_t buffers = 1);
  int64_t addBytes(int64_t bytes);
  Value getShared(Value offset); ///< the byte `offset`, an i32
  /// Begins to copy the vectors of a head from token `first` on into buffer `buffer` of a tile,
  /// null for the only one; zeros behind the last token.
  void fetch(const MatrixTile &tile, Value buffer, const MatrixView &view, Value ofHead,
             Value first);
  /// Stores the warp's rows of `sums`, multiplied by `factors`, one for each row of a thread.
  void storeRows(const MatrixView &view, Value ofHead, Value first, ValueRange sums,
                 ValueRange factors);

  // Products. Sums are in order of 16 rows, 8 columns and a thread's four.
  int64_t getMatrices() const { return tiles.getRowsOfWarp() / 16; }
  int64_t getRowCount() const { return getMatrices() * 2; }
  Values getZeros(int64_t columns) { return Values(getMatrices() * columns / 2, number(0)); }
  static int64_t getNumber(const MatrixPlace &at, int64_t columns) {
    return ((at.matrix * columns / 8 + at.column) * 2 + at.half) * 2 + at.parity;
  }
  /// Calls `visit` for each number of a thread, in order.
  void forEach(int64_t columns, llvm::function_ref<void(const MatrixPlace &)> visit);
  /// The warp's rows of `rows` times all of `columns`.
  Values multiplyRows(const MatrixTile &rows, const MatrixTile &columns, Value buffer);
  /// Adds scores, rounded, times the vectors of columns to `sums`.
  Values accumulate(ValueRange sums, ValueRange scores, const MatrixTile &vectors, Value buffer);

  // Tokens, counted from the tile's first.
  Value getRow(const MatrixPlace &at) { return add(ofRow, at.getRow()); }
  Value getColumn(const MatrixPlace &at) { return add(ofColumn, at.getColumn()); }

  const MatrixTiles tiles;
  const Type element; ///< of vectors
  Value block, thread, lane, warp;
  Value ofRow, ofColumn; ///< the thread's first row and column in the tile

private:
  Value getBegin(const MatrixTile &tile, Value buffer);
  Value swizzle(const MatrixTile &tile, Value row, Value piece);
  Value getPiece(const MatrixTile &tile, Value begin, Value row, Value piece);
  std::array<Value, 4> loadMatrices(const MatrixTile &tile, Value piece, int64_t row,
                                    int64_t feature, bool isTransposed);
  Value round(Value low, Value high);
  void multiplyColumns(MutableArrayRef<Value> sums, int64_t columns, int64_t first,
                       ArrayRef<std::array<Value, 4>> left, const std::array<Value, 4> &right);
  void multiplyAdd(MutableArrayRef<Value> sums, ArrayRef<Value> left, ArrayRef<Value> right);

  Value shared;
  int64_t sharedBytes = 0;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_MATRIXBLOCK_H
