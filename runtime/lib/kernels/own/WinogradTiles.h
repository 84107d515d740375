//===- WinogradTiles.h - tiles of 2 x 2 results -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_OWN_WINOGRADTILES_H
#define MEMOPT_RUNTIME_LIB_KERNELS_OWN_WINOGRADTILES_H

#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"
#include "memopt-runtime/kernels/own/BlockedProduct.h"

namespace memopt::libraries {

/// Elements from what belongs to one point to what belongs to the next, of which there are so many: all
/// points of a tile are written together, and at multiples of a page they would share one set of the
/// caches.
inline int64_t padPoints(int64_t elements) {
  constexpr int64_t line = 64 / sizeof(float);
  return roundUp(elements, line) + line;
}

/// Channels-last images of `height` x `width` pixels.
struct ImageGrid {
  int64_t height, width, channels;

  int64_t elements() const { return height * width * channels; }
  /// That of an image at `base`; `outside` for pixels beside it.
  template <typename T> T *find(T *base, int64_t row, int64_t column, T *outside) const {
    bool isInside = row >= 0 && row < height && column >= 0 && column < width;
    return isInside ? base + (row * width + column) * channels : outside;
  }
};

/// How a convolution of 3 x 3 taps in steps of one pixel is cut into tiles of 2 x 2 results, each of
/// which meets 4 x 4 pixels of the source.
struct WinogradTiles {
  ImageGrid source, result;
  int64_t images, top, left; ///< rows and columns of padding in front of the source
  int64_t rows, columns;     ///< of tiles in an image

  WinogradTiles(const ImageGrid &source, const ImageGrid &result, int64_t images, int64_t top,
                int64_t left)
      : source(source), result(result), images(images), top(top), left(left),
        rows(ceilDivide(result.height, 2)), columns(ceilDivide(result.width, 2)) {}

  /// Of the forward convolution; its gradient of the weights has the same tiles.
  static WinogradTiles ofForward(const ConvolutionDescriptor &d) {
    return {{d.input[1], d.input[2], d.inputChannels},
            {d.output[1], d.output[2], d.outputChannels},
            d.images,
            d.paddingLower[1],
            d.paddingLower[2]};
  }

  /// Of the gradient of the input: the convolution of the output's gradient with turned filters.
  static WinogradTiles ofBackwardData(const ConvolutionDescriptor &d) {
    return {{d.output[1], d.output[2], d.outputChannels},
            {d.input[1], d.input[2], d.inputChannels},
            d.images,
            2 - d.paddingLower[1],
            2 - d.paddingLower[2]};
  }

  int64_t count() const { return images * rows * columns; }

  /// The 4 x 4 pixels of the source that a tile meets.
  void findSource(int64_t tile, const float *base, const float *zeros, const float **pixels) const {
    Place place = locate(tile);
    for (int64_t i = 0; i < 16; ++i)
      pixels[i] = source.find(base + place.image * source.elements(), place.row - top + i / 4,
                              place.column - left + i % 4, zeros);
  }

  /// Its 2 x 2 results.
  template <typename T> void findResult(int64_t tile, T *base, T *outside, T **pixels) const {
    Place place = locate(tile);
    for (int64_t i = 0; i < 4; ++i)
      pixels[i] = result.find(base + place.image * result.elements(), place.row + i / 2,
                              place.column + i % 2, outside);
  }

private:
  struct Place {
    int64_t image, row, column; ///< of the first result
  };
  Place locate(int64_t tile) const {
    int64_t line = tile / columns;
    return {line / rows, line % rows * 2, tile % columns * 2};
  }
};

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_OWN_WINOGRADTILES_H
