//===- WinogradConvolution.cpp - 3 x 3 taps by minimal filtering ------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Forward convolutions and gradients of inputs, which are convolutions of the gradient with turned
// filters. A task takes some tiles through all three steps, so that their points stay in its caches:
// transforms of 4 x 4 pixels, 16 products with the points of the filters, transforms of their sums.
// The points of the filters are made first, by all threads. Tiles do not meet, and a product adds up
// channels in order, in blocks of attentionTile: bits depend on neither threads nor sizes of blocks.

#include "WinogradConvolution.h"
#include "WinogradKernels.h"
#include "WinogradTiles.h"

using namespace memopt;
using namespace memopt::libraries;

namespace {

/// How a call is cut. Fields count elements, but for those that say bytes.
struct WinogradPlan {
  int64_t channels, results; ///< of the source and of what is computed
  int64_t panelWidth;
  int64_t tiles;      ///< of a task
  int64_t partPanels; ///< panels of results whose filters' points are there at the same time
  int64_t tileBlocks;
  int64_t columnTasks; ///< tasks that share the tiles of a block, each with a part of the results
  int slots;

  int64_t depthBlocks() const { return ceilDivide(channels, attentionTile); }
  int64_t depth(int64_t block) const {
    return std::min(attentionTile, channels - block * attentionTile);
  }
  int64_t panels() const { return ceilDivide(results, panelWidth); }
  int64_t parts() const { return ceilDivide(panels(), partPanels); }

  /// Points of the filters of a panel: [depth blocks][points][channels][results].
  int64_t panelElements() const { return winogradPoints * channels * panelWidth; }
  int64_t filterBytes(int64_t count) const {
    return alignBytes(count * panelElements() * static_cast<int64_t>(sizeof(float)));
  }

  /// Points of the tiles of a task: [depth blocks][points][tiles][attentionStride].
  int64_t pointStep() const { return padPoints(tiles * attentionStride); }
  int64_t valueElements() const { return depthBlocks() * winogradPoints * pointStep(); }
  /// Sums for so many panels at a time.
  int64_t sumPanels() const {
    return std::min(partPanels, std::max<int64_t>(1, sumColumns / panelWidth));
  }
  int64_t sumStep() const { return padPoints(tiles * sumPanels() * panelWidth); }
  /// And a pixel of zeros, and one for results beside the image.
  int64_t slotBytes() const {
    int64_t elements = valueElements() + winogradPoints * sumStep() + channels + results;
    return alignBytes(elements * static_cast<int64_t>(sizeof(float)));
  }
  /// Filters that are packed before are the caller's.
  int64_t workspaceBytes(bool isPacked) const {
    return (isPacked ? 0 : filterBytes(partPanels)) + slots * slotBytes();
  }

  static constexpr int64_t sumColumns = 128;
};

/// Tiles of a task: as many as leave their points and the sums in the second cache. Where these would
/// be so few that points of filters, which come from further away, are hardly used again, more.
constexpr int64_t nearBytes = 640 << 10;
constexpr int64_t leastTiles = 24;
constexpr int64_t manyTiles = 128;

class Planner {
public:
  Planner(const WinogradTiles &tiles, int threads) : all(tiles), threads(threads) {
    const BlockKernels<float, float> &kernels = blockKernels<float, float>();
    rows = kernels.rowsPerPanel;
    plan.panelWidth = kernels.columnsPerPanel;
    plan.channels = tiles.source.channels;
    plan.results = tiles.result.channels;
    plan.partPanels = plan.panels();
    int64_t elements = plan.depthBlocks() * attentionStride + plan.sumPanels() * plan.panelWidth;
    int64_t near = nearBytes / (winogradPoints * elements * static_cast<int64_t>(sizeof(float)));
    cutTiles(near < leastTiles ? manyTiles : near);
  }

  /// The fastest plan whose workspace has at most so many bytes; one with more where none has. Filters
  /// are kept by parts first: it costs the transforms of the tiles once more.
  WinogradPlan within(int64_t limit, bool isPacked) {
    while (plan.workspaceBytes(isPacked) > limit && !isPacked && plan.partPanels > 1)
      cutParts(ceilDivide(plan.partPanels, 2));
    while (plan.workspaceBytes(isPacked) > limit && plan.tiles > rows)
      cutTiles(plan.tiles / 2);
    while (plan.workspaceBytes(isPacked) > limit && plan.slots > 1)
      --plan.slots;
    return plan;
  }

private:
  void cutParts(int64_t panels) {
    plan.partPanels = panels;
    cutTiles(plan.tiles);
  }

  /// Tasks of about `wanted` tiles, of which all threads have the same number.
  void cutTiles(int64_t wanted) {
    int64_t blocks = roundUp(ceilDivide(all.count(), wanted), threads);
    plan.tiles = std::min(roundUp(ceilDivide(all.count(), blocks), rows), roundUp(wanted, rows));
    plan.tileBlocks = ceilDivide(all.count(), plan.tiles);
    int64_t sums = ceilDivide(plan.panels(), plan.sumPanels());
    plan.columnTasks = std::clamp<int64_t>(threads / plan.tileBlocks, 1, sums);
    plan.slots = static_cast<int>(std::min<int64_t>(threads, plan.tileBlocks * plan.columnTasks));
  }

  const WinogradTiles &all;
  int threads;
  int64_t rows;
  WinogradPlan plan{};
};

class WinogradConvolution final : public LibraryCall {
public:
  WinogradConvolution(const ConvolutionDescriptor &d, int threads)
      : d(d), threads(threads), isForward(d.direction == ConvolutionDirection::Forward),
        tiles(isForward ? WinogradTiles::ofForward(d) : WinogradTiles::ofBackwardData(d)),
        plan(Planner(tiles, threads).within(d.workspaceLimit, d.packedBytes)) {}

  int64_t workspaceBytes() const override {
    return d.packs ? 0 : plan.workspaceBytes(d.packedBytes);
  }
  std::string implementation() const override { return std::string(products.name) + "/winograd"; }
  int64_t packedWeightBytes() const override {
    return d.packedBytes ? 0 : plan.filterBytes(plan.panels());
  }
  double getSlowdown() const override {
    WinogradPlan fastest = Planner(tiles, threads).within(maxExtent, d.packedBytes);
    return getSeconds(plan) / getSeconds(fastest);
  }

  Status run(void *const *buffers, ThreadPool &pool) override {
    if (d.packs) {
      makeFilters(static_cast<const float *>(buffers[0]), static_cast<float *>(buffers[1]), 0,
                  pool);
      return Status::ok();
    }
    char *workspace = static_cast<char *>(buffers[d.resultIndex() + 1]);
    float *filters = static_cast<float *>(d.packedBytes ? buffers[1] : workspace);
    char *slots = workspace + (d.packedBytes ? 0 : plan.filterBytes(plan.partPanels));
    for (int64_t part = 0; part < plan.parts(); ++part) {
      if (!d.packedBytes)
        makeFilters(static_cast<const float *>(buffers[1]), filters, part, pool);
      runTasks(pool, plan.tileBlocks * plan.columnTasks, plan.slots, plan.slotBytes(), slots,
               [&](int64_t task, char *slot) { runTask(buffers, filters, part, task, slot); });
    }
    return Status::ok();
  }

private:
  /// In some unit: of a tile the products, the transform of its pixels for each part of the results, and
  /// that of its results; points of filters come from far away for each task. Threads work side by side.
  double getSeconds(const WinogradPlan &p) const {
    auto channels = static_cast<double>(p.channels), results = static_cast<double>(p.results);
    double products = channels * results * winogradPoints / 2;
    double transforms = 40 * channels * static_cast<double>(p.parts()) + 25 * results;
    double filters = 24 * channels * results / static_cast<double>(p.tiles);
    return (products + transforms + filters) / p.slots;
  }

  /// Panels [begin, end) of a part, all of them counted from the call's first.
  struct PanelRange {
    int64_t begin, end;
  };
  PanelRange getPart(int64_t part) const {
    return {part * plan.partPanels, std::min((part + 1) * plan.partPanels, plan.panels())};
  }

  /// Points of the filters of a part.
  void makeFilters(const float *weights, float *filters, int64_t part, ThreadPool &pool) const {
    PanelRange range = getPart(part);
    int64_t blocks = plan.depthBlocks();
    pool.parallelFor((range.end - range.begin) * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t panel = i / blocks, block = i % blocks;
        makePanel(weights, range.begin + panel, block,
                  filters + panel * plan.panelElements() +
                      block * winogradPoints * attentionTile * plan.panelWidth);
      }
    });
  }

  void makePanel(const float *weights, int64_t panel, int64_t block, float *points) const {
    constexpr int64_t run = 8, mostWidth = 32;
    float taps[run * winogradTaps * mostWidth];
    const float *lane[mostWidth];
    int64_t width = plan.panelWidth, first = panel * width, depth = plan.depth(block);
    int64_t lanes = std::min(width, plan.results - first);
    int64_t filter = d.inputChannels * winogradTaps;
    for (int64_t step = 0; step < depth; step += run) {
      int64_t steps = std::min(run, depth - step), channel = block * attentionTile + step;
      Panels<float> panels{taps, width, steps * winogradTaps};
      if (isForward) {
        for (int64_t i = 0; i < lanes; ++i)
          lane[i] = weights + (first + i) * filter + channel * winogradTaps;
        products.packLanes(panels, 0, lane, lanes, steps * winogradTaps, 1);
      } else {
        for (int64_t s = 0; s < steps; ++s) {
          for (int64_t i = 0; i < lanes; ++i)
            lane[i] = weights + (channel + s) * filter + (first + i) * winogradTaps;
          products.packLanes(panels, s * winogradTaps, lane, lanes, winogradTaps, 1);
        }
      }
      transforms.transformFilters(taps, steps, points + step * width, depth * width, !isForward);
    }
  }

  void runTask(void *const *buffers, const float *filters, int64_t part, int64_t task,
               char *slot) const {
    int64_t first = task / plan.columnTasks * plan.tiles;
    int64_t count = std::min(plan.tiles, tiles.count() - first);
    auto *values = reinterpret_cast<float *>(slot);
    float *sums = values + plan.valueElements();
    float *zeros = sums + winogradPoints * plan.sumStep(), *beside = zeros + plan.channels;
    transformTiles(static_cast<const float *>(buffers[0]), first, count, values, zeros);
    PanelRange range = getPart(part);
    int64_t groups = ceilDivide(range.end - range.begin, plan.sumPanels());
    for (int64_t group = task % plan.columnTasks; group < groups; group += plan.columnTasks) {
      int64_t panel = range.begin + group * plan.sumPanels();
      int64_t panels = std::min(plan.sumPanels(), range.end - panel);
      multiply(values, filters + group * plan.sumPanels() * plan.panelElements(), panels, count,
               sums);
      storeTiles(buffers, first, count, panel * plan.panelWidth, panels * plan.panelWidth, sums,
                 beside);
    }
  }

  void transformTiles(const float *source, int64_t first, int64_t count, float *values,
                      float *zeros) const {
    std::fill_n(zeros, plan.channels, 0.0f);
    PointLayout layout{plan.pointStep(), attentionTile, winogradPoints * plan.pointStep()};
    const float *pixels[16];
    for (int64_t tile = 0; tile < count; ++tile) {
      tiles.findSource(first + tile, source, zeros, pixels);
      transforms.transformValues(pixels, plan.channels, values + tile * attentionStride, layout);
    }
  }

  /// sums[point][tile][result] for some panels of results.
  void multiply(const float *values, const float *filters, int64_t panels, int64_t count,
                float *sums) const {
    int64_t rows = products.rowsPerPanel, width = plan.panelWidth;
    for (int64_t point = 0; point < winogradPoints; ++point)
      for (int64_t block = 0; block < plan.depthBlocks(); ++block) {
        int64_t depth = plan.depth(block);
        const float *a = values + (block * winogradPoints + point) * plan.pointStep();
        const float *b =
            filters + block * winogradPoints * attentionTile * width + point * depth * width;
        products.multiply(ceilDivide(count, rows), panels, depth, a, rows * attentionStride,
                          attentionStride, 1, b, plan.panelElements(), width,
                          sums + point * plan.sumStep(), plan.sumPanels() * width, block > 0,
                          /*bias=*/nullptr);
      }
  }

  void storeTiles(void *const *buffers, int64_t first, int64_t count, int64_t column,
                  int64_t columns, const float *sums, float *beside) const {
    auto *result = static_cast<float *>(buffers[d.resultIndex()]);
    auto *bias = d.bias ? static_cast<const float *>(buffers[2]) + column : nullptr;
    columns = std::min(columns, plan.results - column);
    float *pixels[4];
    for (int64_t tile = 0; tile < count; ++tile) {
      tiles.findResult(first + tile, result + column, beside, pixels);
      transforms.transformSums(sums + tile * plan.sumPanels() * plan.panelWidth, plan.sumStep(),
                               columns, bias, d.relu, pixels);
    }
  }

  ConvolutionDescriptor d;
  int threads;
  bool isForward;
  WinogradTiles tiles;
  WinogradPlan plan;
  const BlockKernels<float, float> &products = blockKernels<float, float>();
  const WinogradKernels &transforms = winogradKernels();
};

} // namespace

/// Whether tiles save time: with fewer channels the transforms take what the products save, and with
/// few tiles those of the filters do. Small calls are left to code that needs hardly any workspace
/// beside what they read.
static bool isFaster(const ConvolutionDescriptor &d) {
  constexpr int64_t leastChannels = 16, leastTiles = 64, leastBytes = 4 << 20;
  int64_t images = d.inputChannels * volume(d.input) + d.outputChannels * volume(d.output);
  int64_t elements = d.images * images + d.inputChannels * d.outputChannels * winogradTaps;
  return std::min(d.inputChannels, d.outputChannels) >= leastChannels &&
         WinogradTiles::ofForward(d).count() >= leastTiles &&
         elements * static_cast<int64_t>(sizeof(float)) >= leastBytes;
}

std::unique_ptr<LibraryCall> libraries::createWinogradConvolution(const ConvolutionDescriptor &d,
                                                                  int threads) {
  constexpr Spatial taps{1, 3, 3}, one{1, 1, 1};
  bool isDense = d.channelsLast && d.groups == 1 && d.input[0] == 1;
  bool isFiltered = d.taps == taps && d.strides == one && d.dilations == one;
  if (d.type != ElementType::F32 || d.reference || !isDense || !isFiltered || !isFaster(d))
    return nullptr;
  if (d.direction == ConvolutionDirection::BackwardWeights)
    return createWinogradFilterGradient(d, threads);
  return std::make_unique<WinogradConvolution>(d, threads);
}
