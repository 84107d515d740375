//===- IdxData.cpp - images and labels in IDX files -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The format of the MNIST family (http://yann.lecun.com/exdb/mnist): two zero bytes, the element
// type (8: bytes), the number of dimensions, the dimensions as big-endian 32-bit numbers, the
// elements.
//
//===----------------------------------------------------------------------===//

#include "ImageWriter.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/data/DataSources.h"
#include <algorithm>

using namespace memopt;

namespace {
struct IdxFile {
  Shape shape; ///< samples first
  std::vector<unsigned char> content;
  size_t begin; ///< of the elements

  const unsigned char *data() const { return content.data() + begin; }
};

class IdxData : public DataSource {
public:
  IdxData(IdxFile images, IdxFile labels, const DataOptions &options, int64_t batchSize,
          int64_t batches)
      : images(std::move(images)), labels(std::move(labels)), batchSize(batchSize),
        batches(batches), order(this->labels.shape[0], options.isShuffled, options.seed) {}

  DataUses getUses() const override { return {imageSpec.dtype == DType::F32, true}; }
  int64_t getBatchesPerEpoch() const override { return batches; }
  int64_t getBatchSize() const override { return batchSize; }
  int64_t getSampleCount(int64_t position) const override {
    return std::min(batchSize, labels.shape[0] - position % batches * batchSize);
  }
  Status fill(int64_t position, const std::vector<char *> &targets) override;

  IdxFile images, labels;
  int64_t batchSize, batches;
  SampleOrder order;
  size_t imageInput = 0, labelInput = 0;
  InputSpec imageSpec, labelSpec;
  int64_t imageElements = 0; ///< of one image of the model
  ImageLayout source{}, target{};
  std::optional<ImageWriter> writer;
};
} // namespace

//===----------------------------------------------------------------------===//
// Reading files
//===----------------------------------------------------------------------===//

/// Type and shape, from a file's first bytes; the number of elements.
static StatusOr<int64_t> parseHeader(const std::vector<unsigned char> &content, IdxFile &file) {
  if (content.size() < 4 || content[0] || content[1])
    return badInput("not an IDX file: it does not begin with two zero bytes");
  if (content[2] != 8)
    return badInput("IDX element type " + std::to_string(content[2]) +
                    " is not supported; expected 8 (unsigned bytes)");
  size_t rank = content[3];
  file.begin = 4 + 4 * rank;
  if (rank == 0 || content.size() < file.begin)
    return badInput("the IDX header ends too early");
  int64_t elements = 1;
  for (size_t i = 0; i < rank; ++i) {
    const unsigned char *bytes = content.data() + 4 + 4 * i;
    int64_t size =
        int64_t(bytes[0]) << 24 | int64_t(bytes[1]) << 16 | int64_t(bytes[2]) << 8 | bytes[3];
    file.shape.push_back(size);
    if (__builtin_mul_overflow(elements, size, &elements))
      return badInput("the IDX header's size does not fit 64 bits");
  }
  return elements;
}

static Status parseIdx(IdxFile &file) {
  MEMOPT_ASSIGN_OR_RETURN(int64_t elements, parseHeader(file.content, file));
  size_t found = file.content.size() - file.begin;
  if (uint64_t(elements) == found)
    return Status::ok();
  return badInput("the IDX header says " + toString(DType::U8, file.shape) + ", that is " +
                  std::to_string(elements) + " bytes, found " +
                  (found > uint64_t(elements) ? "more" : std::to_string(found)));
}

/// Where the elements end, if the header is one.
static size_t findEnd(const std::vector<unsigned char> &begin) {
  IdxFile file;
  StatusOr<int64_t> elements = parseHeader(begin, file);
  return elements.isOk() ? file.begin + size_t(*elements) : begin.size();
}

static StatusOr<IdxFile> readIdx(const std::string &path) {
  IdxFile file;
  MEMOPT_ASSIGN_OR_RETURN(file.content, readMaybeGzip(path, maxDataBytes, findEnd));
  if (Status status = parseIdx(file); !status.isOk())
    return status.withContext(quote(path));
  return file;
}

//===----------------------------------------------------------------------===//
// Fitting the model
//===----------------------------------------------------------------------===//

/// The labels are the integer input whose shape begins that of the other, the images.
static Status findInputs(const std::vector<InputSpec> &inputs, IdxData &data) {
  if (inputs.size() != 2)
    return badInput("idx data gives images and labels, the model has " +
                    std::to_string(inputs.size()) + " inputs");
  for (size_t label = 0; label < 2; ++label) {
    const Shape &labels = inputs[label].shape, &images = inputs[1 - label].shape;
    bool isPrefix =
        labels.size() < images.size() && std::equal(labels.begin(), labels.end(), images.begin());
    if (isFloat(inputs[label].dtype) || !isPrefix)
      continue;
    data.labelInput = label;
    data.imageInput = 1 - label;
    data.labelSpec = inputs[label];
    data.imageSpec = inputs[1 - label];
    return Status::ok();
  }
  return badInput("idx data gives images and integer labels, the model's inputs are " +
                  toString(inputs[0].dtype, inputs[0].shape) + " and " +
                  toString(inputs[1].dtype, inputs[1].shape));
}

static Status fitImages(IdxData &data, std::vector<std::string> &notices) {
  const Shape &have = data.images.shape; // [samples, height, width] or [..., channels]
  Shape want(data.imageSpec.shape.begin() + std::ptrdiff_t(data.labelSpec.shape.size()),
             data.imageSpec.shape.end());
  auto mismatch = [&data, &have, wanted = want] {
    return badInput("the data set's images are " +
                    toString(DType::U8, Shape(have.begin() + 1, have.end())) +
                    ", the model's input " + quote(data.imageSpec.name) + " takes " +
                    toString(data.imageSpec.dtype, wanted) + " for each sample");
  };
  if (have.size() != 3 && have.size() != 4)
    return mismatch();
  data.source = {have.size() == 4 ? have[3] : 1, have[1], have[2], false};
  data.imageElements = getElementCount(want);
  int64_t channels = data.source.channels;
  bool isChannelsFirst = want.size() == 3 && want[0] == channels;
  if (isChannelsFirst)
    want.erase(want.begin());
  else if (want.size() == 3 && want[2] == channels)
    want.pop_back();
  else if (want.size() != 2 || channels != 1)
    return mismatch();
  data.target = {channels, want[0], want[1], isChannelsFirst};
  if (want[0] < have[1] || want[1] < have[2])
    return mismatch();
  if (want[0] != have[1] || want[1] != have[2])
    notices.push_back("images of " + std::to_string(have[1]) + " x " + std::to_string(have[2]) +
                      " are centred in zeros to the model's " + std::to_string(want[0]) + " x " +
                      std::to_string(want[1]));
  return Status::ok();
}

static Status checkTypes(IdxData &data, const DataOptions &options) {
  if (data.imageSpec.dtype != DType::F32 && data.imageSpec.dtype != DType::U8)
    return badInput("idx images are given as f32 or u8, the model's input " +
                    quote(data.imageSpec.name) + " is " +
                    std::string(getName(data.imageSpec.dtype)));
  MEMOPT_ASSIGN_OR_RETURN(
      data.writer,
      ImageWriter::create(DType::U8, data.source, data.imageSpec.dtype, data.target, options));
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Batches
//===----------------------------------------------------------------------===//

Status IdxData::fill(int64_t position, const std::vector<char *> &targets) {
  char *imageTarget = targets[imageInput], *labelTarget = targets[labelInput];
  int64_t imageBytes = imageElements * getByteSize(imageSpec.dtype);
  int64_t epoch = position / batches, first = position % batches * batchSize;
  int64_t samples = getSampleCount(position), labelSize = getByteSize(labelSpec.dtype);
  for (int64_t i = 0; i < batchSize; ++i) {
    int64_t label = 0;
    if (i < samples) {
      int64_t sample = order.get(epoch, first + i);
      label = labels.data()[sample];
      writer->write(images.data() + sample * source.getElementCount(), imageTarget + i * imageBytes,
                    epoch, sample);
    } else {
      writer->clear(imageTarget + i * imageBytes);
      label = *labelSpec.validRange->ignore; // checked at open
    }
    if (!tryStoreInteger(labelSpec.dtype, labelTarget + i * labelSize, label))
      return badInput("label " + std::to_string(label) + " of sample " + std::to_string(i) +
                      " does not fit input " + quote(labelSpec.name) + " of type " +
                      std::string(getName(labelSpec.dtype)));
  }
  return Status::ok();
}

StatusOr<std::unique_ptr<DataSource>> memopt::openIdxData(const std::string &imagePath,
                                                          const std::string &labelPath,
                                                          const std::vector<InputSpec> &inputs,
                                                          const DataOptions &options,
                                                          std::vector<std::string> &notices) {
  MEMOPT_ASSIGN_OR_RETURN(IdxFile images, readIdx(imagePath));
  MEMOPT_ASSIGN_OR_RETURN(IdxFile labels, readIdx(labelPath));
  if (labels.shape.size() != 1)
    return badInput(quote(labelPath) + " holds " + toString(DType::U8, labels.shape) +
                    ", labels have one dimension");
  if (images.shape[0] != labels.shape[0])
    return badInput(quote(imagePath) + " has " + std::to_string(images.shape[0]) + " images, " +
                    quote(labelPath) + " has " + std::to_string(labels.shape[0]) + " labels");
  auto data = std::make_unique<IdxData>(std::move(images), std::move(labels), options, 1, 1);
  MEMOPT_RETURN_IF_ERROR(findInputs(inputs, *data));
  MEMOPT_RETURN_IF_ERROR(fitImages(*data, notices));
  MEMOPT_RETURN_IF_ERROR(checkTypes(*data, options));
  int64_t samples = data->labels.shape[0], size = getElementCount(data->labelSpec.shape);
  data->batchSize = size;
  const std::optional<ValidRange> &range = data->labelSpec.validRange;
  bool isLastKept = options.isLastKept && range && range->ignore;
  MEMOPT_ASSIGN_OR_RETURN(data->batches, countBatches(samples, size, isLastKept, notices));
  return std::unique_ptr<DataSource>(std::move(data));
}
