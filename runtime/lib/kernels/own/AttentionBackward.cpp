//===- AttentionBackward.cpp - the gradients of attention -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// With P the probabilities, D a dropout mask with its factor, and delta_i = dout_i . out_i:
//
//   dv = (D P)^T dout      dP = D (dout v^T)      dS = P (dP - delta)
//   dq = scale dS k        dk = scale dS^T q
//
// Where there are enough heads for the threads one task makes all three gradients of a head, tile of
// keys by tile of keys, adding to dq in memory. Where there are few, tasks are tiles: one pass makes
// dk and dv, another dq, and both make dS. Both ways sum in the same order, so that threads change
// no bit. A dq of 16 bits is summed in a wider copy. The gradient of a mask that is added is dS,
// summed over the batches and heads that share the mask: a pass of its own, whose tasks are tiles of
// the mask, so that no two add to one place and dS is never held.

#include "AttentionTiles.h"

using namespace memopt;
using namespace memopt::libraries;

namespace {

/// Products of a tile of scores: dS takes two, and each gradient one.
constexpr int64_t productsOfHead = 5, productsOfTiles = 7;

/// Bytes of a thread's wider copy of dq. More would be much beside the tiles of long sequences.
constexpr int64_t mostWideBytes = 1 << 20;

/// Whether the threads are busy long enough where tasks are whole heads: the longest has
/// ceilDivide(heads, threads) of them.
bool takesWholeHeads(int64_t heads, int threads) {
  return ceilDivide(heads, threads) * threads * productsOfHead <= heads * productsOfTiles;
}

/// Memory of one task. `waiting` are the queries whose sums over keys are under way at once.
template <typename S, typename T> struct BackwardScratch {
  BackwardScratch(const AttentionTiles<S, T> &tiles, int64_t waiting, void *base) : cutter(base) {
    int64_t queries = tiles.queryTiles.tileSize(), keys = tiles.keyTiles.tileSize();
    queryRows = cutter.take(tiles.leftElements(queries, tiles.d.headSize));
    gradientRows = cutter.take(tiles.leftElements(queries, tiles.d.valueSize));
    keyColumns = cutter.take(keys * tiles.d.headSize);
    valueColumns = cutter.take(keys * tiles.d.valueSize);
    headFeatures = cutter.take(std::max(queries, keys) * tiles.headPadded);
    valueFeatures = cutter.take(queries * tiles.valuePadded);
    probabilities = cutter.take(tiles.tileElements());
    scoreGradients = cutter.take(tiles.tileElements());
    dq = cutter.take(queries * tiles.headPadded);
    dk = cutter.take(tiles.keyRows() * tiles.headPadded);
    dv = cutter.take(tiles.keyRows() * tiles.valuePadded);
    deltas = cutter.take(waiting);
    wideDq = cutter.take(isHalf<S> ? waiting * tiles.d.headSize : 0);
  }

  ScratchCutter<T> cutter;
  T *queryRows, *gradientRows, *keyColumns, *valueColumns; ///< packed operands of scores and dP
  T *headFeatures, *valueFeatures; ///< packed right operands of the gradients, one at a time
  T *probabilities, *scoreGradients;
  T *dq, *dk, *dv;
  T *deltas, *wideDq; ///< of the queries that wait; the second of 16-bit gradients only
};

/// What is left of a tile of scores.
struct Sizes {
  int64_t queries, keys;
};

template <typename S, typename T> class AttentionBackward final : public LibraryCall {
public:
  AttentionBackward(const AttentionDescriptor &descriptor, int threads)
      : d(descriptor), tiles(d), queryTiles(tiles.queryTiles.count()),
        keyTiles(tiles.keyTiles.count()), sharing(d.headsOfKeyHead()),
        wholeHeads(takesWholeHeads(d.batch * d.kvHeads, threads) && wideBytes() <= mostWideBytes),
        slots(static_cast<int>(std::min<int64_t>(threads, std::max(mostTasks(), maskTasks())))),
        slotBytes(makeScratch(nullptr).cutter.bytes) {}

  int64_t workspaceBytes() const override { return slots * slotBytes; }
  std::string implementation() const override {
    return std::string(tiles.blocks.name) + ":attention";
  }

  Status run(void *const *buffers, ThreadPool &pool) override {
    runHeads(buffers, pool);
    if (d.maskGradient)
      runMask(buffers, pool);
    return Status::ok();
  }

private:
  using Scratch = BackwardScratch<S, T>;

  Scratch makeScratch(void *memory) const {
    return Scratch(tiles, wholeHeads ? sharing * d.queries : tiles.queryTiles.tileSize(), memory);
  }

  void runHeads(void *const *buffers, ThreadPool &pool) const {
    void *workspace = buffers[d.workspaceIndex()];
    int64_t kvHeads = d.batch * d.kvHeads;
    if (wholeHeads) {
      runTasks(pool, kvHeads, slots, slotBytes, workspace, [&](int64_t task, char *memory) {
        Scratch scratch = makeScratch(memory);
        for (int64_t tile = 0; tile < keyTiles; ++tile)
          runKeys(buffers, scratch, task, tile);
        for (int64_t head = task * sharing; head < (task + 1) * sharing; ++head)
          for (int64_t tile = 0; tile < queryTiles; ++tile)
            finishQueries(buffers, scratch, head, tiles.queryTiles[tile]);
      });
      return;
    }
    // Under a causal mask the first keys and the last queries have most work: they go first.
    runTasks(pool, kvHeads * keyTiles, slots, slotBytes, workspace,
             [&](int64_t task, char *memory) {
               Scratch scratch = makeScratch(memory);
               runKeys(buffers, scratch, task % kvHeads, task / kvHeads);
             });
    int64_t heads = d.batch * d.heads;
    runTasks(pool, heads * queryTiles, slots, slotBytes, workspace,
             [&](int64_t task, char *memory) {
               Scratch scratch = makeScratch(memory);
               runQueries(buffers, scratch, task % heads, queryTiles - 1 - task / heads);
             });
  }

  /// Tiles of queries of the mask, for each of its batches and heads.
  int64_t maskTasks() const {
    std::array<int64_t, 4> extents = d.maskExtents();
    return d.maskGradient ? extents[0] * extents[1] * (d.dMask[2] ? queryTiles : 1) : 0;
  }

  void runMask(void *const *buffers, ThreadPool &pool) const {
    std::array<int64_t, 4> extents = d.maskExtents();
    auto *result = static_cast<Wide<S> *>(buffers[d.outIndex() + 6]);
    std::fill(result, result + extents[0] * extents[1] * extents[2] * extents[3], Wide<S>(0));
    runTasks(pool, maskTasks(), slots, slotBytes, buffers[d.workspaceIndex()],
             [&](int64_t task, char *memory) {
               Scratch scratch = makeScratch(memory);
               int64_t batch = task % extents[0], head = task / extents[0] % extents[1];
               addToMask(buffers, scratch, batch, head, task / (extents[0] * extents[1]));
             });
  }

  /// Everything that shares this batch, head and tile of queries of the mask, in order.
  void addToMask(void *const *buffers, Scratch &scratch, int64_t batch, int64_t head,
                 int64_t tile) const {
    auto last = [](int64_t stride, int64_t first, int64_t extent) {
      return stride ? first + 1 : extent;
    };
    for (int64_t b = batch; b < last(d.dMask[0], batch, d.batch); ++b)
      for (int64_t h = head; h < last(d.dMask[1], head, d.heads); ++h)
        for (int64_t t = tile; t < last(d.dMask[2], tile, queryTiles); ++t)
          addQueriesToMask(buffers, scratch, b, h, tiles.queryTiles[t]);
  }

  void addQueriesToMask(void *const *buffers, Scratch &scratch, int64_t batch, int64_t head,
                        const TokenRange &queries) const {
    packQueries(buffers, scratch, batch * d.heads + head, queries);
    sumDeltas(buffers, batch * d.heads + head, queries, scratch.deltas);
    auto *result =
        static_cast<Wide<S> *>(buffers[d.outIndex() + 6]) + batch * d.dMask[0] + head * d.dMask[1];
    for (int64_t tile = 0; tile < keyTiles; ++tile) {
      TokenRange keys = tiles.keyTiles[tile];
      if (!meet(queries, keys))
        continue;
      packKeys(buffers, scratch, batch * d.kvHeads + head / sharing, keys);
      makeTile(buffers, scratch, batch * d.heads + head, queries, keys, scratch.deltas);
      Sizes sizes = sumShared(scratch.scoreGradients, {queries.count, keys.count});
      for (int64_t i = 0; i < sizes.queries; ++i)
        for (int64_t j = 0; j < sizes.keys; ++j)
          result[(queries.begin + i) * d.dMask[2] + (keys.begin + j) * d.dMask[3]] +=
              static_cast<Wide<S>>(scratch.scoreGradients[i * attentionStride + j]);
    }
  }

  /// Sums a tile over the queries and the keys that share the mask: rounding then grows with the
  /// number of tiles, not of scores. The sums are where the tile begins.
  Sizes sumShared(T *tile, Sizes sizes) const {
    if (d.dMask[2] == 0) {
      for (int64_t i = 1; i < sizes.queries; ++i)
        for (int64_t j = 0; j < sizes.keys; ++j)
          tile[j] += tile[i * attentionStride + j];
      sizes.queries = 1;
    }
    if (d.dMask[3] == 0) {
      for (int64_t i = 0; i < sizes.queries; ++i)
        for (int64_t j = 1; j < sizes.keys; ++j)
          tile[i * attentionStride] += tile[i * attentionStride + j];
      sizes.keys = 1;
    }
    return sizes;
  }

  /// Of the copies of dq of the heads that share keys.
  int64_t wideBytes() const {
    return isHalf<S> ? sharing * d.queries * d.headSize * int64_t(sizeof(T)) : 0;
  }

  int64_t mostTasks() const {
    int64_t kvHeads = d.batch * d.kvHeads;
    return wholeHeads ? kvHeads : std::max(kvHeads * keyTiles, d.batch * d.heads * queryTiles);
  }
  bool meet(const TokenRange &queries, const TokenRange &keys) const {
    return !d.causal || keys.begin < queries.begin + queries.count;
  }
  /// The matrix of `head` (batch and head in one number, of `heads` a batch) from `range` on.
  template <typename Element>
  static TokenMatrix<Element> tokens(void *buffer, const HeadStrides &strides, int64_t heads,
                                     int64_t head, const TokenRange &range) {
    return headMatrix<Element>(buffer, strides, head / heads, head % heads).from(range.begin);
  }
  TokenMatrix<const S> q(void *const *b, int64_t head, const TokenRange &range) const {
    return tokens<const S>(b[0], d.q, d.heads, head, range);
  }
  TokenMatrix<const S> k(void *const *b, int64_t kvHead, const TokenRange &range) const {
    return tokens<const S>(b[1], d.k, d.kvHeads, kvHead, range);
  }
  TokenMatrix<const S> v(void *const *b, int64_t kvHead, const TokenRange &range) const {
    return tokens<const S>(b[2], d.v, d.kvHeads, kvHead, range);
  }
  TokenMatrix<const S> dOut(void *const *b, int64_t head, const TokenRange &range) const {
    return tokens<const S>(b[d.outIndex() + 2], d.dOut, d.heads, head, range);
  }

  /// Where a query's numbers lie among those of the queries that wait.
  int64_t waitingPlace(int64_t head, const TokenRange &queries) const {
    return wholeHeads ? head % sharing * d.queries + queries.begin : 0;
  }

  /// dk and dv of one tile of keys, and where tasks are whole heads its part of dq.
  void runKeys(void *const *buffers, Scratch &scratch, int64_t kvHead, int64_t keyTile) const {
    TokenRange keys = tiles.keyTiles[keyTile];
    packKeys(buffers, scratch, kvHead, keys);
    std::fill(scratch.dk, scratch.dk + tiles.keyRows() * tiles.headPadded, T(0));
    std::fill(scratch.dv, scratch.dv + tiles.keyRows() * tiles.valuePadded, T(0));
    for (int64_t head = kvHead * sharing; head < (kvHead + 1) * sharing; ++head)
      for (int64_t tile = 0; tile < queryTiles; ++tile) {
        TokenRange queries = tiles.queryTiles[tile];
        if (!meet(queries, keys))
          continue;
        packQueries(buffers, scratch, head, queries);
        T *deltas = scratch.deltas + waitingPlace(head, queries);
        if (!wholeHeads || keyTile == 0)
          sumDeltas(buffers, head, queries, deltas);
        makeTile(buffers, scratch, head, queries, keys, deltas);
        addToKeys(buffers, scratch, head, queries, keys);
        if (wholeHeads)
          addToQueries(buffers, scratch, head, queries, keys);
      }
    store(tokens<S>(buffers[d.outIndex() + 4], d.dk, d.kvHeads, kvHead, keys), scratch.dk,
          tiles.headPadded, keys.count, d.headSize, static_cast<T>(d.scale), false);
    store(tokens<S>(buffers[d.outIndex() + 5], d.dv, d.kvHeads, kvHead, keys), scratch.dv,
          tiles.valuePadded, keys.count, d.valueSize, T(1), false);
  }

  /// dq of one tile of queries.
  void runQueries(void *const *buffers, Scratch &scratch, int64_t head, int64_t queryTile) const {
    TokenRange queries = tiles.queryTiles[queryTile];
    packQueries(buffers, scratch, head, queries);
    sumDeltas(buffers, head, queries, scratch.deltas);
    for (int64_t tile = 0; tile < keyTiles; ++tile) {
      TokenRange keys = tiles.keyTiles[tile];
      if (!meet(queries, keys))
        continue;
      packKeys(buffers, scratch, head / sharing, keys);
      makeTile(buffers, scratch, head, queries, keys, scratch.deltas);
      addToQueries(buffers, scratch, head, queries, keys);
    }
    finishQueries(buffers, scratch, head, queries);
  }

  void packKeys(void *const *buffers, Scratch &scratch, int64_t kvHead,
                const TokenRange &keys) const {
    tiles.packColumns(scratch.keyColumns, k(buffers, kvHead, keys), keys.count, d.headSize);
    tiles.packColumns(scratch.valueColumns, v(buffers, kvHead, keys), keys.count, d.valueSize);
  }

  void packQueries(void *const *buffers, Scratch &scratch, int64_t head,
                   const TokenRange &queries) const {
    tiles.takeRows(scratch.queryRows, q(buffers, head, queries), tiles.queryTiles, queries.count,
                   d.headSize, static_cast<T>(d.scale));
    tiles.takeRows(scratch.gradientRows, dOut(buffers, head, queries), tiles.queryTiles,
                   queries.count, d.valueSize, T(1));
  }

  /// Probabilities after dropout, and the gradients of the scores.
  void makeTile(void *const *buffers, Scratch &scratch, int64_t head, const TokenRange &queries,
                const TokenRange &keys, const T *deltas) const {
    tiles.multiplyTokens(scratch.probabilities, scratch.queryRows, queries.count,
                         scratch.keyColumns, keys.count, d.headSize);
    tiles.multiplyTokens(scratch.scoreGradients, scratch.gradientRows, queries.count,
                         scratch.valueColumns, keys.count, d.valueSize);
    int64_t padded = roundUp(keys.count, tiles.blocks.columnsPerPanel);
    int64_t batch = head / d.heads, within = head % d.heads;
    auto *lse = static_cast<const Wide<S> *>(buffers[d.outIndex() + 1]) + head * d.queries;
    for (int64_t i = 0; i < queries.count; ++i) {
      int64_t query = queries.begin + i;
      T *row = scratch.probabilities + i * attentionStride;
      T *gradient = scratch.scoreGradients + i * attentionStride;
      tiles.hide(row, buffers, batch, within, query, keys.begin, keys.count, padded);
      tiles.rows.exponentiate(row, padded, static_cast<T>(lse[query]));
      tiles.differentiate(gradient, row, deltas[i], buffers, batch, within, query, keys.begin,
                          keys.count, padded);
    }
  }

  void sumDeltas(void *const *buffers, int64_t head, const TokenRange &queries, T *deltas) const {
    auto out = tokens<const S>(buffers[d.outIndex()], d.out, d.heads, head, queries);
    auto gradient = dOut(buffers, head, queries);
    for (int64_t i = 0; i < queries.count; ++i)
      deltas[i] = tiles.blocks.dot(out.from(i).data, out.featureStride, gradient.from(i).data,
                                   gradient.featureStride, d.valueSize);
  }

  void addToKeys(void *const *buffers, Scratch &scratch, int64_t head, const TokenRange &queries,
                 const TokenRange &keys) const {
    RightOperand<T> gradients = tiles.featureColumns(
        scratch.valueFeatures, dOut(buffers, head, queries), queries.count, d.valueSize);
    tiles.multiplyTransposed(scratch.dv, tiles.valuePadded, scratch.probabilities, keys.count,
                             queries.count, gradients, d.valueSize, true);
    RightOperand<T> heads = tiles.featureColumns(scratch.headFeatures, q(buffers, head, queries),
                                                 queries.count, d.headSize);
    tiles.multiplyTransposed(scratch.dk, tiles.headPadded, scratch.scoreGradients, keys.count,
                             queries.count, heads, d.headSize, true);
  }

  void addToQueries(void *const *buffers, Scratch &scratch, int64_t head, const TokenRange &queries,
                    const TokenRange &keys) const {
    RightOperand<T> right = tiles.featureColumns(
        scratch.headFeatures, k(buffers, head / sharing, keys), keys.count, d.headSize);
    tiles.multiplyTile(scratch.dq, tiles.headPadded, scratch.scoreGradients, queries.count,
                       keys.count, right, d.headSize, /*accumulate=*/false);
    auto add = [&](const auto &target) {
      store(target, scratch.dq, tiles.headPadded, queries.count, d.headSize,
            static_cast<T>(d.scale), /*add=*/keys.begin > 0);
    };
    if constexpr (isHalf<S>)
      add(wideDq(scratch, head, queries));
    else
      add(dq(buffers, head, queries));
  }

  /// Rounds what addToQueries has summed wider than dq.
  void finishQueries(void *const *buffers, Scratch &scratch, int64_t head,
                     const TokenRange &queries) const {
    if constexpr (isHalf<S>)
      store(dq(buffers, head, queries), wideDq(scratch, head, queries).data, d.headSize,
            queries.count, d.headSize, T(1), false);
  }

  TokenMatrix<T> wideDq(Scratch &scratch, int64_t head, const TokenRange &queries) const {
    return {scratch.wideDq + waitingPlace(head, queries) * d.headSize, d.headSize, 1};
  }
  TokenMatrix<S> dq(void *const *b, int64_t head, const TokenRange &range) const {
    return tokens<S>(b[d.outIndex() + 3], d.dq, d.heads, head, range);
  }

  template <typename Element>
  static void store(const TokenMatrix<Element> &target, const T *source, int64_t sourceStride,
                    int64_t rows, int64_t features, T factor, bool add) {
    auto storeRow = [&](int64_t i, int64_t step) {
      Element *elements = target.data + i * target.tokenStride;
      const T *sums = source + i * sourceStride;
      if (add)
        for (int64_t j = 0; j < features; ++j)
          elements[j * step] = static_cast<Element>(elements[j * step] + sums[j] * factor);
      else
        for (int64_t j = 0; j < features; ++j)
          elements[j * step] = static_cast<Element>(sums[j] * factor);
    };
    for (int64_t i = 0; i < rows; ++i)
      target.featureStride == 1 ? storeRow(i, 1) : storeRow(i, target.featureStride);
  }

  const AttentionDescriptor d;
  const AttentionTiles<S, T> tiles;
  const int64_t queryTiles, keyTiles;
  const int64_t sharing; ///< heads of queries that have the same keys
  const bool wholeHeads;
  const int slots;
  const int64_t slotBytes;
};

} // namespace

std::unique_ptr<LibraryCall> libraries::createAttentionBackward(const AttentionDescriptor &d,
                                                                int threads) {
  return createForTypes<AttentionBackward>(d, threads);
}
