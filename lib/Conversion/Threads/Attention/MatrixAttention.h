//===- MatrixAttention.h - attention on tensor cores ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The kernels of AttentionEmitter.h for vectors of 16 bits. Probabilities and the gradients of scores
// are rounded to the type of the vectors before they are multiplied; sums are f32.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_MATRIXATTENTION_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_MATRIXATTENTION_H

#include "MatrixScores.h"

namespace mlir::memopt {

class MatrixAttention : public MatrixScores {
public:
  using MatrixScores::MatrixScores;

  void emitForward();
  void emitQueryGradient();
  void emitKeyGradient();

private:
  /// Vectors of one kind: all of them, those of the block's head, and where they are computed with.
  struct Vectors {
    MatrixView view;
    Value ofHead;
    MatrixTile tile;
  };
  Vectors openVectors(const MatrixView &view, Value ofBatch, Value ofHead, int64_t rows,
                      int64_t buffers);
  void fetch(const Vectors &vectors, Value buffer, Value first) {
    MatrixBlock::fetch(vectors.tile, buffer, vectors.view, vectors.ofHead, first);
  }

  /// The block's rows of one head. Tiles of a head follow each other, so that blocks that run at once
  /// share its keys and values; those with most work, the last under a causal mask, begin first.
  MatrixScorePlace openQueryRows();
  /// Calls `body` for the tiles of keys that the block's queries see, with place, buffer and what
  /// is carried.
  using TileFn = llvm::function_ref<Values(const MatrixScorePlace &, Value, ValueRange)>;
  Values forEachKeyTile(const MatrixScorePlace &place, const Vectors &ofKeys,
                        const Vectors &ofValues, ValueRange carried, TileFn body);

  // Forward.
  Values addTile(ValueRange before, Values scores, const KeptScores &kept, const Vectors &ofValues,
                 Value buffer);
  Value replaceBlind(Value maximum, Value lowest);
  void finish(ValueRange ends, const MatrixScorePlace &place);

  // Backward.
  struct OfRows {
    Values logarithms, deltas; ///< of a thread's rows
  };
  OfRows openDeltas(const MatrixScorePlace &place);
  Value sumProducts(const MatrixPlace &at, Value out, Value gradient);
  Values getGradients(ValueRange probabilities, ValueRange products, const KeptScores &kept,
                      llvm::function_ref<Value(const MatrixPlace &)> getDelta);
  /// The queries of a tile, one head after the other.
  struct QueryTile {
    Value head, first;
  };
  /// What the block of some keys reads of queries.
  struct QueryBuffers {
    Vectors queries, gradients;
    int64_t numbers; ///< logarithms, then deltas, of the queries of a tile; bytes
  };
  void fetchQueries(const QueryBuffers &buffers, MatrixScorePlace place, const QueryTile &tile,
                    Value buffer);
  Values addQueries(ValueRange before, const MatrixScorePlace &place, const Vectors &ofKeys,
                    const Vectors &ofValues, const QueryBuffers &buffers, Value buffer);
  unsigned getResult(unsigned number) const { return firstOut + 3 + number; }
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_MATRIXATTENTION_H
