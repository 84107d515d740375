//===- OwnConvolution.cpp - convolution by our own kernels ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Each direction is a matrix product whose left or right operand is read through the geometry
// ("implicit GEMM"; Chetlur et al., cuDNN, arXiv:1410.0759, section 3): patches are packed block by
// block and never written out whole. A product belongs to one group; the gradient of the input also
// has one product for each residue of the position modulo the stride, because positions of one
// residue meet the same taps.

#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"
#include "memopt-runtime/kernels/own/BlockedProduct.h"
#include <optional>
#include <tuple>

using namespace memopt;
using namespace memopt::libraries;

namespace {

/// Where a pixel of a grid lies.
struct Pixel {
  int64_t image;
  Spatial at;
};

Pixel locate(int64_t index, const Spatial &extents) {
  Pixel pixel;
  for (int i = 2; i >= 0; --i) {
    pixel.at[i] = index % extents[i];
    index /= extents[i];
  }
  pixel.image = index;
  return pixel;
}

/// Calls body(tap, channel, count, done) for the runs of one tap in [begin, begin + count) of the
/// dimension [taps][channels].
template <typename Body>
void forEachRun(int64_t begin, int64_t count, int64_t channels, Body &&body) {
  for (int64_t done = 0; done < count;) {
    int64_t tap = (begin + done) / channels, channel = (begin + done) % channels;
    int64_t run = std::min(channels - channel, count - done);
    body(tap, channel, run, done);
    done += run;
  }
}

template <typename S, typename T> class ConvolutionOperands : public ProductOperands<S, T> {
protected:
  ConvolutionOperands(const ConvolutionDescriptor &d) : d(d), tapCount(volume(d.taps)) {}

  /// The number of the element of an activation with grid `extents` that is channel 0 of `pixel`,
  /// which lies in it.
  static int64_t number(const ActivationStrides &strides, const Spatial &extents,
                        const Pixel &pixel) {
    int64_t index = 0;
    for (int i = 0; i < 3; ++i)
      index = index * extents[i] + pixel.at[i];
    return pixel.image * strides.image + index * strides.pixel;
  }
  /// Its address in `data`; null when the pixel is padding.
  static const S *address(const S *data, const ActivationStrides &strides, const Spatial &extents,
                          const Pixel &pixel) {
    for (int i = 0; i < 3; ++i)
      if (pixel.at[i] < 0 || pixel.at[i] >= extents[i])
        return nullptr;
    return data + number(strides, extents, pixel);
  }

  /// The input pixel that `tap` reads for an output pixel.
  Pixel inputPixel(const Pixel &output, const Spatial &tap) const {
    Pixel pixel{output.image, {}};
    for (int i = 0; i < 3; ++i)
      pixel.at[i] = output.at[i] * d.strides[i] - d.paddingLower[i] + tap[i] * d.dilations[i];
    return pixel;
  }

  const ConvolutionDescriptor &d;
  const int64_t tapCount;
  const BlockKernels<S, T> &kernels = blockKernels<S, T>();
};

/// Rows: output pixels. Columns: output channels of the group. Depth: [taps][input channels].
template <typename S, typename T> class ForwardOperands final : public ConvolutionOperands<S, T> {
  using Base = ConvolutionOperands<S, T>;
  using Base::d, Base::kernels, Base::tapCount;

public:
  ForwardOperands(const ConvolutionDescriptor &d, void *const *buffers)
      : Base(d), x(static_cast<const S *>(buffers[0])), w(static_cast<const S *>(buffers[1])),
        bias(d.bias ? static_cast<const Wide<S> *>(buffers[2]) : nullptr),
        y(buffers[d.resultIndex()], d.wideResult) {}

  static std::vector<ProductShape> shapes(const ConvolutionDescriptor &d) {
    return std::vector<ProductShape>(d.groups, {d.images * volume(d.output), d.groupOutputs(),
                                                volume(d.taps) * d.groupInputs()});
  }

  void packRows(Panels<T> panels, int64_t group, int64_t rowBegin, int64_t rows, int64_t depthBegin,
                int64_t depth) const override {
    Pixel pixels[maxBlockRows];
    for (int64_t i = 0; i < rows; ++i)
      pixels[i] = locate(rowBegin + i, d.output);
    ActivationStrides strides = d.inputStrides();
    auto packRun = [&](int64_t tap, int64_t channel, int64_t run, int64_t done) {
      Spatial at = locate(tap, d.taps).at;
      const S *lane[maxBlockRows];
      for (int64_t i = 0; i < rows; ++i) {
        lane[i] = Base::address(x, strides, d.input, Base::inputPixel(pixels[i], at));
        if (lane[i])
          lane[i] += (group * d.groupInputs() + channel) * strides.channel;
      }
      kernels.packLanes(panels, done, lane, rows, run, strides.channel);
    };
    forEachRun(depthBegin, depth, d.groupInputs(), packRun);
  }

  void packColumns(Panels<T> panels, int64_t group, int64_t columnBegin, int64_t columns,
                   int64_t depthBegin, int64_t depth) const override {
    int64_t filter = d.groupInputs() * tapCount;
    auto packRun = [&](int64_t tap, int64_t channel, int64_t run, int64_t done) {
      const S *lane[maxBlockColumns];
      for (int64_t i = 0; i < columns; ++i)
        lane[i] =
            w + (group * d.groupOutputs() + columnBegin + i) * filter + channel * tapCount + tap;
      kernels.packLanes(panels, done, lane, columns, run, tapCount);
    };
    forEachRun(depthBegin, depth, d.groupInputs(), packRun);
  }

  void store(int64_t group, int64_t rowBegin, int64_t rows, int64_t columnBegin, int64_t columns,
             const T *block, int64_t stride) const override {
    ActivationStrides strides = d.outputStrides();
    int64_t first = group * d.groupOutputs() + columnBegin;
    for (int64_t i = 0; i < rows; ++i) {
      int64_t pixel = Base::number(strides, d.output, locate(rowBegin + i, d.output));
      y.setRow(pixel + first * strides.channel, strides.channel, columns,
               [source = block + i * stride, added = bias ? bias + first : nullptr,
                relu = d.relu](int64_t j) {
                 T sum = source[j] + (added ? T(added[j]) : T(0));
                 return relu && sum <= T(0) ? T(0) : sum;
               });
    }
  }

private:
  const S *x, *w;
  const Wide<S> *bias;
  const ResultElements<S> y;
};

/// The input positions of one residue modulo the stride, and the taps they meet.
struct Residue {
  Spatial first, counts; ///< position j of the class is first + j * stride
  std::vector<Spatial> taps;
  std::vector<Spatial> shifts; ///< position j meets output j + shift through the tap
};

std::vector<Residue> makeResidues(const ConvolutionDescriptor &d) {
  std::vector<Residue> residues;
  for (int64_t index = 0; index < volume(d.strides); ++index) {
    Residue residue{locate(index, d.strides).at, {}, {}, {}};
    for (int i = 0; i < 3; ++i)
      residue.counts[i] =
          std::max<int64_t>(0, ceilDivide(d.input[i] - residue.first[i], d.strides[i]));
    if (volume(residue.counts) == 0)
      continue;
    for (int64_t tap = 0; tap < volume(d.taps); ++tap) {
      Spatial at = locate(tap, d.taps).at, shift{};
      bool meets = true;
      for (int i = 0; i < 3; ++i) {
        int64_t distance = residue.first[i] + d.paddingLower[i] - at[i] * d.dilations[i];
        meets &= distance % d.strides[i] == 0;
        shift[i] = distance / d.strides[i];
      }
      if (!meets)
        continue;
      residue.taps.push_back(at);
      residue.shifts.push_back(shift);
    }
    residues.push_back(std::move(residue));
  }
  return residues;
}

/// Product: [groups][residues]. Rows: input pixels of the residue. Columns: input channels of the
/// group. Depth: [taps of the residue][output channels].
template <typename S, typename T>
class BackwardDataOperands final : public ConvolutionOperands<S, T> {
  using Base = ConvolutionOperands<S, T>;
  using Base::d, Base::kernels, Base::tapCount;

public:
  BackwardDataOperands(const ConvolutionDescriptor &d, const std::vector<Residue> &residues,
                       void *const *buffers)
      : Base(d), residues(residues), dy(static_cast<const S *>(buffers[0])),
        w(static_cast<const S *>(buffers[1])), dx(buffers[2], d.wideResult) {}

  static std::vector<ProductShape> shapes(const ConvolutionDescriptor &d,
                                          const std::vector<Residue> &residues) {
    std::vector<ProductShape> shapes;
    for (int64_t group = 0; group < d.groups; ++group)
      for (const Residue &residue : residues)
        shapes.push_back({d.images * volume(residue.counts), d.groupInputs(),
                          static_cast<int64_t>(residue.taps.size()) * d.groupOutputs()});
    return shapes;
  }

  void packRows(Panels<T> panels, int64_t product, int64_t rowBegin, int64_t rows,
                int64_t depthBegin, int64_t depth) const override {
    const Residue &residue = residues[product % residues.size()];
    int64_t group = product / static_cast<int64_t>(residues.size());
    Pixel pixels[maxBlockRows];
    for (int64_t i = 0; i < rows; ++i)
      pixels[i] = locate(rowBegin + i, residue.counts);
    ActivationStrides strides = d.outputStrides();
    auto packRun = [&](int64_t tap, int64_t channel, int64_t run, int64_t done) {
      const Spatial &shift = residue.shifts[tap];
      const S *lane[maxBlockRows];
      for (int64_t i = 0; i < rows; ++i) {
        Pixel pixel = pixels[i];
        for (int axis = 0; axis < 3; ++axis)
          pixel.at[axis] += shift[axis];
        lane[i] = Base::address(dy, strides, d.output, pixel);
        if (lane[i])
          lane[i] += (group * d.groupOutputs() + channel) * strides.channel;
      }
      kernels.packLanes(panels, done, lane, rows, run, strides.channel);
    };
    forEachRun(depthBegin, depth, d.groupOutputs(), packRun);
  }

  void packColumns(Panels<T> panels, int64_t product, int64_t columnBegin, int64_t columns,
                   int64_t depthBegin, int64_t depth) const override {
    const Residue &residue = residues[product % residues.size()];
    int64_t group = product / static_cast<int64_t>(residues.size());
    int64_t filter = d.groupInputs() * tapCount;
    auto packRun = [&](int64_t tap, int64_t channel, int64_t run, int64_t done) {
      const Spatial &at = residue.taps[tap];
      int64_t index = (at[0] * d.taps[1] + at[1]) * d.taps[2] + at[2];
      const S *lane[maxBlockColumns];
      for (int64_t i = 0; i < columns; ++i)
        lane[i] = w + (group * d.groupOutputs() + channel) * filter + (columnBegin + i) * tapCount +
                  index;
      kernels.packLanes(panels, done, lane, columns, run, filter);
    };
    forEachRun(depthBegin, depth, d.groupOutputs(), packRun);
  }

  void store(int64_t product, int64_t rowBegin, int64_t rows, int64_t columnBegin, int64_t columns,
             const T *block, int64_t stride) const override {
    const Residue &residue = residues[product % residues.size()];
    int64_t group = product / static_cast<int64_t>(residues.size());
    ActivationStrides strides = d.inputStrides();
    for (int64_t i = 0; i < rows; ++i) {
      Pixel pixel = locate(rowBegin + i, residue.counts);
      for (int axis = 0; axis < 3; ++axis)
        pixel.at[axis] = residue.first[axis] + pixel.at[axis] * d.strides[axis];
      int64_t first = Base::number(strides, d.input, pixel) +
                      (group * d.groupInputs() + columnBegin) * strides.channel;
      dx.setRow(first, strides.channel, columns,
                [source = block + i * stride](int64_t j) { return source[j]; });
    }
  }

private:
  const std::vector<Residue> &residues;
  const S *dy, *w;
  const ResultElements<S> dx;
};

/// Rows: output channels of the group. Columns: [taps][input channels]. Depth: output pixels.
template <typename S, typename T>
class BackwardWeightsOperands final : public ConvolutionOperands<S, T> {
  using Base = ConvolutionOperands<S, T>;
  using Base::d, Base::kernels, Base::tapCount;

public:
  BackwardWeightsOperands(const ConvolutionDescriptor &d, void *const *buffers)
      : Base(d), x(static_cast<const S *>(buffers[0])), dy(static_cast<const S *>(buffers[1])),
        dw(buffers[d.addendIndex()], buffers[d.resultIndex()], d.wideResult, d.accumulate) {}

  static std::vector<ProductShape> shapes(const ConvolutionDescriptor &d) {
    return std::vector<ProductShape>(d.groups, {d.groupOutputs(), volume(d.taps) * d.groupInputs(),
                                                d.images * volume(d.output)});
  }

  void packRows(Panels<T> panels, int64_t group, int64_t rowBegin, int64_t rows, int64_t depthBegin,
                int64_t depth) const override {
    ActivationStrides strides = d.outputStrides();
    const S *step[maxBlockDepth];
    int64_t channel = group * d.groupOutputs() + rowBegin;
    for (int64_t i = 0; i < depth; ++i)
      step[i] = Base::address(dy, strides, d.output, locate(depthBegin + i, d.output)) +
                channel * strides.channel;
    kernels.packSteps(panels, 0, step, depth, rows, strides.channel);
  }

  PlacedBlock<const T *> findRows(int64_t group, int64_t row, int64_t depth) const override {
    ActivationStrides strides = d.outputStrides();
    if constexpr (std::is_same_v<S, T>)
      return {dy + depth * strides.pixel + (group * d.groupOutputs() + row) * strides.channel,
              strides.channel, strides.pixel};
    return {};
  }

  void packColumns(Panels<T> panels, int64_t group, int64_t columnBegin, int64_t columns,
                   int64_t depthBegin, int64_t depth) const override {
    Pixel pixels[maxBlockDepth];
    for (int64_t i = 0; i < depth; ++i)
      pixels[i] = locate(depthBegin + i, d.output);
    ActivationStrides strides = d.inputStrides();
    // Where taps of a row and their channels lie side by side they are one run.
    bool joins = strides.channel == 1 && strides.pixel == d.groupInputs() && d.dilations[2] == 1;
    int64_t joined = joins ? d.taps[2] : 1;
    auto packRun = [&](int64_t row, int64_t first, int64_t run, int64_t done) {
      Spatial at = locate(row * joined, d.taps).at;
      const S *step[maxBlockDepth];
      for (int64_t i = 0; i < depth; ++i) {
        Pixel begin = Base::inputPixel(pixels[i], at), end = begin;
        end.at[2] += joined - 1;
        step[i] = Base::address(x, strides, d.input, begin);
        if (!Base::address(x, strides, d.input, end))
          step[i] = nullptr;
        if (step[i])
          step[i] += group * d.groupInputs() * strides.channel + first * strides.channel;
      }
      kernels.packSteps(panels, done, step, depth, run, strides.channel);
      if (joined == 1)
        return;
      for (int64_t i = 0; i < depth; ++i)
        if (!step[i])
          packTaps(panels, i, Base::inputPixel(pixels[i], at), first, run, done);
    };
    forEachRun(columnBegin, columns, joined * d.groupInputs(), packRun);
  }

  void store(int64_t group, int64_t rowBegin, int64_t rows, int64_t columnBegin, int64_t columns,
             const T *block, int64_t stride) const override {
    int64_t filter = d.groupInputs() * tapCount;
    auto storeRun = [&](int64_t tap, int64_t channel, int64_t run, int64_t done) {
      for (int64_t i = 0; i < rows; ++i)
        dw.template setRow<T>(
            (group * d.groupOutputs() + rowBegin + i) * filter + channel * tapCount + tap, tapCount,
            run, [source = block + i * stride + done](int64_t j) { return source[j]; });
    };
    forEachRun(columnBegin, columns, d.groupInputs(), storeRun);
  }

private:
  /// Elements [first, first + run) of a row of taps, of which some meet padding, for one step.
  void packTaps(Panels<T> panels, int64_t depth, const Pixel &begin, int64_t first, int64_t run,
                int64_t lane) const {
    Panels<T> of{panels.data + depth * panels.width, panels.width, panels.depth};
    forEachRun(first, run, d.groupInputs(),
               [&](int64_t tap, int64_t channel, int64_t count, int64_t done) {
                 Pixel pixel = begin;
                 pixel.at[2] += tap;
                 const S *step = Base::address(x, d.inputStrides(), d.input, pixel);
                 if (step)
                   step += channel;
                 kernels.packSteps(of, lane + done, &step, 1, count, 1);
               });
  }

  const S *x, *dy;
  const AccumulatedElements<S> dw;
};

template <typename S, typename T> class OwnConvolution final : public LibraryCall {
public:
  OwnConvolution(const ConvolutionDescriptor &d, int threads)
      : d(d), residues(makeResidues(d)), product(makeShapes(), threads, places()) {}

  int64_t workspaceBytes() const override { return product.workspaceBytes(); }
  std::string implementation() const override { return product.name(); }

  Status run(void *const *buffers, ThreadPool &pool) override {
    void *workspace = buffers[d.resultIndex() + 1];
    switch (d.direction) {
    case ConvolutionDirection::Forward:
      product.run(ForwardOperands<S, T>(d, buffers), workspace, pool);
      break;
    case ConvolutionDirection::BackwardData:
      product.run(BackwardDataOperands<S, T>(d, residues, buffers), workspace, pool);
      break;
    case ConvolutionDirection::BackwardWeights:
      product.run(BackwardWeightsOperands<S, T>(d, buffers), workspace, pool);
      break;
    }
    return Status::ok();
  }

private:
  /// A gradient of channels-last outputs is a matrix: rows are channels, steps of the depth pixels.
  ProductPlaces places() const {
    ProductPlaces places;
    places.rows = std::is_same_v<S, T> && d.channelsLast &&
                  d.direction == ConvolutionDirection::BackwardWeights &&
                  areNearSteps<S>(d.outputChannels);
    return places;
  }

  std::vector<ProductShape> makeShapes() const {
    switch (d.direction) {
    case ConvolutionDirection::Forward:
      return ForwardOperands<S, T>::shapes(d);
    case ConvolutionDirection::BackwardData:
      return BackwardDataOperands<S, T>::shapes(d, residues);
    case ConvolutionDirection::BackwardWeights:
      break;
    }
    return BackwardWeightsOperands<S, T>::shapes(d);
  }

  ConvolutionDescriptor d;
  std::vector<Residue> residues;
  BlockedProduct<S, T> product;
};

} // namespace

/// The product of a filter of one tap that meets every pixel: images and gradients are its matrices,
/// its buffers are those of the convolution. None where others would pack its weights.
static std::optional<MatmulDescriptor> asProduct(const ConvolutionDescriptor &d) {
  if (!d.meetsEachPixelOnce() || !d.channelsLast || d.groups != 1 || d.relu)
    return std::nullopt;
  // A convolution adds its bias to the sum, a product to what it stores.
  if (d.bias && (d.reference || getElementBytes(d.type) == 2))
    return std::nullopt;
  int64_t inputs = d.inputChannels, outputs = d.outputChannels;
  int64_t pixels = d.images * volume(d.input);
  MatmulDescriptor product{};
  product.type = d.type;
  product.accumulate = d.accumulate;
  product.reference = d.reference;
  product.wideResult = d.wideResult;
  product.bias = d.bias;
  product.counted = Counted::All;
  auto set = [&](int64_t m, int64_t n, int64_t k, MatrixStrides a, MatrixStrides b,
                 MatrixStrides c) {
    std::tie(product.m, product.n, product.k) = std::tie(m, n, k);
    std::tie(product.a, product.b, product.c) = std::tie(a, b, c);
  };
  switch (d.direction) {
  case ConvolutionDirection::Forward:
    set(pixels, outputs, inputs, {{}, inputs, 1}, {{}, 1, inputs}, {{}, outputs, 1});
    break;
  case ConvolutionDirection::BackwardData:
    set(pixels, inputs, outputs, {{}, outputs, 1}, {{}, inputs, 1}, {{}, inputs, 1});
    break;
  case ConvolutionDirection::BackwardWeights:
    set(inputs, outputs, pixels, {{}, 1, inputs}, {{}, outputs, 1}, {{}, 1, inputs});
    return product;
  }
  return product.hasFewRows() ? std::nullopt : std::optional(product);
}

bool libraries::isProduct(const ConvolutionDescriptor &d) { return asProduct(d).has_value(); }

std::unique_ptr<LibraryCall> libraries::createOwnConvolution(const ConvolutionDescriptor &d,
                                                             int threads) {
  if (std::optional<MatmulDescriptor> product = asProduct(d))
    return createOwnMatmul(*product, threads);
  return createForTypes<OwnConvolution>(d, threads);
}
