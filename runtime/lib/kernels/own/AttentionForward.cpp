//===- AttentionForward.cpp - attention and its log-sum-exp -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionTiles.h"

#include <array>

using namespace memopt;
using namespace memopt::libraries;

namespace {

/// Tiles of queries that read keys and values while these are packed.
constexpr int64_t mostTilesOfTask = 4;
/// Tasks that a thread is left with: under a causal mask some are longer than others.
constexpr int64_t tasksLeftToThread = 4;

/// What is summed up for a tile of queries.
template <typename T> struct QuerySums {
  T *queries, *result, *maximum, *sum;
};

/// Memory of one task: `group` tiles of queries against all keys, of which one tile is packed at a
/// time.
template <typename S, typename T> struct ForwardScratch {
  ForwardScratch(const AttentionTiles<S, T> &tiles, int64_t group, void *base) : cutter(base) {
    int64_t q = tiles.queryTiles.tileSize(), k = tiles.keyTiles.tileSize();
    keys = cutter.take(k * tiles.d.headSize);
    values = cutter.take(k * tiles.valuePadded);
    scores = cutter.take(tiles.tileElements());
    for (int64_t i = 0; i < group; ++i) {
      sums[i].queries = cutter.take(tiles.leftElements(q, tiles.d.headSize));
      sums[i].result = cutter.take(q * tiles.valuePadded);
      sums[i].maximum = cutter.take(q);
      sums[i].sum = cutter.take(q);
    }
  }

  ScratchCutter<T> cutter;
  T *keys, *values, *scores;
  std::array<QuerySums<T>, mostTilesOfTask> sums;
};

template <typename S, typename T> class AttentionForward final : public LibraryCall {
public:
  AttentionForward(const AttentionDescriptor &descriptor, int threads)
      : d(descriptor), tiles(d), sharing(d.headsOfKeyHead()), group(chooseGroup(threads)),
        slots(static_cast<int>(std::min<int64_t>(threads, taskCount(group)))),
        slotBytes(ForwardScratch<S, T>(tiles, group, nullptr).cutter.bytes) {}

  int64_t workspaceBytes() const override { return slots * slotBytes; }
  std::string implementation() const override {
    return std::string(tiles.blocks.name) + ":attention";
  }

  Status run(void *const *buffers, ThreadPool &pool) override {
    runTasks(pool, taskCount(group), slots, slotBytes, buffers[d.workspaceIndex()],
             [&](int64_t task, char *memory) { runTask(buffers, task, memory); });
    return Status::ok();
  }

private:
  struct Place {
    int64_t batch, head;
    TokenRange queries;
  };

  /// Tiles of queries that read the same keys and values.
  int64_t tilesOfKeyHead() const { return tiles.queryTiles.count() * sharing; }
  int64_t groupCount(int64_t size) const { return ceilDivide(tilesOfKeyHead(), size); }
  int64_t taskCount(int64_t size) const { return d.batch * d.kvHeads * groupCount(size); }

  /// Tiles of a task. Their memory is not to be much beside queries and results.
  int64_t chooseGroup(int threads) const {
    int64_t size = std::clamp<int64_t>(tilesOfKeyHead() / 4, 1, mostTilesOfTask);
    while (size > 1 && taskCount(size) < tasksLeftToThread * threads)
      --size;
    return size;
  }

  void runTask(void *const *buffers, int64_t task, char *memory) const {
    ForwardScratch<S, T> scratch(tiles, group, memory);
    int64_t groups = groupCount(group), head = task / groups;
    int64_t batch = head / d.kvHeads, kvHead = head % d.kvHeads;
    // Under a causal mask the last tiles of queries have most work: they go first.
    int64_t first = (groups - 1 - task % groups) * group;
    int64_t count = std::min(group, tilesOfKeyHead() - first);
    std::array<Place, mostTilesOfTask> places;
    int64_t end = 0;
    for (int64_t i = 0; i < count; ++i) {
      TokenRange queries = tiles.queryTiles[(first + i) / sharing];
      places[i] = {batch, kvHead * sharing + (first + i) % sharing, queries};
      begin(buffers, scratch.sums[i], places[i]);
      end = std::max(end, endOfKeys(queries));
    }
    auto k = headMatrix<const S>(buffers[1], d.k, batch, kvHead);
    auto v = headMatrix<const S>(buffers[2], d.v, batch, kvHead);
    for (int64_t tile = 0; tile < tiles.keyTiles.count() && tiles.keyTiles[tile].begin < end;
         ++tile) {
      TokenRange keys = tiles.keyTiles[tile];
      tiles.packColumns(scratch.keys, k.from(keys.begin), keys.count, d.headSize);
      RightOperand<T> values =
          tiles.featureColumns(scratch.values, v.from(keys.begin), keys.count, d.valueSize);
      for (int64_t i = 0; i < count; ++i)
        if (keys.begin < endOfKeys(places[i].queries))
          addKeys(buffers, scratch, scratch.sums[i], places[i], keys, values);
    }
    for (int64_t i = 0; i < count; ++i)
      finish(buffers, scratch.sums[i], places[i]);
  }

  int64_t endOfKeys(const TokenRange &queries) const {
    return d.causal ? std::min(d.keys, queries.begin + queries.count) : d.keys;
  }

  void begin(void *const *buffers, const QuerySums<T> &sums, const Place &place) const {
    tiles.takeRows(
        sums.queries,
        headMatrix<const S>(buffers[0], d.q, place.batch, place.head).from(place.queries.begin),
        tiles.queryTiles, place.queries.count, d.headSize, static_cast<T>(d.scale));
    int64_t rows = tiles.queryTiles.tileSize();
    std::fill(sums.maximum, sums.maximum + rows, -std::numeric_limits<T>::infinity());
    std::fill(sums.sum, sums.sum + rows, T(0));
    std::fill(sums.result, sums.result + rows * tiles.valuePadded, T(0));
  }

  void addKeys(void *const *buffers, ForwardScratch<S, T> &scratch, const QuerySums<T> &sums,
               const Place &place, const TokenRange &keys, const RightOperand<T> &values) const {
    tiles.multiplyTokens(scratch.scores, sums.queries, place.queries.count, scratch.keys,
                         keys.count, d.headSize);
    int64_t padded = roundUp(keys.count, tiles.blocks.columnsPerPanel);
    for (int64_t i = 0; i < place.queries.count; ++i) {
      T *row = scratch.scores + i * attentionStride;
      int64_t query = place.queries.begin + i;
      tiles.hide(row, buffers, place.batch, place.head, query, keys.begin, keys.count, padded);
      addRow(sums, i, row, padded);
      tiles.drop(row, buffers, place.batch, place.head, query, keys.begin, keys.count);
    }
    tiles.multiplyTile(sums.result, tiles.valuePadded, scratch.scores, place.queries.count,
                       keys.count, values, d.valueSize, true);
  }

  /// Scores to probabilities relative to the maximum so far; what was summed before is brought to
  /// the new maximum.
  void addRow(const QuerySums<T> &sums, int64_t i, T *row, int64_t padded) const {
    T before = sums.maximum[i], maximum = tiles.rows.maximum(row, padded);
    if (!(maximum > before) && maximum == maximum)
      maximum = before;
    if (maximum == -std::numeric_limits<T>::infinity()) {
      std::fill(row, row + padded, T(0));
      return;
    }
    T sum = tiles.rows.exponentiate(row, padded, maximum);
    if (maximum != before) {
      T factor = std::exp(before - maximum);
      sums.sum[i] *= factor;
      tiles.rows.scale(sums.result + i * tiles.valuePadded, tiles.valuePadded, factor);
      sums.maximum[i] = maximum;
    }
    sums.sum[i] += sum;
  }

  void finish(void *const *buffers, const QuerySums<T> &sums, const Place &place) const {
    auto out = headMatrix<S>(buffers[d.outIndex()], d.out, place.batch, place.head)
                   .from(place.queries.begin);
    auto *lse = static_cast<Wide<S> *>(buffers[d.outIndex() + 1]) +
                (place.batch * d.heads + place.head) * d.queries + place.queries.begin;
    for (int64_t i = 0; i < place.queries.count; ++i) {
      T sum = sums.sum[i];
      // A query that sees nothing gets zeros, as in PyTorch, and an lse that gives zero gradients.
      bool blind = sum == 0;
      T factor = blind ? T(0) : 1 / sum;
      lse[i] = blind ? std::numeric_limits<Wide<S>>::infinity()
                     : static_cast<Wide<S>>(sums.maximum[i] + std::log(sum));
      const T *row = sums.result + i * tiles.valuePadded;
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
  const int64_t sharing; ///< heads of queries that have the same keys
  const int64_t group;   ///< tiles of queries of a task
  const int slots;
  const int64_t slotBytes;
};

} // namespace

std::unique_ptr<LibraryCall> libraries::createAttentionForward(const AttentionDescriptor &d,
                                                               int threads) {
  return createForTypes<AttentionForward>(d, threads);
}
