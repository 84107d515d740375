//===- ImageWriter.h - images on their way into a batch ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bytes become (byte * scale - mean) / deviation, small images are centred in black, and chance may
// mirror and move them: what it does to a sample follows from the seed, the epoch and the sample's
// number, not from who asks or when.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_DATA_IMAGEWRITER_H
#define MEMOPT_RUNTIME_LIB_DATA_IMAGEWRITER_H

#include "memopt-runtime/data/Data.h"
#include <array>

namespace memopt {

/// Where the elements of an image lie.
struct ImageLayout {
  int64_t channels, height, width;
  bool isChannelsFirst;

  int64_t getElement(int64_t channel, int64_t y, int64_t x) const {
    return isChannelsFirst ? (channel * height + y) * width + x
                           : (y * width + x) * channels + channel;
  }
  int64_t getElementCount() const { return channels * height * width; }
};

class ImageWriter {
public:
  /// From bytes or elements of the model's type, to f32 or bytes.
  static StatusOr<ImageWriter> create(DType from, const ImageLayout &source, DType to,
                                      const ImageLayout &target, const DataOptions &options);

  /// All elements of the target, which has as many channels and is as large at least.
  void write(const unsigned char *image, char *target, int64_t epoch, int64_t sample) const;

  /// Black everywhere.
  void clear(char *target) const;

private:
  struct Draw {
    bool isMirrored = false;
    int64_t down = 0, right = 0;
  };
  ImageWriter(DType from, const ImageLayout &source, DType to, const ImageLayout &target,
              const DataOptions &options);
  Draw draw(int64_t epoch, int64_t sample) const;
  void store(const unsigned char *from, char *to, int64_t channel) const;

  DType from, to;
  ImageLayout source, target;
  bool isMirrored;
  int64_t cropPadding, seed;
  std::vector<std::array<float, 256>> values; ///< of bytes, by channel
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_DATA_IMAGEWRITER_H
