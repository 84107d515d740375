//===- SampleData.cpp - samples from safetensors --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A file has a tensor for each input, by its name, whose first dimension counts samples; the others
// are those of the input without its batch dimension. An input without one gets the same tensor in
// every batch. Files are mapped: what is not read is not loaded.
//
//===----------------------------------------------------------------------===//

#include "ImageWriter.h"
#include "memopt-runtime/data/DataSources.h"
#include <algorithm>
#include <cstring>

using namespace memopt;

namespace {
/// How one input is filled.
struct Field {
  InputSpec spec;
  Shape sample;                      ///< the input's shape without its batch dimension
  int64_t blocks = 1, elements = 1;  ///< of a sample: pieces in front of the batch dimension, and
                                     ///< elements of each
  std::optional<ImageWriter> writer; ///< of images that are scaled or changed
  bool isScaled = false;
};

/// Samples of one file.
struct Shard {
  SafetensorsFile file;
  std::vector<const SafetensorsEntry *> entries; ///< by input
  int64_t first;                                 ///< number of its first sample
};

class SampleData : public DataSource {
public:
  SampleData(std::vector<Field> fields, std::vector<Shard> shards, int64_t samples,
             int64_t batchSize, int64_t batches, const DataOptions &options)
      : fields(std::move(fields)), shards(std::move(shards)), samples(samples),
        batchSize(batchSize), batches(batches), order(samples, options.isShuffled, options.seed) {}

  DataUses getUses() const override {
    bool isScaled = std::any_of(fields.begin(), fields.end(),
                                [](const Field &field) { return field.isScaled; });
    return {isScaled, true};
  }
  int64_t getBatchesPerEpoch() const override { return batches; }
  int64_t getBatchSize() const override { return batchSize; }
  int64_t getSampleCount(int64_t position) const override {
    return std::min(batchSize, samples - position % batches * batchSize);
  }

  Status fill(int64_t position, const std::vector<char *> &targets) override {
    int64_t epoch = position / batches, first = position % batches * batchSize;
    int64_t present = getSampleCount(position);
    for (int64_t slot = 0; slot < batchSize; ++slot) {
      int64_t sample = slot < present ? order.get(epoch, first + slot) : -1;
      const Shard &shard = sample < 0 ? shards[0] : findShard(sample);
      for (size_t i = 0; i < fields.size(); ++i) {
        Status status = sample < 0
                            ? fillMissing(fields[i], slot, targets[i])
                            : fillSample(fields[i], shard, *shard.entries[i], sample - shard.first,
                                         slot, epoch, sample, targets[i]);
        if (!status.isOk())
          return status.withContext(quote(shard.file.getPath()) + ": " +
                                    quote(fields[i].spec.name) + " of sample " +
                                    std::to_string(sample));
      }
    }
    return Status::ok();
  }

private:
  const Shard &findShard(int64_t sample) const {
    auto behind =
        std::upper_bound(shards.begin(), shards.end(), sample,
                         [](int64_t number, const Shard &shard) { return number < shard.first; });
    return *std::prev(behind);
  }

  /// The place of a block of a sample in the batch.
  char *getPlace(const Field &field, int64_t slot, int64_t block, char *target) const {
    int64_t row = field.spec.batchDim ? block * batchSize + slot : block;
    return target + row * field.elements * getByteSize(field.spec.dtype);
  }

  Status fillSample(const Field &field, const Shard &shard, const SafetensorsEntry &entry,
                    int64_t row, int64_t slot, int64_t epoch, int64_t sample, char *target) const {
    if (!field.spec.batchDim)
      row = 0; // the same for all
    const unsigned char *from =
        shard.file.getData(entry) + row * field.blocks * field.elements * getByteSize(entry.dtype);
    if (field.writer) {
      field.writer->write(from, getPlace(field, slot, 0, target), epoch, sample);
      return Status::ok();
    }
    for (int64_t block = 0; block < field.blocks; ++block)
      MEMOPT_RETURN_IF_ERROR(
          convertElements(entry.dtype, from + block * field.elements * getByteSize(entry.dtype),
                          field.spec.dtype, getPlace(field, slot, block, target), field.elements));
    return Status::ok();
  }

  /// A sample that is not there: zeros, and labels that are ignored.
  Status fillMissing(const Field &field, int64_t slot, char *target) const {
    if (!field.spec.batchDim)
      return Status::ok();
    int64_t size = getByteSize(field.spec.dtype);
    int64_t label = field.spec.validRange ? field.spec.validRange->ignore.value_or(0) : 0;
    for (int64_t block = 0; block < field.blocks; ++block) {
      char *place = getPlace(field, slot, block, target);
      std::memset(place, 0, size_t(field.elements * size));
      for (int64_t i = 0; label && i < field.elements; ++i)
        if (!tryStoreInteger(field.spec.dtype, place + i * size, label))
          return badInput("its type does not hold " + std::to_string(label));
    }
    return Status::ok();
  }

  std::vector<Field> fields;
  std::vector<Shard> shards;
  int64_t samples, batchSize, batches;
  SampleOrder order;
};
} // namespace

//===----------------------------------------------------------------------===//
// Inputs
//===----------------------------------------------------------------------===//

static Field describeInput(const InputSpec &input) {
  Field field{input, input.shape, 1, 1, std::nullopt, false};
  if (input.batchDim) {
    auto batch = field.sample.begin() + *input.batchDim;
    field.blocks = getElementCount(Shape(field.sample.begin(), batch));
    field.sample.erase(batch);
  }
  field.elements = getElementCount(field.sample) / std::max<int64_t>(field.blocks, 1);
  return field;
}

/// Few channels, first or last; a matrix is an image of one channel.
static std::optional<ImageLayout> getImageLayout(const Field &field) {
  constexpr int64_t mostChannels = 4;
  const Shape &shape = field.sample;
  if (!field.spec.batchDim || field.blocks != 1)
    return std::nullopt;
  if (shape.size() == 2)
    return ImageLayout{1, shape[0], shape[1], true};
  if (shape.size() == 3 && shape[0] <= mostChannels)
    return ImageLayout{shape[0], shape[1], shape[2], true};
  if (shape.size() == 3 && shape[2] <= mostChannels)
    return ImageLayout{shape[2], shape[0], shape[1], false};
  return std::nullopt;
}

/// Bytes that become floating point are scaled, as images are; chance changes images alone.
static Status prepareWriter(Field &field, DType from, const DataOptions &options) {
  std::optional<ImageLayout> layout = getImageLayout(field);
  bool isScaled = from == DType::U8 && field.spec.dtype == DType::F32 && field.spec.batchDim;
  bool isChanged = layout && layout->channels != 1 && options.isAugmented();
  isChanged |= layout && isScaled && options.isAugmented();
  if (!isScaled && !(isChanged && from == field.spec.dtype))
    return Status::ok();
  field.isScaled = isScaled;
  DataOptions own = options;
  if (!layout) {
    layout = ImageLayout{1, 1, field.elements, true};
    own.isMirrored = false;
    own.cropPadding = 0;
  }
  MEMOPT_ASSIGN_OR_RETURN(field.writer,
                          ImageWriter::create(from, *layout, field.spec.dtype, *layout, own));
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static Status checkEntry(const SafetensorsEntry &entry, const Field &field, int64_t samples) {
  Shape expected = field.sample;
  if (field.spec.batchDim)
    expected.insert(expected.begin(), samples);
  bool isScaled = entry.dtype == DType::U8 && field.spec.dtype == DType::F32;
  if (entry.shape == expected && (isScaled || mayConvert(entry.dtype, field.spec.dtype)))
    return Status::ok();
  return badInput(quote(field.spec.name) + " is " + toString(entry.dtype, entry.shape) + "; for " +
                  std::to_string(samples) + " samples of the model's input " +
                  toString(field.spec.dtype, field.spec.shape) + " it must be " +
                  toString(field.spec.dtype, expected));
}

/// Finds and checks a file's tensors; `first` is the number of its first sample, and moves on.
static StatusOr<Shard> indexFile(SafetensorsFile file, const std::vector<Field> &fields,
                                 int64_t &first) {
  std::vector<const SafetensorsEntry *> entries;
  std::optional<int64_t> samples;
  for (const Field &field : fields) {
    const SafetensorsEntry *entry = file.find(field.spec.name);
    if (!entry)
      return badInput("there is neither a batch ('step0." + field.spec.name + "') nor a tensor " +
                      quote(field.spec.name) + " of samples; the model's input is " +
                      toString(field.spec.dtype, field.spec.shape));
    entries.push_back(entry);
    if (field.spec.batchDim && !samples && !entry->shape.empty())
      samples = entry->shape[0];
  }
  if (!samples)
    return badInput("no input of the model has a dimension of samples to cut batches along");
  for (size_t i = 0; i < fields.size(); ++i)
    MEMOPT_RETURN_IF_ERROR(checkEntry(*entries[i], fields[i], *samples));
  Shard shard{std::move(file), std::move(entries), first};
  first += *samples;
  return shard;
}

/// Gives inputs that are scaled or changed their writers, which one type in all files suits.
static Status prepareWriters(std::vector<Field> &fields, const std::vector<Shard> &shards,
                             const DataOptions &options) {
  bool hasImages = false;
  for (size_t i = 0; i < fields.size(); ++i) {
    DType type = shards[0].entries[i]->dtype;
    MEMOPT_RETURN_IF_ERROR(prepareWriter(fields[i], type, options));
    if (!fields[i].writer)
      continue;
    hasImages |= getImageLayout(fields[i]).has_value();
    for (const Shard &shard : shards)
      if (shard.entries[i]->dtype != type)
        return badInput(quote(shard.file.getPath()) + ": " + quote(fields[i].spec.name) +
                        " is of another type than in the first file");
  }
  if (options.isAugmented() && !hasImages)
    return badInput("--data-augment changes images, [C, H, W] or [H, W, C] with up to 4 channels, "
                    "and no input of the model is one");
  return Status::ok();
}

StatusOr<std::unique_ptr<DataSource>> memopt::openSamples(std::vector<SafetensorsFile> files,
                                                          const std::vector<InputSpec> &inputs,
                                                          const DataOptions &options,
                                                          std::vector<std::string> &notices) {
  std::vector<Field> fields;
  int64_t size = 0, samples = 0;
  for (const InputSpec &input : inputs) {
    fields.push_back(describeInput(input));
    if (input.batchDim)
      size = input.shape[size_t(*input.batchDim)];
  }
  std::vector<Shard> shards;
  for (SafetensorsFile &file : files) {
    std::string path = file.getPath();
    StatusOr<Shard> shard = indexFile(std::move(file), fields, samples);
    if (!shard.isOk())
      return shard.takeStatus().withContext(quote(path));
    shards.push_back(*std::move(shard));
  }
  MEMOPT_RETURN_IF_ERROR(prepareWriters(fields, shards, options));
  MEMOPT_ASSIGN_OR_RETURN(
      int64_t batches,
      countBatches(samples, size, options.isLastKept && hasIgnoredLabel(inputs), notices));
  return std::unique_ptr<DataSource>(std::make_unique<SampleData>(
      std::move(fields), std::move(shards), samples, size, batches, options));
}
