//===- AttentionTiles.h - what both directions of attention share -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention by tiles of up to attentionTile queries and keys; no matrix of scores exists.
// The method is FlashAttention's (Dao et al., arXiv:2205.14135; backward as in arXiv:2307.08691):
// forward keeps a running maximum and sum for each query, backward makes the probabilities again
// from the log-sum-exp that forward saved.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_OWN_ATTENTIONTILES_H
#define MEMOPT_RUNTIME_LIB_KERNELS_OWN_ATTENTIONTILES_H

#include "RowKernels.h"
#include "memopt-runtime/descriptors/AttentionDescriptor.h"
#include "memopt-runtime/kernels/own/BlockedProduct.h"
#include "memopt-runtime/kernels/own/SlotTasks.h"
#include "memopt-runtime/numbers/Philox.h"
#include <cmath>
#include <limits>

namespace memopt::libraries {

/// Tokens by features in memory.
template <typename S> struct TokenMatrix {
  S *data;
  int64_t tokenStride, featureStride;

  TokenMatrix from(int64_t token) const {
    return {data + token * tokenStride, tokenStride, featureStride};
  }
};

template <typename S>
TokenMatrix<S> headMatrix(void *buffer, const HeadStrides &strides, int64_t batch, int64_t head) {
  return {static_cast<S *>(buffer) + batch * strides[0] + head * strides[1], strides[2],
          strides[3]};
}

/// A tile of tokens.
struct TokenRange {
  int64_t begin, count;
};

/// Tokens in tiles of about one size: a nearly empty one would cost as much packing as the others.
class TokenTiles {
public:
  /// Tiles of whole panels, so that only the last one has lanes without a token.
  TokenTiles(int64_t tokens, int64_t most, int64_t panel)
      : tokens(tokens), size(std::max(panel, cutEvenly(tokens, most / panel * panel, panel))) {}

  int64_t count() const { return ceilDivide(tokens, size); }
  /// Of the largest tile; a multiple of the panel.
  int64_t tileSize() const { return size; }
  TokenRange operator[](int64_t tile) const {
    return {tile * size, std::min(size, tokens - tile * size)};
  }

private:
  int64_t tokens, size;
};

/// A right operand: packed, or read where it is.
template <typename T> struct RightOperand {
  const T *data;
  int64_t panelStride, depthStride;
};

template <typename S, typename T> class AttentionTiles {
public:
  explicit AttentionTiles(const AttentionDescriptor &d)
      : d(d), headPadded(roundUp(d.headSize, blocks.columnsPerPanel)),
        valuePadded(roundUp(d.valueSize, blocks.columnsPerPanel)),
        queryTiles(d.queries, mostTokens(), blocks.rowsPerPanel),
        keyTiles(d.keys, mostTokens(), blocks.columnsPerPanel),
        threshold(dropoutThreshold(d.dropoutProbability)),
        keepFactor(static_cast<T>(1 / (1 - d.dropoutProbability))) {}

  /// Elements that a left operand of `tokens` rows takes.
  int64_t leftElements(int64_t tokens, int64_t features) const {
    return tokens * (isCopied(features) ? attentionStride : features);
  }
  /// Left operand: rows are tokens, depth is features, times a factor. Rows that a tile's stride
  /// holds are copied as they are, which takes less than packing them.
  void takeRows(T *target, const TokenMatrix<const S> &matrix, const TokenTiles &tiles,
                int64_t tokens, int64_t features, T factor) const {
    if (isCopied(features))
      return blocks.copyRows(target, attentionStride, matrix.data, matrix.tokenStride,
                             matrix.featureStride, tokens, features, factor);
    packTokens({target, blocks.rowsPerPanel, features}, matrix, tokens, features);
    if (factor != 1)
      rows.scale(target, tiles.tileSize() * features, factor);
  }
  /// Right operand: lanes are tokens, depth is features.
  void packColumns(T *panels, const TokenMatrix<const S> &matrix, int64_t tokens,
                   int64_t features) const {
    packTokens({panels, blocks.columnsPerPanel, features}, matrix, tokens, features);
  }

  /// Right operand: lanes are features, depth is tokens. In place if features lie together and
  /// tokens near each other.
  RightOperand<T> featureColumns(T *panels, const TokenMatrix<const S> &matrix, int64_t tokens,
                                 int64_t features) const {
    if constexpr (std::is_same_v<S, T>)
      if (matrix.featureStride == 1 && areNearSteps<S>(matrix.tokenStride) &&
          features % blocks.columnsPerPanel == 0)
        return {matrix.data, blocks.columnsPerPanel, matrix.tokenStride};
    const S *step[attentionTile];
    for (int64_t i = 0; i < tokens; ++i)
      step[i] = matrix.data + i * matrix.tokenStride;
    blocks.packSteps({panels, blocks.columnsPerPanel, tokens}, 0, step, tokens, features,
                     matrix.featureStride);
    return {panels, blocks.columnsPerPanel * tokens, blocks.columnsPerPanel};
  }

  /// tile[i][j] = rows i . columns j over `features`, with rows that takeRows left.
  void multiplyTokens(T *tile, const T *rows, int64_t rowCount, const T *columns,
                      int64_t columnCount, int64_t features) const {
    bool isCopy = isCopied(features);
    int64_t rowStride = isCopy ? attentionStride : 1;
    blocks.multiply(rowPanels(rowCount), columnPanels(columnCount), features, rows,
                    blocks.rowsPerPanel * (isCopy ? attentionStride : features), rowStride,
                    isCopy ? 1 : blocks.rowsPerPanel, columns, blocks.columnsPerPanel * features,
                    blocks.columnsPerPanel, tile, attentionStride, false, /*bias=*/nullptr);
  }

  /// result[i] (+)= sum over j < depth of tile[i][j] * right[j]
  void multiplyTile(T *result, int64_t resultStride, const T *tile, int64_t rows, int64_t depth,
                    const RightOperand<T> &right, int64_t features, bool accumulate) const {
    blocks.multiply(rowPanels(rows), columnPanels(features), depth, tile,
                    blocks.rowsPerPanel * attentionStride, attentionStride, 1, right.data,
                    right.panelStride, right.depthStride, result, resultStride, accumulate,
                    /*bias=*/nullptr);
  }

  /// result[j] (+)= sum over i < depth of tile[i][j] * right[i]
  void multiplyTransposed(T *result, int64_t resultStride, const T *tile, int64_t rows,
                          int64_t depth, const RightOperand<T> &right, int64_t features,
                          bool accumulate) const {
    blocks.multiply(rowPanels(rows), columnPanels(features), depth, tile, blocks.rowsPerPanel, 1,
                    attentionStride, right.data, right.panelStride, right.depthStride, result,
                    resultStride, accumulate, /*bias=*/nullptr);
  }

  /// Adds the mask to the scores of query `query` against keys [keyBegin, keyBegin + keys) and
  /// makes what the query must not see, and the padding up to `padded`, minus infinity.
  void hide(T *row, void *const *buffers, int64_t batch, int64_t head, int64_t query,
            int64_t keyBegin, int64_t keys, int64_t padded) const {
    constexpr T hidden = -std::numeric_limits<T>::infinity();
    int64_t visible = d.causal ? std::clamp<int64_t>(query + 1 - keyBegin, 0, keys) : keys;
    std::fill(row + visible, row + padded, hidden);
    if (d.mask == MaskType::None)
      return;
    const HeadStrides &s = d.maskStrides;
    int64_t first = batch * s[0] + head * s[1] + query * s[2] + keyBegin * s[3];
    const void *mask = buffers[d.maskIndex()];
    if (d.mask == MaskType::Boolean)
      for (int64_t j = 0; j < visible; ++j)
        row[j] = static_cast<const uint8_t *>(mask)[first + j * s[3]] ? row[j] : hidden;
    else if (d.mask == MaskType::F32)
      for (int64_t j = 0; j < visible; ++j)
        row[j] += static_cast<const float *>(mask)[first + j * s[3]];
    else
      for (int64_t j = 0; j < visible; ++j)
        row[j] += static_cast<T>(static_cast<const double *>(mask)[first + j * s[3]]);
  }

  /// Drops elements of a row of probabilities.
  void drop(T *row, void *const *buffers, int64_t batch, int64_t head, int64_t query,
            int64_t keyBegin, int64_t keys) const {
    if (d.dropout)
      rows.dropout(row, keys, randomRow(buffers, batch, head, query, keyBegin), threshold,
                   keepFactor);
  }

  /// Turns a row of gradients of dropped probabilities into gradients of scores, and drops the
  /// probabilities.
  void differentiate(T *gradient, T *probability, T delta, void *const *buffers, int64_t batch,
                     int64_t head, int64_t query, int64_t keyBegin, int64_t keys,
                     int64_t padded) const {
    if (d.dropout)
      rows.dropoutGradient(gradient, probability, keys, delta,
                           randomRow(buffers, batch, head, query, keyBegin), threshold, keepFactor);
    else
      rows.softmaxGradient(gradient, probability, padded, delta);
  }

  /// Elements of a tile of scores.
  int64_t tileElements() const { return queryTiles.tileSize() * attentionStride; }
  /// Rows of a result whose rows are the keys of a tile.
  int64_t keyRows() const { return roundUp(keyTiles.tileSize(), blocks.rowsPerPanel); }

  int64_t rowPanels(int64_t count) const { return ceilDivide(count, blocks.rowsPerPanel); }
  int64_t columnPanels(int64_t count) const { return ceilDivide(count, blocks.columnsPerPanel); }

  const AttentionDescriptor &d;
  const BlockKernels<S, T> &blocks = blockKernels<S, T>();
  const RowKernels<T> &rows = rowKernels<T>();
  /// Features of a row of a result tile, rounded up to whole panels.
  const int64_t headPadded, valuePadded;
  const TokenTiles queryTiles, keyTiles;

private:
  static bool isCopied(int64_t features) { return features <= attentionStride; }

  /// Half of what large tiles on the diagonal of a causal mask compute would be hidden.
  int64_t mostTokens() const { return d.causal ? attentionTile * 3 / 4 : attentionTile; }

  RandomRow randomRow(void *const *buffers, int64_t batch, int64_t head, int64_t query,
                      int64_t keyBegin) const {
    int64_t element = ((batch * d.heads + head) * d.queries + query) * d.keys + keyBegin;
    auto scalar = [&](int number) {
      return *static_cast<const int64_t *>(buffers[d.seedIndex() + number]);
    };
    if (d.dropoutFirst)
      element += scalar(2);
    return {element, scalar(1), d.dropoutId, scalar(0)};
  }

  void packTokens(Panels<T> panels, const TokenMatrix<const S> &matrix, int64_t tokens,
                  int64_t features) const {
    const S *lane[attentionTile];
    for (int64_t i = 0; i < tokens; ++i)
      lane[i] = matrix.data + i * matrix.tokenStride;
    blocks.packLanes(panels, 0, lane, tokens, features, matrix.featureStride);
  }

  const uint64_t threshold;
  const T keepFactor;
};

/// Cuts a slot's memory into arrays. Run on a null base it measures.
template <typename T> class ScratchCutter {
public:
  explicit ScratchCutter(void *base) : base(static_cast<char *>(base)) {}
  T *take(int64_t count) {
    int64_t offset = bytes;
    bytes += alignBytes(count * static_cast<int64_t>(sizeof(T)));
    return base ? reinterpret_cast<T *>(base + offset) : nullptr;
  }
  int64_t bytes = 0;

private:
  char *base;
};

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_OWN_ATTENTIONTILES_H
