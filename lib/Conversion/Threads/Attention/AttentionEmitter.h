//===- AttentionEmitter.h - the kernels of attention ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONEMITTER_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONEMITTER_H

#include "AttentionScores.h"

namespace mlir::memopt {

/// Sizes of a mask's gradient; 1 where it is summed up.
SmallVector<int64_t, 4> getMaskShape(AttentionAttr call);

class AttentionEmitter : public AttentionScores {
public:
  using AttentionScores::AttentionScores;

  void emitForward();
  void emitQueryGradient();
  void emitKeyGradient();
  void emitMaskGradient();

private:
  // Forward.
  struct Sums {
    MutableArrayRef<Value> maxima, sums, parts; ///< of this thread's rows, and vectors
  };
  void addTile(const Sums &sums, Values &scores, const ScorePlace &place);
  void finish(const Sums &sums, const ScorePlace &place);

  // Backward.
  void writeDeltas(const SharedTile &gradients, const ScorePlace &place);
  Values addMaskTile(ValueRange before, const ScorePlace &place);
  void storeMaskGradient(Values sums, const ScorePlace &place);

  /// The block's rows of one head. Heads follow each other, so that blocks with most work, the last
  /// under a causal mask, begin first.
  ScorePlace openQueryRows();
  /// Where the keys end that rows from `first` on see.
  Value getKeyEnd(Value firstQuery);

  struct Tiles {
    SharedTile queries, keys, values, gradients, scores;
  };
  Tiles addTiles(bool isBackward, bool rowsAreQueries);
  VectorView getGradientView() {
    return getView(firstOut + 2, call.getDoStrides(), queries, value);
  }
  unsigned getResult(unsigned number) const { return firstOut + 3 + number; }

  Tiles tile;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_ATTENTIONEMITTER_H
