//===- ImageWriter.cpp - images on their way into a batch -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ImageWriter.h"
#include "memopt-runtime/numbers/Random.h"
#include <cstring>

using namespace memopt;

ImageWriter::ImageWriter(DType from, const ImageLayout &source, DType to, const ImageLayout &target,
                         const DataOptions &options)
    : from(from), to(to), source(source), target(target), isMirrored(options.isMirrored),
      cropPadding(options.cropPadding), seed(options.seed), values(size_t(source.channels)) {
  auto of = [](const std::vector<double> &list, size_t channel) {
    return list.size() == 1 ? list[0] : list[channel];
  };
  for (size_t channel = 0; channel < values.size(); ++channel)
    for (size_t byte = 0; byte < 256; ++byte)
      values[channel][byte] = float((double(byte) * options.scale - of(options.means, channel)) /
                                    of(options.deviations, channel));
}

StatusOr<ImageWriter> ImageWriter::create(DType from, const ImageLayout &source, DType to,
                                          const ImageLayout &target, const DataOptions &options) {
  for (auto [option, numbers] :
       {std::pair("--data-mean", &options.means), {"--data-std", &options.deviations}})
    if (numbers->size() != 1 && int64_t(numbers->size()) != source.channels)
      return badInput(std::string(option) + " has " + std::to_string(numbers->size()) +
                      " numbers, images have " + std::to_string(source.channels) + " channels");
  for (double deviation : options.deviations)
    if (!(deviation > 0))
      return badInput("--data-std must be above zero");
  return ImageWriter(from, source, to, target, options);
}

ImageWriter::Draw ImageWriter::draw(int64_t epoch, int64_t sample) const {
  static const uint64_t mirrors = hashName("image mirrored"), downs = hashName("image moved down"),
                        rights = hashName("image moved right");
  auto below = [&](int64_t bound, uint64_t stream) {
    return int64_t(
        drawBelow(uint64_t(bound), uint64_t(seed) ^ stream, uint64_t(sample), uint64_t(epoch)));
  };
  Draw draw;
  draw.isMirrored = isMirrored && below(2, mirrors) == 1;
  if (cropPadding) {
    draw.down = below(2 * cropPadding + 1, downs) - cropPadding;
    draw.right = below(2 * cropPadding + 1, rights) - cropPadding;
  }
  return draw;
}

void ImageWriter::store(const unsigned char *element, char *place, int64_t channel) const {
  if (from == to)
    std::memcpy(place, element, size_t(getByteSize(to)));
  else
    std::memcpy(place, &values[size_t(channel)][*element], sizeof(float));
}

void ImageWriter::clear(char *place) const {
  std::array<unsigned char, 8> black{}; // zero of any type
  for (int64_t c = 0; c < target.channels; ++c)
    for (int64_t y = 0; y < target.height; ++y)
      for (int64_t x = 0; x < target.width; ++x)
        store(black.data(), place + target.getElement(c, y, x) * getByteSize(to), c);
}

void ImageWriter::write(const unsigned char *image, char *place, int64_t epoch,
                        int64_t sample) const {
  Draw draw = this->draw(epoch, sample);
  clear(place);
  int64_t top = (target.height - source.height) / 2 + draw.down,
          left = (target.width - source.width) / 2 + draw.right;
  for (int64_t c = 0; c < source.channels; ++c)
    for (int64_t y = 0; y < source.height; ++y)
      for (int64_t x = 0; x < source.width; ++x) {
        int64_t row = y + top, column = x + left;
        if (row < 0 || row >= target.height || column < 0 || column >= target.width)
          continue;
        int64_t at = draw.isMirrored ? source.width - 1 - x : x;
        store(image + source.getElement(c, y, at) * getByteSize(from),
              place + target.getElement(c, row, column) * getByteSize(to), c);
      }
}
