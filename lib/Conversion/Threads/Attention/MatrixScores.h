//===- MatrixScores.h - scores of 16-bit vectors ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From products to probabilities, by powers of two, which the device has an instruction for. A score
// is the product times the scale, and its logarithm to the base of two one multiplication more: where
// nothing is added to scores both are one factor, which is part of a multiply-add.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_MATRIXSCORES_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_MATRIXSCORES_H

#include "CallBlock.h"
#include "MatrixBlock.h"

namespace mlir::memopt {

inline constexpr double kLog2OfE = 1.4426950408889634;

/// Where a tile of scores lies.
struct MatrixScorePlace {
  Value batch, head, keyHead;
  Value firstRow, firstColumn; ///< tokens
  bool rowsAreQueries;
};

/// Which of a thread's scores dropout keeps: for 16 rows, the bits 4 c of words 2 h + p tell of the
/// columns c, halves h and parities p of MatrixPlace. Empty without dropout.
using KeptScores = SmallVector<std::array<Value, 4>>;

class MatrixScores : public CallBlock<MatrixBlock> {
public:
  MatrixScores(OpBuilder &builder, Location location, AttentionAttr call, const MatrixTiles &tiles,
               const AttentionArguments &arguments);

  /// Buffer `number` of the call as vectors of heads.
  MatrixView getView(unsigned number, ArrayRef<int64_t> strides, int64_t tokens, int64_t features) {
    return {buffers[number], SmallVector<int64_t, 4>(strides), tokens, features};
  }
  MatrixView getQueries() { return getView(0, call.getQStrides(), queries, head); }
  MatrixView getKeys() { return getView(1, call.getKStrides(), keys, head); }
  MatrixView getValues() { return getView(2, call.getVStrides(), keys, value); }
  MatrixView getOutput() { return getView(firstOut, call.getOStrides(), queries, value); }
  MatrixView getGradient() { return getView(firstOut + 2, call.getDoStrides(), queries, value); }
  /// The numbers, f32, that `buffer` has of the queries of a head.
  Value getOfQueries(unsigned buffer, const MatrixScorePlace &place);

  /// Scores of products: scaled and with their mask, but for a factor of getFactor().
  Values getScores(Values products, const MatrixScorePlace &place);
  /// Minus infinity for scores that take no part.
  Values hide(Values scores, const MatrixScorePlace &place);
  /// What is to be subtracted from scores, as `exponentiate` wants it: a score, or a logarithm.
  Value prepare(Value subtracted);
  Value prepareLogarithm(Value subtracted);
  /// e to the power of `score` minus what was prepared.
  Value exponentiate(Value score, Value prepared);
  /// From the unit of scores to that of logarithms.
  Value toLogarithm(Value score);

  KeptScores drawKept(const MatrixScorePlace &place);
  /// `value`, or 0 where dropout drops it. What is kept is to be multiplied by getKeepFactor().
  Value drop(Value value, const KeptScores &kept, const MatrixPlace &at);
  double getKeepFactor() const;

private:
  bool hasNumbers() const { return call.getMaskType() && !call.getMaskType().isInteger(1); }
  bool hasBits() const { return call.getMaskType() && call.getMaskType().isInteger(1); }
  /// Whether the scale is part of the power's multiply-add. A maximum is one before and behind a
  /// factor above 0 only.
  bool isScaledLate() const { return !hasNumbers() && call.getScale().getValueAsDouble() > 0; }
  Value getQuery(const MatrixScorePlace &place, const MatrixPlace &at);
  Value getKey(const MatrixScorePlace &place, const MatrixPlace &at);
  Value loadMask(const MatrixScorePlace &place, const MatrixPlace &at, Type stored);
  Value isVisible(const MatrixScorePlace &place, const MatrixPlace &at);
  bool cutsKeys(const MatrixScorePlace &place) const;
  Value isWhole(const MatrixScorePlace &place);
  Value getScoreNumber(const MatrixScorePlace &place, Value query, Value key);
  using DrawFn = llvm::function_ref<Value(Value)>;
  Value drawBits(int64_t count, int64_t bits, DrawFn draw);
  std::array<Value, 4> drawOfQueries(const MatrixScorePlace &place, int64_t matrix,
                                     Value threshold);
  std::array<Value, 4> drawOfKeys(const MatrixScorePlace &place, int64_t matrix, Value threshold);
  std::array<Value, 4> drawEach(const MatrixScorePlace &place, int64_t matrix, Value threshold);
  Value drawFour(Value counter, Value threshold);
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_MATRIXSCORES_H
