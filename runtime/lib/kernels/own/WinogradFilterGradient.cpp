//===- WinogradFilterGradient.cpp - gradients of 3 x 3 taps -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The transpose of F(2 x 2, 3 x 3) in its filter: the sums over tiles of the products of the points of
// pixels and of gradients become 9 taps. A task makes a block of the filters from a chunk of the
// tiles, some tiles at a time. Chunks follow from shapes, and their sums are added in order.

#include "WinogradConvolution.h"
#include "WinogradKernels.h"
#include "WinogradTiles.h"

using namespace memopt;
using namespace memopt::libraries;

namespace {

/// Filters of a block: of so many outputs at most (rows, which lie attentionStride apart), and inputs.
constexpr int64_t mostOutputs = 144;
constexpr int64_t mostInputs = 128;
/// Tiles whose points are there at the same time: the depth of a product.
constexpr int64_t tileSteps = 64;

/// How a call is cut. Fields count elements, but for those that say bytes.
struct GradientPlan {
  int64_t outputs, inputs;
  int64_t outputBlock, inputBlock; ///< whole panels of rows and of columns
  int64_t chunks = 1;
  int64_t panelWidth, panelHeight;
  int slots;

  /// The fastest one whose workspace has at most so many bytes; one with more where none has.
  GradientPlan(const ConvolutionDescriptor &d, int64_t tiles, int threads, int64_t limit)
      : outputs(d.outputChannels), inputs(d.inputChannels) {
    const BlockKernels<float, float> &kernels = blockKernels<float, float>();
    panelWidth = kernels.columnsPerPanel;
    panelHeight = kernels.rowsPerPanel;
    outputBlock = cutEvenly(outputs, mostOutputs, panelHeight);
    inputBlock = cutEvenly(inputs, mostInputs, panelWidth);
    chooseChunks(d, tiles);
    while (tasks() < leastTasksOfFewRows * threads && inputBlock > panelWidth)
      inputBlock = roundUp(inputBlock / 2, panelWidth);
    slots = static_cast<int>(std::min<int64_t>(threads, tasks()));
    fit(limit);
  }

  int64_t outputBlocks() const { return ceilDivide(outputs, outputBlock); }
  int64_t inputBlocks() const { return ceilDivide(inputs, inputBlock); }
  int64_t tasks() const { return outputBlocks() * inputBlocks() * chunks; }

  /// Of gradients [points][tiles][attentionStride], of pixels [points][panels][tiles][panelWidth], of
  /// sums [points][outputs][inputs].
  int64_t gradientStep() const { return padPoints(tileSteps * attentionStride); }
  int64_t valueStep() const { return padPoints(tileSteps * inputBlock); }
  int64_t sumStep() const { return padPoints(outputBlock * inputBlock); }
  /// And a pixel of zeros, and the taps of an output.
  int64_t slotBytes() const {
    int64_t points = winogradPoints * (gradientStep() + valueStep() + sumStep());
    return alignBytes((points + std::max(outputs, inputs) + winogradTaps * inputBlock) *
                      static_cast<int64_t>(sizeof(float)));
  }
  /// Taps of all filters, those of an output [taps][inputs]: for each chunk, where there are several.
  int64_t partialElements() const { return outputs * winogradTaps * inputs; }
  int64_t partialBytes() const {
    return chunks == 1
               ? 0
               : alignBytes(chunks * partialElements() * static_cast<int64_t>(sizeof(float)));
  }
  int64_t workspaceBytes() const { return partialBytes() + slots * slotBytes(); }
  /// In some unit: of a tile the products, and the transforms of pixels and gradients for each block.
  double getSeconds() const {
    auto in = static_cast<double>(inputs), out = static_cast<double>(outputs);
    double transforms = 40 * in * static_cast<double>(outputBlocks()) +
                        25 * out * static_cast<double>(inputBlocks());
    return (in * out * winogradPoints / 2 + transforms) / slots;
  }

private:
  /// By a rule on shapes, for the order of sums depends on it: enough tasks for a few dozen threads, but
  /// partial sums of a quarter of what the call reads at most.
  void chooseChunks(const ConvolutionDescriptor &d, int64_t tiles) {
    int64_t blocks = ceilDivide(outputs, mostOutputs) * ceilDivide(inputs, mostInputs);
    int64_t read = d.images * (inputs * volume(d.input) + outputs * volume(d.output));
    int64_t most = std::min(read / (4 * partialElements()), ceilDivide(tiles, 4 * tileSteps));
    chunks = std::clamp<int64_t>(leastTasks / blocks, 1, std::max<int64_t>(1, most));
  }

  /// Sizes of blocks and the number of slots have no part in bits.
  void fit(int64_t limit) {
    while (workspaceBytes() > limit && inputBlock > panelWidth)
      inputBlock = roundUp(inputBlock / 2, panelWidth);
    while (workspaceBytes() > limit && outputBlock > panelHeight)
      outputBlock = roundUp(outputBlock / 2, panelHeight);
    while (workspaceBytes() > limit && slots > 1)
      --slots;
  }
};

class WinogradFilterGradient final : public LibraryCall {
public:
  WinogradFilterGradient(const ConvolutionDescriptor &d, int threads)
      : d(d), tiles(WinogradTiles::ofForward(d)), plan(d, tiles.count(), threads, d.workspaceLimit),
        fastest(d, tiles.count(), threads, maxExtent) {}

  int64_t workspaceBytes() const override { return plan.workspaceBytes(); }
  std::string implementation() const override { return std::string(products.name) + "/winograd"; }
  double getSlowdown() const override { return plan.getSeconds() / fastest.getSeconds(); }

  Status run(void *const *buffers, ThreadPool &pool) override {
    char *workspace = static_cast<char *>(buffers[d.resultIndex() + 1]);
    auto *partials = reinterpret_cast<float *>(workspace);
    runTasks(pool, plan.tasks(), plan.slots, plan.slotBytes(), workspace + plan.partialBytes(),
             [&](int64_t task, char *slot) { runTask(buffers, task, partials, slot); });
    if (plan.chunks > 1)
      pool.parallelFor(plan.outputs, 1, [&](int64_t begin, int64_t end) {
        for (int64_t output = begin; output < end; ++output)
          addPartials(buffers, partials, output);
      });
    return Status::ok();
  }

private:
  struct Block {
    int64_t output, outputs, input, inputs, chunk;
  };
  Block locate(int64_t task) const {
    int64_t block = task / plan.chunks;
    int64_t output = block / plan.inputBlocks() * plan.outputBlock;
    int64_t input = block % plan.inputBlocks() * plan.inputBlock;
    return {output, std::min(plan.outputBlock, plan.outputs - output), input,
            std::min(plan.inputBlock, plan.inputs - input), task % plan.chunks};
  }

  void runTask(void *const *buffers, int64_t task, float *partials, char *slot) const {
    Block block = locate(task);
    auto *gradients = reinterpret_cast<float *>(slot);
    float *values = gradients + winogradPoints * plan.gradientStep();
    float *sums = values + winogradPoints * plan.valueStep();
    float *zeros = sums + winogradPoints * plan.sumStep();
    std::fill_n(zeros, std::max(plan.outputs, plan.inputs), 0.0f);
    int64_t begin = block.chunk * tiles.count() / plan.chunks;
    int64_t end = (block.chunk + 1) * tiles.count() / plan.chunks;
    for (int64_t first = begin; first < end; first += tileSteps) {
      int64_t count = std::min(tileSteps, end - first);
      transformTiles(buffers, block, first, count, gradients, values, zeros);
      multiply(block, gradients, values, count, sums, first > begin);
    }
    storeBlock(buffers, block, sums, zeros + std::max(plan.outputs, plan.inputs), partials);
  }

  void transformTiles(void *const *buffers, const Block &block, int64_t first, int64_t count,
                      float *gradients, float *values, const float *zeros) const {
    const float *source = static_cast<const float *>(buffers[0]) + block.input;
    const float *gradient = static_cast<const float *>(buffers[1]) + block.output;
    PointLayout gradientLayout{plan.gradientStep(), attentionStride, 0};
    PointLayout valueLayout{plan.valueStep(), plan.panelWidth, tileSteps * plan.panelWidth};
    const float *pixels[16];
    for (int64_t tile = 0; tile < count; ++tile) {
      tiles.findSource(first + tile, source, zeros, pixels);
      transforms.transformValues(pixels, block.inputs, values + tile * plan.panelWidth,
                                 valueLayout);
      tiles.findResult(first + tile, gradient, zeros, pixels);
      transforms.transformGradients(pixels, block.outputs, gradients + tile * attentionStride,
                                    gradientLayout);
    }
  }

  void multiply(const Block &block, const float *gradients, const float *values, int64_t count,
                float *sums, bool adds) const {
    int64_t rows = products.rowsPerPanel, width = plan.panelWidth;
    for (int64_t point = 0; point < winogradPoints; ++point)
      products.multiply(ceilDivide(block.outputs, rows), ceilDivide(block.inputs, width), count,
                        gradients + point * plan.gradientStep(), rows, 1, attentionStride,
                        values + point * plan.valueStep(), tileSteps * width, width,
                        sums + point * plan.sumStep(), plan.inputBlock, adds, /*bias=*/nullptr);
  }

  /// The filters of a block, or their partial sums.
  void storeBlock(void *const *buffers, const Block &block, const float *sums, float *taps,
                  float *partials) const {
    for (int64_t i = 0; i < block.outputs; ++i) {
      const float *points = sums + i * plan.inputBlock;
      int64_t output = block.output + i;
      if (plan.chunks > 1) {
        float *partial = partials + block.chunk * plan.partialElements() +
                         output * winogradTaps * plan.inputs + block.input;
        transforms.transformFilterSums(points, plan.sumStep(), block.inputs, partial, plan.inputs);
        continue;
      }
      transforms.transformFilterSums(points, plan.sumStep(), block.inputs, taps, plan.inputBlock);
      storeTaps(buffers, output, block.input, block.inputs, taps, plan.inputBlock);
    }
  }

  /// The partial sums of an output, in order.
  void addPartials(void *const *buffers, float *partials, int64_t output) const {
    int64_t count = winogradTaps * plan.inputs;
    float *first = partials + output * count;
    for (int64_t chunk = 1; chunk < plan.chunks; ++chunk) {
      const float *other = first + chunk * plan.partialElements();
      for (int64_t i = 0; i < count; ++i)
        first[i] += other[i];
    }
    storeTaps(buffers, output, 0, plan.inputs, first, plan.inputs);
  }

  void storeTaps(void *const *buffers, int64_t output, int64_t input, int64_t inputs,
                 const float *taps, int64_t tapStep) const {
    AccumulatedElements<float> result(buffers[d.addendIndex()], buffers[d.resultIndex()],
                                      d.wideResult, d.accumulate);
    int64_t first = (output * plan.inputs + input) * winogradTaps;
    for (int64_t tap = 0; tap < winogradTaps; ++tap)
      result.setRow<float>(first + tap, winogradTaps, inputs,
                           [source = taps + tap * tapStep](int64_t i) { return source[i]; });
  }

  ConvolutionDescriptor d;
  WinogradTiles tiles;
  GradientPlan plan, fastest;
  const BlockKernels<float, float> &products = blockKernels<float, float>();
  const WinogradKernels &transforms = winogradKernels();
};

} // namespace

std::unique_ptr<LibraryCall> libraries::createWinogradFilterGradient(const ConvolutionDescriptor &d,
                                                                     int threads) {
  return std::make_unique<WinogradFilterGradient>(d, threads);
}
