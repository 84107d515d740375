//===- AttentionForward.cpp - attention and its log-sum-exp -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionTiles.h"

using namespace memopt;
using namespace memopt::libraries;

namespace {

/// Memory of one task: a tile of queries against all keys.
template <typename S, typename T> struct ForwardScratch {
  ForwardScratch(const AttentionTiles<S, T> &tiles, void *base) : cutter(base) {
    int64_t q = tiles.queryTiles.tileSize(), k = tiles.keyTiles.tileSize();
    queries = cutter.take(tiles.leftElements(q, tiles.d.headSize));
    keys = cutter.take(k * tiles.d.headSize);
    values = cutter.take(k * tiles.valuePadded);
    scores = cutter.take(tiles.tileElements());
    result = cutter.take(q * tiles.valuePadded);
    maximum = cutter.take(q);
    sum = cutter.take(q);
  }

  ScratchCutter<T> cutter;
  T *queries, *keys, *values, *scores, *result, *maximum, *sum;
};

template <typename S, typename T> class AttentionForward final : public LibraryCall {
public:
  AttentionForward(const AttentionDescriptor &descriptor, int threads)
      : d(descriptor), tiles(d), slots(static_cast<int>(std::min<int64_t>(threads, taskCount()))),
        slotBytes(ForwardScratch<S, T>(tiles, nullptr).cutter.bytes) {}

  int64_t workspaceBytes() const override { return slots * slotBytes; }
  std::string implementation() const override {
    return std::string(tiles.blocks.name) + ":attention";
  }

  Status run(void *const *buffers, ThreadPool &pool) override {
    runTasks(pool, taskCount(), slots, slotBytes, buffers[d.workspaceIndex()],
             [&](int64_t task, char *memory) { runTask(buffers, task, memory); });
    return Status::ok();
  }

private:
  struct Place {
    int64_t batch, head;
    TokenRange queries;
  };

  int64_t taskCount() const { return d.batch * d.heads * tiles.queryTiles.count(); }

  void runTask(void *const *buffers, int64_t task, char *memory) const {
    ForwardScratch<S, T> scratch(tiles, memory);
    // Under a causal mask the last tile of queries has most work: it goes first.
    int64_t queryTiles = tiles.queryTiles.count(), head = task / queryTiles;
    TokenRange queries = tiles.queryTiles[queryTiles - 1 - task % queryTiles];
    Place place{head / d.heads, head % d.heads, queries};
    int64_t kvHead = place.head / (d.heads / d.kvHeads);
    tiles.takeRows(
        scratch.queries,
        headMatrix<const S>(buffers[0], d.q, place.batch, place.head).from(queries.begin),
        tiles.queryTiles, queries.count, d.headSize, static_cast<T>(d.scale));
    int64_t rows = tiles.queryTiles.tileSize();
    std::fill(scratch.maximum, scratch.maximum + rows, -std::numeric_limits<T>::infinity());
    std::fill(scratch.sum, scratch.sum + rows, T(0));
    std::fill(scratch.result, scratch.result + rows * tiles.valuePadded, T(0));
    auto k = headMatrix<const S>(buffers[1], d.k, place.batch, kvHead);
    auto v = headMatrix<const S>(buffers[2], d.v, place.batch, kvHead);
    int64_t end = d.causal ? std::min(d.keys, queries.begin + queries.count) : d.keys;
    for (int64_t tile = 0; tile < tiles.keyTiles.count() && tiles.keyTiles[tile].begin < end;
         ++tile)
      addKeys(buffers, scratch, place, tiles.keyTiles[tile], k, v);
    finish(buffers, scratch, place);
  }

  void addKeys(void *const *buffers, ForwardScratch<S, T> &scratch, const Place &place,
               const TokenRange &keys, const TokenMatrix<const S> &k,
               const TokenMatrix<const S> &v) const {
    tiles.packColumns(scratch.keys, k.from(keys.begin), keys.count, d.headSize);
    tiles.multiplyTokens(scratch.scores, scratch.queries, place.queries.count, scratch.keys,
                         keys.count, d.headSize);
    int64_t padded = roundUp(keys.count, tiles.blocks.columnsPerPanel);
    for (int64_t i = 0; i < place.queries.count; ++i) {
      T *row = scratch.scores + i * attentionStride;
      int64_t query = place.queries.begin + i;
      tiles.hide(row, buffers, place.batch, place.head, query, keys.begin, keys.count, padded);
      addRow(scratch, i, row, padded);
      tiles.drop(row, buffers, place.batch, place.head, query, keys.begin, keys.count);
    }
    RightOperand<T> values =
        tiles.featureColumns(scratch.values, v.from(keys.begin), keys.count, d.valueSize);
    tiles.multiplyTile(scratch.result, tiles.valuePadded, scratch.scores, place.queries.count,
                       keys.count, values, d.valueSize, true);
  }

  /// Scores to probabilities relative to the maximum so far; what was summed before is brought to
  /// the new maximum.
  void addRow(ForwardScratch<S, T> &scratch, int64_t i, T *row, int64_t padded) const {
    T before = scratch.maximum[i], maximum = tiles.rows.maximum(row, padded);
    if (!(maximum > before) && maximum == maximum)
      maximum = before;
    if (maximum == -std::numeric_limits<T>::infinity()) {
      std::fill(row, row + padded, T(0));
      return;
    }
    T sum = tiles.rows.exponentiate(row, padded, maximum);
    if (maximum != before) {
      T factor = std::exp(before - maximum);
      scratch.sum[i] *= factor;
      tiles.rows.scale(scratch.result + i * tiles.valuePadded, tiles.valuePadded, factor);
      scratch.maximum[i] = maximum;
    }
    scratch.sum[i] += sum;
  }

  void finish(void *const *buffers, ForwardScratch<S, T> &scratch, const Place &place) const {
    auto out = headMatrix<S>(buffers[d.outIndex()], d.out, place.batch, place.head)
                   .from(place.queries.begin);
    auto *lse = static_cast<Wide<S> *>(buffers[d.outIndex() + 1]) +
                (place.batch * d.heads + place.head) * d.queries + place.queries.begin;
    for (int64_t i = 0; i < place.queries.count; ++i) {
      T sum = scratch.sum[i];
      // A query that sees nothing gets zeros, as in PyTorch, and an lse that gives zero gradients.
      bool blind = sum == 0;
      T factor = blind ? T(0) : 1 / sum;
      lse[i] = blind ? std::numeric_limits<Wide<S>>::infinity()
                     : static_cast<Wide<S>>(scratch.maximum[i] + std::log(sum));
      const T *row = scratch.result + i * tiles.valuePadded;
      S *target = out.data + i * out.tokenStride;
      auto store = [&](int64_t step) {
        for (int64_t j = 0; j < d.valueSize; ++j)
          target[j * step] = static_cast<S>(row[j] * factor);
      };
      out.featureStride == 1 ? store(1) : store(out.featureStride);
    }
  }

  const AttentionDescriptor d;
  const AttentionTiles<S, T> tiles;
  const int slots;
  const int64_t slotBytes;
};

} // namespace

std::unique_ptr<LibraryCall> libraries::createAttentionForward(const AttentionDescriptor &d,
                                                               int threads) {
  return createForTypes<AttentionForward>(d, threads);
}
