//===- AttentionBlock.h - a block of threads at attention -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What kernels of attention are made of: a block of threads, which stand in rows and columns, works
// on tiles in shared memory. Thread (y, x) has the rows y, y + threadRows, ... of a tile of scores
// and the columns x, x + threadColumns, ... of each; of a tile of vectors it has the same rows and
// every threadColumns-th access of 16 bytes. The threads of a row are neighbours in a warp: sums
// over a row are shuffles, and what they hand to each other needs no barrier of the block.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONBLOCK_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONBLOCK_H

#include "BlockBuilder.h"
#include "memopt/Dialect/Kernels/AttentionTiles.h"

namespace mlir::memopt {

/// Vectors of one kind in memory, the features of each side by side.
struct VectorView {
  Value base;                      ///< pointer to the first element
  SmallVector<int64_t, 4> strides; ///< [batch, head, token, feature]
  int64_t tokens, features;
  Type element;
  bool isAligned; ///< an access of 16 computed bytes may take a vector of elements
};

/// A tile of vectors, or of scores, in shared memory.
struct SharedTile {
  Value base;
  int64_t lines, features, stride;
};

class AttentionBlock : public BlockBuilder {
public:
  AttentionBlock(OpBuilder &builder, Location location, const DeviceOps &ops,
                 const AttentionTiles &tiles, Type type);

  // Numbers.
  Value exponentiate(Value x) { return callMath("math.exp", x); }
  Value logarithm(Value x) { return callMath("math.log", x); }
  /// To or from the type that is computed in; `x` may be a vector.
  Value convert(Value x, Type element);
  Value pickLane(Value vector, int64_t lane);
  Value repeat(Value x);

  /// What the threads of a row have written is there for each other.
  void synchronizeRows();

  /// The next piece of the block's shared memory.
  SharedTile addTile(int64_t lines, int64_t features, int64_t stride);

  // Threads.
  Value rowOf(int64_t number) { return add(y, number * tiles.threadRows); }
  Value columnOf(int64_t number) { return add(x, number * tiles.threadColumns); }
  int64_t getRows() const { return tiles.rows / tiles.threadRows; }
  int64_t getColumns() const { return tiles.columns / tiles.threadColumns; }
  int64_t getVectors(int64_t features) const;
  /// What all threads of a row have of one number.
  Value sumOverRow(Value value);
  Value maximumOverRow(Value value);

  // Tiles.
  /// The element with these indices, which may be fewer than strides.
  Value getOffset(ArrayRef<int64_t> strides, ArrayRef<Value> indices);
  /// The first element of a token of one head.
  Value getToken(const VectorView &view, Value batch, Value head, Value token);
  /// Puts vectors from token `first` on into `tile`, zeros behind the last.
  void fill(const SharedTile &tile, const VectorView &view, Value batch, Value head, Value first);
  /// This thread's products of the rows of `a` with those of `b`, row by row.
  Values multiplyRows(const SharedTile &a, const SharedTile &b);
  /// Adds, to this thread's part of vectors, those of `vectors` times its rows of `scores`.
  Values accumulate(const SharedTile &scores, const SharedTile &vectors, ValueRange sums);
  /// Stores this thread's scores.
  void putScores(const SharedTile &tile, ValueRange scores);
  /// Zeros for this thread's part of vectors.
  Values getZeros(int64_t features);
  /// Stores this thread's part of vectors from token `first` on.
  void storeVectors(const VectorView &view, Value batch, Value head, Value first, ValueRange parts);

  const AttentionTiles tiles;
  const int64_t bytes, lanes; ///< of an element; elements in 16 bytes
  Value block, thread, x, y;

private:
  Value callMath(StringRef name, Value x);
  Value getGroup(int64_t number, int64_t groups);
  Value foldRow(Value value, llvm::function_ref<Value(Value, Value)> fold);
  Type getLanes() { return VectorType::get({lanes}, type); }

  Value shared;
  int64_t sharedElements = 0;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONBLOCK_H
