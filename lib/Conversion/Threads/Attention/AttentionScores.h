//===- AttentionScores.h - tiles of scores and their gradients --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONSCORES_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONSCORES_H

#include "AttentionBlock.h"
#include "CallBlock.h"

namespace mlir::memopt {

/// Where a tile of scores lies.
struct ScorePlace {
  Value batch, head;
  Value firstQuery, firstKey;
  bool rowsAreQueries;
};

/// One element of a tile, in this thread's registers.
struct ScoreElement {
  int64_t row, column; ///< numbers of this thread
  Value query, key;
};

class AttentionScores : public CallBlock<AttentionBlock> {
public:
  AttentionScores(OpBuilder &builder, Location location, AttentionAttr call,
                  const AttentionTiles &tiles, const AttentionArguments &arguments);

  /// Buffer `number` of the call as vectors of heads.
  VectorView getView(unsigned number, ArrayRef<int64_t> strides, int64_t tokens, int64_t features);
  VectorView getQueries() { return getView(0, call.getQStrides(), queries, head); }
  VectorView getKeys() { return getView(1, call.getKStrides(), keys, head); }
  VectorView getValues() { return getView(2, call.getVStrides(), keys, value); }
  VectorView getOutput() { return getView(firstOut, call.getOStrides(), queries, value); }
  /// A number of each query, at `buffer`.
  Value getOfQuery(unsigned buffer, Value batch, Value head, Value query);
  Value loadOfQuery(unsigned buffer, Value batch, Value head, Value query);

  /// Runs `body` for this thread's elements of a tile, row by row.
  Values mapScores(const ScorePlace &place, llvm::function_ref<Value(const ScoreElement &)> body);
  int64_t numberOf(const ScoreElement &at) const { return at.row * getColumns() + at.column; }

  /// From a product to the score.
  Value scaleScore(Value product, const ScorePlace &place, const ScoreElement &at);
  /// Whether it takes part; null where all do.
  Value isVisible(const ScorePlace &place, const ScoreElement &at);
  /// A bit for each of this thread's elements, i32: whether dropout keeps it; null without dropout.
  Value drawKept(const ScorePlace &place);
  /// `value` as dropout leaves it.
  Value drop(Value value, Value kept, const ScoreElement &at);

  /// Probabilities of a tile, whose products are `products`.
  Values getProbabilities(ValueRange products, const ScorePlace &place);
  /// The gradients of its scores. `products`: those of values and the result's gradient.
  Values getGradients(ValueRange probabilities, ValueRange products, Value kept,
                      const ScorePlace &place);

  Value getKeyHead(Value head) { return divide(head, heads / groups); }

private:
  Value getInMask(unsigned buffer, ArrayRef<int64_t> strides, const ScorePlace &place,
                  const ScoreElement &at, Type element);

  SmallVector<int64_t> offsets;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONSCORES_H
