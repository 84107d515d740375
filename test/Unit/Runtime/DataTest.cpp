//===- DataTest.cpp - batches from files ----------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Data.h"
#include "TestSupport.h"
#include <cstring>
#include <set>

using namespace memopt;
using namespace memopt::testing;

static InputSpec makeInput(const std::string &name, DType dtype, Shape shape) {
  InputSpec input;
  input.name = name;
  input.dtype = dtype;
  input.shape = std::move(shape);
  input.space = 0;
  input.offset = 0;
  input.bytes = *getTensorBytes(dtype, input.shape);
  input.batchDim = 0;
  return input;
}

namespace {
/// A source and room for its batches.
struct OpenedData {
  OpenedData(const std::string &source, const std::vector<InputSpec> &inputs,
             const DataOptions &options = {})
      : inputs(inputs) {
    auto opened = DataSource::open(source, inputs, options, notices);
    message = opened.getMessage();
    if (opened.isOk())
      data = *std::move(opened);
    for (const InputSpec &input : inputs) {
      buffers.emplace_back(size_t(input.bytes), '\x55');
      targets.push_back(buffers.back().data());
    }
  }
  template <typename T> std::vector<T> read(int64_t position, size_t input) {
    Status status = data->fill(position, targets);
    EXPECT_TRUE(status.isOk()) << status.getMessage();
    std::vector<T> values(buffers[input].size() / sizeof(T));
    std::memcpy(values.data(), buffers[input].data(), buffers[input].size());
    return values;
  }

  std::vector<InputSpec> inputs;
  std::vector<std::string> notices;
  std::string message;
  std::unique_ptr<DataSource> data;
  std::vector<std::vector<char>> buffers;
  std::vector<char *> targets;
};
} // namespace

static std::vector<InputSpec> getTinyInputs() {
  return {makeInput("x", DType::F32, {4, 3}), makeInput("label", DType::I64, {4})};
}

//===----------------------------------------------------------------------===//
// Safetensors
//===----------------------------------------------------------------------===//

TEST(SafetensorsDataTest, BatchesComeInOrderAndBeginAgain) {
  TemporaryFolder folder;
  OpenedData opened(writeBatches(folder, 3), getTinyInputs());
  ASSERT_TRUE(opened.data) << opened.message;
  EXPECT_EQ(opened.data->getBatchesPerEpoch(), 3);
  EXPECT_EQ(opened.data->getBatchSize(), 4);
  EXPECT_EQ(opened.read<int64_t>(1, 1), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(opened.read<int64_t>(3, 1), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(SafetensorsDataTest, BatchesThatDoNotFitAreNamed) {
  TemporaryFolder folder;
  std::string path = folder / "data.safetensors";
  float x[12] = {};
  int64_t label[4] = {};
  double wide[12] = {};
  auto messageFor = [&](const std::vector<TensorToWrite> &tensors) {
    EXPECT_TRUE(writeSafetensors(path, tensors).isOk());
    return OpenedData(path, getTinyInputs()).message;
  };
  expectMessage(messageFor({{"step0.x", DType::F32, {4, 3}, x}}),
                {"data.safetensors", "lacks 'step0.label'", "i64[4]"});
  expectMessage(messageFor({{"x", DType::F32, {4, 3}, x}}), {"no batch", "'step0.x'"});
  expectMessage(
      messageFor({{"step0.x", DType::F32, {3, 4}, x}, {"step0.label", DType::I64, {4}, label}}),
      {"'step0.x' is f32[3, 4], the model's input is f32[4, 3]"});
  expectMessage(
      messageFor({{"step0.x", DType::F32, {4, 3}, x}, {"step0.label", DType::F32, {4}, x}}),
      {"'step0.label' is f32[4], the model's input is i64[4]"});
  expectMessage(messageFor({{"step1.x", DType::F32, {4, 3}, x}}), {"lacks 'step0.x'"});
  expectMessage(
      messageFor({{"step0.x", DType::F64, {4, 3}, wide}, {"step0.label", DType::I64, {4}, label}}),
      {"'step0.x' is f64[4, 3], the model's input is f32[4, 3]"});
}

TEST(SafetensorsDataTest, ConversionsLoseNothing) {
  TemporaryFolder folder;
  std::string path = folder / "data.safetensors";
  uint16_t halves[12] = {0x3c00}; // 1
  int64_t label[4] = {1, 2, 3, 400};
  ASSERT_TRUE(writeSafetensors(path, {{"step0.x", DType::F16, {4, 3}, halves},
                                      {"step0.label", DType::I64, {4}, label}})
                  .isOk());
  std::vector<InputSpec> inputs = getTinyInputs();
  inputs[1] = makeInput("label", DType::I32, {4});
  OpenedData opened(path, inputs);
  ASSERT_TRUE(opened.data) << opened.message;
  EXPECT_EQ(opened.read<float>(0, 0)[0], 1);
  EXPECT_EQ(opened.read<int32_t>(0, 1)[3], 400);
  inputs[1] = makeInput("label", DType::U8, {4});
  OpenedData narrow(path, inputs);
  expectMessage(narrow.data->fill(0, narrow.targets).getMessage(),
                {"'step0.label': element 3 is 400", "u8 does not hold exactly"});
}

//===----------------------------------------------------------------------===//
// IDX
//===----------------------------------------------------------------------===//

/// Ten 2 x 2 images; all pixels of image i are 10 i, its label is i.
static std::string writeImages(const TemporaryFolder &folder) {
  std::string pixels, labels;
  for (int i = 0; i < 10; ++i) {
    pixels += std::string(4, char(10 * i));
    labels += char(i);
  }
  writeGzip(folder / "images.gz", makeIdx({10, 2, 2}, pixels));
  writeGzip(folder / "labels.gz", makeIdx({10}, labels));
  return "idx:" + (folder / "images.gz") + "," + (folder / "labels.gz");
}

static std::vector<InputSpec> getImageInputs(Shape images, DType dtype = DType::F32) {
  int64_t batch = images[0];
  return {makeInput("image", dtype, std::move(images)), makeInput("label", DType::I64, {batch})};
}

TEST(IdxDataTest, ImagesAreScaledAndLabelsGoAlong) {
  TemporaryFolder folder;
  DataOptions options;
  options.isShuffled = false;
  OpenedData opened(writeImages(folder), getImageInputs({4, 1, 2, 2}), options);
  ASSERT_TRUE(opened.data) << opened.message;
  EXPECT_EQ(opened.data->getBatchesPerEpoch(), 2);
  ASSERT_EQ(opened.notices.size(), 1u); // two samples are left over
  expectMessage(opened.notices[0], {"the last 2 of 10 samples"});
  std::vector<float> images = opened.read<float>(1, 0);
  EXPECT_FLOAT_EQ(images[0], 40 / 255.0f);
  EXPECT_FLOAT_EQ(images[15], 70 / 255.0f);
  EXPECT_EQ(opened.read<int64_t>(1, 1), (std::vector<int64_t>{4, 5, 6, 7}));
  options.scale = 0.1;
  options.mean = 1;
  options.deviation = 2;
  OpenedData normalized(writeImages(folder), getImageInputs({5, 2, 2}), options);
  EXPECT_FLOAT_EQ(normalized.read<float>(1, 0)[0], (50 * 0.1f - 1) / 2);
}

TEST(IdxDataTest, SmallImagesAreCentredInBlack) {
  TemporaryFolder folder;
  DataOptions options;
  options.isShuffled = false;
  OpenedData opened(writeImages(folder), getImageInputs({2, 1, 4, 4}, DType::U8), options);
  ASSERT_TRUE(opened.data) << opened.message;
  expectMessage(opened.notices[0], {"2 x 2 are centred in zeros to the model's 4 x 4"});
  auto image = opened.read<unsigned char>(0, 0);
  for (int pixel = 0; pixel < 16; ++pixel)
    EXPECT_EQ(image[16 + pixel], pixel == 5 || pixel == 6 || pixel == 9 || pixel == 10 ? 10 : 0);
}

TEST(IdxDataTest, EachEpochHasItsOwnOrder) {
  TemporaryFolder folder;
  DataOptions options;
  options.seed = 5;
  OpenedData opened(writeImages(folder), getImageInputs({5, 2, 2}), options);
  ASSERT_TRUE(opened.data) << opened.message;
  auto readEpoch = [&](OpenedData &data, int64_t epoch) {
    std::vector<int64_t> labels = data.read<int64_t>(2 * epoch, 1);
    std::vector<int64_t> rest = data.read<int64_t>(2 * epoch + 1, 1);
    labels.insert(labels.end(), rest.begin(), rest.end());
    return labels;
  };
  std::vector<int64_t> first = readEpoch(opened, 0), second = readEpoch(opened, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 10u);
  // The order follows from seed and epoch alone: it can be had without the epochs before.
  OpenedData later(writeImages(folder), getImageInputs({5, 2, 2}), options);
  EXPECT_EQ(readEpoch(later, 1), second);
  options.seed = 6;
  OpenedData other(writeImages(folder), getImageInputs({5, 2, 2}), options);
  EXPECT_NE(readEpoch(other, 1), second);
}

TEST(IdxDataTest, AKeptLastBatchIsFilledWithIgnoredSamples) {
  TemporaryFolder folder;
  DataOptions options;
  options.isShuffled = false;
  options.isLastKept = true;
  std::vector<InputSpec> inputs = getImageInputs({4, 2, 2});
  inputs[1].validRange = ValidRange{0, 9, -100, ""};
  OpenedData opened(writeImages(folder), inputs, options);
  ASSERT_TRUE(opened.data) << opened.message;
  EXPECT_EQ(opened.data->getBatchesPerEpoch(), 3);
  EXPECT_EQ(opened.data->getSampleCount(2), 2);
  EXPECT_EQ(opened.read<int64_t>(2, 1), (std::vector<int64_t>{8, 9, -100, -100}));
  EXPECT_EQ(opened.read<float>(2, 0)[8], 0);
}

TEST(IdxDataTest, FilesAndModelsThatDoNotFitAreNamed) {
  TemporaryFolder folder;
  std::string good = writeImages(folder), images = folder / "i", labels = folder / "l";
  std::string source = "idx:" + images + "," + labels;
  auto messageFor = [&](const std::string &imageFile, const std::string &labelFile) {
    writeFile(images, imageFile);
    writeFile(labels, labelFile);
    return OpenedData(source, getImageInputs({1, 2, 2})).message;
  };
  std::string image = makeIdx({1, 2, 2}, "abcd"), label = makeIdx({1}, "0");
  EXPECT_EQ(messageFor(image, label), "");
  expectMessage(messageFor("junk", label), {"not an IDX file"});
  expectMessage(messageFor(std::string("\0\0\x0d\x01", 4), label), {"element type 13"});
  expectMessage(messageFor(std::string("\0\0\x08\x03\0", 5), label), {"ends too early"});
  expectMessage(messageFor(makeIdx({2, 2, 2}, "abcd"), label), {"u8[2, 2, 2]", "found 4"});
  expectMessage(messageFor(makeIdx({-1, -1, -1, -1}, "abcd"), label), {"does not fit 64 bits"});
  expectMessage(messageFor(image, makeIdx({2}, "01")), {"1 images", "2 labels"});
  expectMessage(messageFor(image, image), {"labels have one dimension"});
  expectMessage(OpenedData("idx:" + images, getImageInputs({1, 2, 2})).message,
                {"lacks the labels"});
  expectMessage(OpenedData(good, getImageInputs({1, 3, 2, 2})).message,
                {"images are u8[2, 2]", "takes f32[3, 2, 2]"});
  expectMessage(OpenedData(good, getImageInputs({1, 1, 1, 1})).message, {"takes f32[1, 1, 1]"});
  expectMessage(OpenedData(good, getImageInputs({11, 2, 2})).message,
                {"has 10 samples, not one batch of 11"});
  expectMessage(OpenedData(good, getImageInputs({1, 2, 2}, DType::I32)).message,
                {"given as f32 or u8", "is i32"});
  expectMessage(OpenedData(good, {makeInput("x", DType::F32, {4})}).message, {"has 1 inputs"});
}

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

static std::vector<InputSpec> getTextInputs(Shape shape) {
  return {makeInput("tokens", DType::I64, shape), makeInput("targets", DType::I64, shape)};
}

TEST(ByteDataTest, TargetsAreTheNextBytes) {
  TemporaryFolder folder;
  writeFile(folder / "text", "abcdefghijklm"); // 13 bytes: three windows of 4 tokens
  DataOptions options;
  options.isShuffled = false;
  OpenedData opened("bytes:" + (folder / "text"), getTextInputs({1, 4}), options);
  ASSERT_TRUE(opened.data) << opened.message;
  EXPECT_EQ(opened.data->getBatchesPerEpoch(), 3);
  EXPECT_EQ(opened.read<int64_t>(2, 0), (std::vector<int64_t>{'i', 'j', 'k', 'l'}));
  EXPECT_EQ(opened.read<int64_t>(2, 1), (std::vector<int64_t>{'j', 'k', 'l', 'm'}));
  EXPECT_EQ(opened.read<int64_t>(3, 0)[0], 'a');
}

TEST(ByteDataTest, ShuffledWindowsStayInTheTextAndFollowTheSeed) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += char(i);
  writeGzip(folder / "text.gz", text);
  std::string source = "bytes:" + (folder / "text.gz");
  DataOptions options;
  options.seed = 1;
  OpenedData opened(source, getTextInputs({3, 7}), options),
      again(source, getTextInputs({3, 7}), options);
  ASSERT_TRUE(opened.data) << opened.message;
  std::set<int64_t> starts;
  for (int64_t position = 0; position < 40; ++position) {
    std::vector<int64_t> tokens = opened.read<int64_t>(position, 0);
    std::vector<int64_t> targets = opened.read<int64_t>(position, 1);
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(targets[i], tokens[i] + 1);
      EXPECT_LT(targets[i], 100);
    }
    starts.insert(tokens[0] % 7);
    EXPECT_EQ(again.read<int64_t>(position, 0), tokens);
  }
  EXPECT_GT(starts.size(), 3u); // epochs begin at different bytes
}

TEST(ByteDataTest, TextsAndModelsThatDoNotFitAreNamed) {
  TemporaryFolder folder;
  writeFile(folder / "text", "short");
  std::string source = "bytes:" + (folder / "text");
  expectMessage(OpenedData(source, getTextInputs({1, 5})).message,
                {"has 5 bytes, that is 0 windows of 5 tokens"});
  expectMessage(OpenedData(source, {makeInput("x", DType::F32, {1, 2})}).message,
                {"integer tokens", "f32[1, 2]"});
  expectMessage(OpenedData("bytes:" + (folder / "absent"), getTextInputs({1, 2})).message,
                {"absent", "No such file"});
}
