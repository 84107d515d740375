//===- DataFuzzer.cpp - any bytes may be a data set ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first byte says what the others are: 0 images in IDX, 1 labels in IDX, 2 text, 3 safetensors;
// 4 and 5 are 0 and 1 that are compressed here, as no mutation would keep a stream whole; 6 lines
// and 7 texts that go into buckets; the second the position of the batch. Batches are written between two bytes that must stay.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"
#include "memopt-runtime/data/Data.h"
#include <array>
#include <zlib.h>

using namespace memopt;
using namespace memopt::testing;

static InputSpec makeInput(const char *name, DType dtype, const Shape &shape) {
  InputSpec input{};
  input.name = name;
  input.dtype = dtype;
  input.shape = shape;
  input.batchDim = 0;
  input.bytes = *getTensorBytes(dtype, shape);
  input.validRange =
      isFloat(dtype) ? std::nullopt : std::optional<ValidRange>(ValidRange{0, 9, -100, ""});
  return input;
}

/// Places for batches, with a guard on either side.
class Places {
public:
  explicit Places(const std::vector<InputSpec> &inputs) {
    for (const InputSpec &input : inputs)
      places.push_back(std::string(size_t(input.bytes) + 128, 'Z'));
  }

  void fill(DataSource &data, int64_t position) {
    std::vector<char *> targets;
    for (std::string &place : places)
      targets.push_back(place.data() + 64);
    (void)data.fill(position, targets).isOk();
    for (const std::string &place : places)
      require(place[63] == 'Z' && place[place.size() - 64] == 'Z');
  }

private:
  std::vector<std::string> places;
};

/// Positions of batches, far ones among them.
static std::array<int64_t, 3> getPositions(const DataSource &data, int64_t position) {
  require(data.getBatchesPerEpoch() >= 1);
  return {position, data.getBatchesPerEpoch() - 1, (int64_t(1) << 53) + position};
}

/// Fills some batches.
static void readBatches(const std::string &source, const std::vector<InputSpec> &inputs,
                        int64_t position) {
  std::vector<std::string> notices;
  for (bool isLastKept : {false, true}) {
    DataOptions options;
    options.isLastKept = isLastKept;
    auto data = DataSource::open({source}, inputs, options, notices);
    if (!data.isOk()) {
      require(!data.getMessage().empty());
      return;
    }
    Places places(inputs);
    for (int64_t at : getPositions(**data, position))
      places.fill(**data, at);
  }
}

/// Texts, in batches of three or six tokens: with targets, and with a mask and a label of each.
static void readTexts(const std::string &source, int64_t position) {
  std::vector<std::vector<InputSpec>> programs[2];
  for (int64_t tokens : {3, 6}) {
    programs[0].push_back({makeInput("tokens", DType::I32, {2, tokens}),
                           makeInput("targets", DType::I64, {2, tokens})});
    programs[1].push_back({makeInput("mask", DType::I64, {2, tokens}),
                           makeInput("tokens", DType::I32, {2, tokens}),
                           makeInput("label", DType::I64, {2})});
  }
  std::vector<std::string> notices;
  for (const std::vector<std::vector<InputSpec>> &own : programs) {
    BucketOptions options{{3, 6}, position % 2 == 0, position, 1 + position % 3};
    auto data = DataSource::openBuckets({source}, own, options, notices);
    if (!data.isOk()) {
      require(!data.getMessage().empty());
      continue;
    }
    for (int64_t at : getPositions(**data, position)) {
      StatusOr<size_t> program = (*data)->findProgram(at);
      require(program.isOk() && *program < own.size());
      (*data)->chooseProgram(*program);
      require((*data)->getSampleCount(at) <= (*data)->getBatchSize());
      Places(own[*program]).fill(**data, at);
    }
  }
}

static std::string makeIdx(const std::vector<int> &shape, char value) {
  std::string text = {0, 0, 8, char(shape.size())};
  size_t count = 1;
  for (int size : shape) {
    text += {0, 0, 0, char(size)};
    count *= size_t(size);
  }
  return text + std::string(count, value);
}

static std::string compress(std::string_view text) {
  z_stream stream{};
  constexpr int gzip = 16;
  require(deflateInit2(&stream, 1, Z_DEFLATED, 15 + gzip, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, uLong(text.size())), 0);
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(text.data()));
  stream.avail_in = uInt(text.size());
  stream.next_out = reinterpret_cast<Bytef *>(packed.data());
  stream.avail_out = uInt(packed.size());
  require(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2)
    return 0;
  bool isPacked = data[0] == 4 || data[0] == 5;
  int kind = isPacked ? data[0] - 4 : data[0];
  MemoryFile file(isPacked ? compress(toText(data + 2, size - 2))
                           : std::string(toText(data + 2, size - 2)));
  int64_t position = data[1];
  if (kind == 0 || kind == 1) {
    static const MemoryFile images(makeIdx({5, 3, 3}, 7)), labels(makeIdx({5}, 1));
    bool isImages = kind == 0;
    readBatches("idx:" + (isImages ? file : images).getPath() + "," +
                    (isImages ? labels : file).getPath(),
                {makeInput("image", DType::F32, {2, 1, 4, 4}), makeInput("label", DType::I64, {2})},
                position);
  } else if (kind == 2) {
    readBatches("bytes:" + file.getPath(),
                {makeInput("tokens", DType::I32, {2, 3}), makeInput("targets", DType::I64, {2, 3})},
                position);
  } else if (kind == 6 || kind == 7) {
    readTexts((kind == 6 ? "lines:" : "texts:") + file.getPath(), position);
  } else {
    readBatches(file.getPath(),
                {makeInput("x", DType::F32, {4, 3}), makeInput("label", DType::I64, {4})},
                position);
  }
  return 0;
}
