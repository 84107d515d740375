//===- ConvolutionDescriptor.h - geometry of a convolution call ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DESCRIPTORS_CONVOLUTIONDESCRIPTOR_H
#define MEMOPT_RUNTIME_DESCRIPTORS_CONVOLUTIONDESCRIPTOR_H

#include "memopt-runtime/descriptors/MatmulDescriptor.h"
#include <array>
#include <optional>
#include <string_view>

namespace memopt::libraries {

enum class ConvolutionDirection { Forward, BackwardData, BackwardWeights };
/// Of a library call of that kind; nothing where it is no convolution.
std::optional<ConvolutionDirection> findDirection(std::string_view kind);

/// Extents or positions along depth, height and width; missing leading dimensions are 1 (0).
using Spatial = std::array<int64_t, 3>;

inline int64_t volume(const Spatial &extents) { return extents[0] * extents[1] * extents[2]; }

/// Strides of an activation, in elements; pixels are numbered row-major in an image.
struct ActivationStrides {
  int64_t image, pixel, channel;
};

/// y[n, k, o] = bias[k] + sum over c in k's group and taps t of
///              x[n, c, o * stride - paddingLower + t * dilation] * w[k, c, t]
/// or the relu of that, and its two gradients. Weights are always [K, C / groups, taps],
/// contiguous.
struct ConvolutionDescriptor {
  ConvolutionDirection direction;
  ElementType type;
  bool channelsLast, bias, reference;
  bool accumulate; ///< of gradients of weights: added to the buffer in front of the result
  bool relu; ///< what is not above 0 is stored as 0, NaN as NaN; of createOwnConvolution alone
  bool wideResult;     ///< of 16-bit operands, in f32
  bool packs = false;  ///< packs the weights for a call of `direction` and does nothing else
  int64_t packedBytes; ///< of weights that lie as the library reads them; 0: of plain ones
  int64_t workspaceLimit = maxExtent;
  int rank; ///< number of spatial dimensions, 1 to 3
  int64_t images, inputChannels, outputChannels, groups;
  Spatial input, output, taps, strides, dilations, paddingLower, paddingUpper;

  /// The kind of a call that packs weights is that of the call that reads them.
  static StatusOr<ConvolutionDescriptor> parse(const nlohmann::json &descriptor,
                                               ConvolutionDirection direction);

  int64_t groupInputs() const { return inputChannels / groups; }
  int64_t groupOutputs() const { return outputChannels / groups; }
  ActivationStrides inputStrides() const { return activation(inputChannels, volume(input)); }
  ActivationStrides outputStrides() const { return activation(outputChannels, volume(output)); }
  /// Index of what the result is added to; the result's own where there is none.
  int addendIndex() const { return packs ? 1 : bias ? 3 : 2; }
  /// Index of the result in the list of buffers; the workspace follows it.
  int resultIndex() const { return addendIndex() + (accumulate ? 1 : 0); }
  std::vector<BufferUse> getBuffers() const;
  /// Whether the filter has one tap, which meets every pixel.
  bool meetsEachPixelOnce() const {
    constexpr Spatial none{0, 0, 0}, one{1, 1, 1};
    return taps == one && strides == one && paddingLower == none && paddingUpper == none;
  }

private:
  ActivationStrides activation(int64_t channels, int64_t pixels) const {
    return channelsLast ? ActivationStrides{channels * pixels, channels, 1}
                        : ActivationStrides{channels * pixels, 1, pixels};
  }
};

/// Our own kernels: every element type and shape.
std::unique_ptr<LibraryCall> createOwnConvolution(const ConvolutionDescriptor &descriptor,
                                                  int threads);

/// Whether these compute it as a product of matrices.
bool isProduct(const ConvolutionDescriptor &descriptor);

/// Our own kernels for groups of at most `groupChannels` channels; null for others.
std::unique_ptr<LibraryCall> createGroupConvolution(const ConvolutionDescriptor &descriptor,
                                                    int64_t groupChannels, int threads);

/// Minimal filtering of 3 x 3 taps in steps of one pixel (WinogradKernels.h), f32 and channels-last;
/// null for others and where plain sums are faster. The relu may be there.
std::unique_ptr<LibraryCall> createWinogradConvolution(const ConvolutionDescriptor &descriptor,
                                                       int threads);

/// oneDNN; null when it has no implementation that keeps the promises of LibraryCalls.h. Packed
/// weights must have the bytes of packedWeightBytes.
std::unique_ptr<LibraryCall> createDnnlConvolution(const ConvolutionDescriptor &descriptor,
                                                   int threads);

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_DESCRIPTORS_CONVOLUTIONDESCRIPTOR_H
