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
    constexpr int64_t n = attentionTile;
    queries = cutter.take(n * tiles.d.headSize);
    keys = cutter.take(n * tiles.d.headSize);
    values = cutter.take(n * tiles.valuePadded);
    scores = cutter.take(n * n);
    result = cutter.take(n * tiles.valuePadded);
    maximum = cutter.take(n);
    sum = cutter.take(n);
  }

  ScratchCutter<T> cutter;
  T *queries, *keys, *values, *scores, *result, *maximum, *sum;
};

template <typename S, typename T> class AttentionForward final : public LibraryCall {
public:
  AttentionForward(const AttentionDescriptor &descriptor, int threads)
      : d(descriptor), tiles(d), queryTiles(ceilDivide(d.queries, attentionTile)),
        slots(static_cast<int>(std::min<int64_t>(threads, taskCount()))),
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
    int64_t batch, head, queryBegin, queries;
  };

  int64_t taskCount() const { return d.batch * d.heads * queryTiles; }

  void runTask(void *const *buffers, int64_t task, char *memory) const {
    ForwardScratch<S, T> scratch(tiles, memory);
    // Under a causal mask the last tile of queries has most work: it goes first.
    int64_t tile = queryTiles - 1 - task % queryTiles, head = task / queryTiles;
    int64_t begin = tile * attentionTile;
    Place place{head / d.heads, head % d.heads, begin, std::min(attentionTile, d.queries - begin)};
    int64_t kvHead = place.head / (d.heads / d.kvHeads);
    tiles.packRows(scratch.queries,
                   headMatrix<const S>(buffers[0], d.q, place.batch, place.head).from(begin),
                   place.queries, d.headSize);
    tiles.rows.scale(scratch.queries, attentionTile * d.headSize, static_cast<T>(d.scale));
    std::fill(scratch.maximum, scratch.maximum + attentionTile,
              -std::numeric_limits<T>::infinity());
    std::fill(scratch.sum, scratch.sum + attentionTile, T(0));
    std::fill(scratch.result, scratch.result + attentionTile * tiles.valuePadded, T(0));
    auto k = headMatrix<const S>(buffers[1], d.k, place.batch, kvHead);
    auto v = headMatrix<const S>(buffers[2], d.v, place.batch, kvHead);
    int64_t end = d.causal ? std::min(d.keys, begin + place.queries) : d.keys;
    for (int64_t key = 0; key < end; key += attentionTile)
      addKeys(buffers, scratch, place, key, std::min(attentionTile, d.keys - key), k.from(key),
              v.from(key));
    finish(buffers, scratch, place);
  }

  void addKeys(void *const *buffers, ForwardScratch<S, T> &scratch, const Place &place,
               int64_t keyBegin, int64_t keys, const TokenMatrix<const S> &k,
               const TokenMatrix<const S> &v) const {
    tiles.packColumns(scratch.keys, k, keys, d.headSize);
    tiles.multiplyPacked(scratch.scores, scratch.queries, place.queries, scratch.keys, keys,
                         d.headSize);
    int64_t padded = roundUp(keys, tiles.blocks.columnsPerPanel);
    for (int64_t i = 0; i < place.queries; ++i) {
      T *row = scratch.scores + i * attentionTile;
      tiles.hide(row, buffers, place.batch, place.head, place.queryBegin + i, keyBegin, keys,
                 padded);
      addRow(scratch, i, row, padded);
      tiles.drop(row, buffers, place.batch, place.head, place.queryBegin + i, keyBegin, keys);
    }
    RightOperand<T> values = tiles.featureColumns(scratch.values, v, keys, d.valueSize);
    tiles.multiplyTile(scratch.result, tiles.valuePadded, scratch.scores, place.queries, keys,
                       values, d.valueSize, true);
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
    auto out =
        headMatrix<S>(buffers[d.outIndex()], d.out, place.batch, place.head).from(place.queryBegin);
    auto *lse = static_cast<Wide<S> *>(buffers[d.outIndex() + 1]) +
                (place.batch * d.heads + place.head) * d.queries + place.queryBegin;
    for (int64_t i = 0; i < place.queries; ++i) {
      T sum = scratch.sum[i];
      // A query that sees nothing gets zeros, as in PyTorch, and an lse that gives zero gradients.
      bool blind = sum == 0;
      T factor = blind ? T(0) : 1 / sum;
      lse[i] = blind ? std::numeric_limits<Wide<S>>::infinity()
                     : static_cast<Wide<S>>(scratch.maximum[i] + std::log(sum));
      const T *row = scratch.result + i * tiles.valuePadded;
      S *target = out.data + i * out.tokenStride;
      for (int64_t j = 0; j < d.valueSize; ++j)
        target[j * out.featureStride] = static_cast<S>(row[j] * factor);
    }
  }

  const AttentionDescriptor d;
  const AttentionTiles<S, T> tiles;
  const int64_t queryTiles;
  const int slots;
  const int64_t slotBytes;
};

} // namespace

std::unique_ptr<LibraryCall> libraries::createAttentionForward(const AttentionDescriptor &d,
                                                               int threads) {
  return createForTypes<AttentionForward>(d, threads);
}
