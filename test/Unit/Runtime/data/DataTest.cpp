//===- DataTest.cpp - batches from files ----------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/data/Data.h"
#include "TestSupport.h"
#include "memopt-runtime/data/DataSources.h"
#include <algorithm>
#include <cstring>
#include <numeric>
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
      : OpenedData(std::vector<std::string>{source}, inputs, options) {}
  OpenedData(const std::vector<std::string> &sources, const std::vector<InputSpec> &inputs,
             const DataOptions &options = {})
      : inputs(inputs) {
    auto opened = DataSource::open(sources, inputs, options, notices);
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

static std::vector<InputSpec> getImageInputs(Shape images, DType dtype = DType::F32) {
  int64_t batch = images[0];
  return {makeInput("image", dtype, std::move(images)), makeInput("label", DType::I64, {batch})};
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
  expectMessage(messageFor({{"x", DType::F32, {4, 3}, x}}),
                {"there is neither a batch ('step0.label') nor a tensor 'label' of samples"});
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
// Samples
//===----------------------------------------------------------------------===//

/// Sample i of a file that begins with sample `first` is (3 i, 3 i + 1, 3 i + 2), its label i.
static std::string writeSamples(const TemporaryFolder &folder, const std::string &name, int first,
                                int count) {
  std::vector<float> x;
  std::vector<int32_t> labels;
  for (int i = first; i < first + count; ++i) {
    labels.push_back(i);
    for (int j = 0; j < 3; ++j)
      x.push_back(float(3 * i + j));
  }
  std::string path = folder / name;
  EXPECT_TRUE(writeSafetensors(path, {{"x", DType::F32, {count, 3}, x.data()},
                                      {"label", DType::I32, {count}, labels.data()}})
                  .isOk());
  return path;
}

TEST(SampleDataTest, BatchesAreCutAndShuffledBySampleOverAllFiles) {
  TemporaryFolder folder;
  std::vector<std::string> files = {writeSamples(folder, "a.safetensors", 0, 7),
                                    writeSamples(folder, "b.safetensors", 7, 6)};
  DataOptions options;
  options.isShuffled = false;
  OpenedData plain(files, getTinyInputs(), options);
  ASSERT_TRUE(plain.data) << plain.message;
  EXPECT_EQ(plain.data->getBatchesPerEpoch(), 3);
  expectMessage(plain.notices.at(0), {"the last 1 of 13 samples"});
  EXPECT_EQ(plain.read<int64_t>(1, 1),
            (std::vector<int64_t>{4, 5, 6, 7})); // over the files' border
  EXPECT_EQ(plain.read<float>(1, 0)[9], 21);
  options.isShuffled = true;
  OpenedData shuffled(files, getTinyInputs(), options);
  std::set<int64_t> seen;
  std::vector<int64_t> epochs[2];
  for (int64_t position = 0; position < 6; ++position) {
    std::vector<int64_t> labels = shuffled.read<int64_t>(position, 1);
    std::vector<float> x = shuffled.read<float>(position, 0);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(x[3 * i], float(3 * labels[i]));
    epochs[position / 3].insert(epochs[position / 3].end(), labels.begin(), labels.end());
  }
  EXPECT_EQ(std::set<int64_t>(epochs[0].begin(), epochs[0].end()).size(), 12u);
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST(SampleDataTest, ABatchDimensionMayStandAnywhereAndALastBatchBeKept) {
  TemporaryFolder folder;
  std::vector<InputSpec> inputs = {makeInput("x", DType::F32, {3, 4}),
                                   makeInput("label", DType::I64, {4})};
  inputs[0].batchDim = 1;
  inputs[1].validRange = ValidRange{0, 100, -100, ""};
  DataOptions options;
  options.isShuffled = false;
  options.isLastKept = true;
  OpenedData opened({writeSamples(folder, "a.safetensors", 0, 6)}, inputs, options);
  ASSERT_TRUE(opened.data) << opened.message;
  EXPECT_EQ(opened.data->getBatchesPerEpoch(), 2);
  EXPECT_EQ(opened.data->getSampleCount(1), 2);
  EXPECT_EQ(opened.read<int64_t>(1, 1), (std::vector<int64_t>{4, 5, -100, -100}));
  EXPECT_EQ(opened.read<float>(1, 0),
            (std::vector<float>{12, 15, 0, 0, 13, 16, 0, 0, 14, 17, 0, 0}));
}

TEST(SampleDataTest, SamplesThatDoNotFitAreNamed) {
  TemporaryFolder folder;
  auto messageFor = [&](const std::vector<TensorToWrite> &tensors) {
    std::string path = folder / "x.safetensors";
    EXPECT_TRUE(writeSafetensors(path, tensors).isOk());
    return OpenedData({path}, getTinyInputs()).message;
  };
  std::vector<char> zeros(1000);
  expectMessage(
      messageFor({{"x", DType::F32, {8, 3}, zeros.data()}}),
      {"x.safetensors", "neither a batch ('step0.label') nor a tensor 'label' of samples"});
  expectMessage(messageFor({{"x", DType::F32, {8, 3}, zeros.data()},
                            {"label", DType::I64, {7}, zeros.data()}}),
                {"'label' is i64[7]; for 8 samples", "it must be i64[8]"});
  expectMessage(messageFor({{"x", DType::F64, {8, 3}, zeros.data()},
                            {"label", DType::I64, {8}, zeros.data()}}),
                {"'x' is f64[8, 3]"});
  expectMessage(messageFor({{"x", DType::F32, {3, 3}, zeros.data()},
                            {"label", DType::I64, {3}, zeros.data()}}),
                {"has 3 samples, not one batch of 4"});
}

TEST(SampleDataTest, BytesAreScaledByChannelAndImagesChangeByCounter) {
  TemporaryFolder folder;
  std::vector<unsigned char> pixels; // [6, 3, 2, 2]
  for (int i = 0; i < 72; ++i)
    pixels.push_back(static_cast<unsigned char>(10 + i));
  std::vector<int64_t> labels(6);
  std::string path = folder / "images.safetensors";
  ASSERT_TRUE(writeSafetensors(path, {{"image", DType::U8, {6, 3, 2, 2}, pixels.data()},
                                      {"label", DType::I64, {6}, labels.data()}})
                  .isOk());
  std::vector<InputSpec> inputs = getImageInputs({6, 3, 2, 2});
  DataOptions options;
  options.isShuffled = false;
  options.scale = 1;
  options.means = {1, 2, 3};
  OpenedData plain({path}, inputs, options);
  ASSERT_TRUE(plain.data) << plain.message;
  std::vector<float> images = plain.read<float>(0, 0);
  EXPECT_EQ(images[0], 9);   // 10 - 1
  EXPECT_EQ(images[4], 12);  // 14 - 2
  EXPECT_EQ(images[71], 78); // 81 - 3
  options.isMirrored = true;
  OpenedData mirrored({path}, inputs, options), again({path}, inputs, options);
  std::vector<float> changed = mirrored.read<float>(0, 0);
  EXPECT_EQ(changed, again.read<float>(0, 0));
  int mirrors = 0;
  for (size_t i = 0; i < 72; i += 12) {
    bool isMirrored = changed[i] == images[i + 1];
    mirrors += isMirrored;
    for (size_t row = i; row < i + 12; row += 2) {
      EXPECT_EQ(changed[row], images[row + isMirrored]);
      EXPECT_EQ(changed[row + 1], images[row + !isMirrored]);
    }
  }
  EXPECT_GT(mirrors, 0);
  EXPECT_LT(mirrors, 6);
  options.isMirrored = false;
  options.cropPadding = 1;
  OpenedData moved({path}, inputs, options);
  changed = moved.read<float>(0, 0);
  EXPECT_NE(changed, images);
  EXPECT_NE(changed, moved.read<float>(1, 0));                     // the next epoch draws anew
  EXPECT_NE(std::count(changed.begin(), changed.end(), -1.0f), 0); // black of the first channel
  options.means = {1, 2};
  expectMessage(OpenedData({path}, inputs, options).message,
                {"--data-mean has 2 numbers, images have 3 channels"});
  expectMessage(
      OpenedData({writeSamples(folder, "a.safetensors", 0, 8)}, getTinyInputs(), options).message,
      {"--data-augment changes images"});
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
  options.means = {1};
  options.deviations = {2};
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

TEST(SampleOrderTest, EveryEpochHasEverySampleOnce) {
  for (int64_t count : {1, 2, 3, 5, 8, 10, 64, 65, 1000}) {
    SampleOrder order(count, /*isShuffled=*/true, 7);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < count; ++i)
        seen.insert(order.get(epoch, i));
      EXPECT_EQ(seen.size(), size_t(count));
      EXPECT_GE(*seen.begin(), 0);
      EXPECT_LT(*seen.rbegin(), count);
    }
  }
}

TEST(SampleOrderTest, NoPlaceIsPreferred) {
  constexpr int64_t count = 10, epochs = 4000;
  SampleOrder order(count, /*isShuffled=*/true, 1);
  std::vector<int64_t> places(count), followers(count);
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    ++places[size_t(order.get(epoch, 3))];
    ++followers[size_t((order.get(epoch, 5) - order.get(epoch, 4) + count) % count)];
  }
  EXPECT_EQ(followers[0], 0);
  for (int64_t sample = 0; sample < count; ++sample) {
    EXPECT_NEAR(double(places[size_t(sample)]), epochs / count, 100);
    if (sample)
      EXPECT_NEAR(double(followers[size_t(sample)]), epochs / (count - 1), 100);
  }
}

/// Of a set that no memory would hold the order of.
TEST(SampleOrderTest, ItTakesNoMemory) {
  constexpr int64_t count = int64_t(1) << 60;
  SampleOrder order(count, /*isShuffled=*/true, 1);
  EXPECT_NE(order.get(0, 0), order.get(0, count - 1));
  EXPECT_LT(order.get(5, count / 2), count);
  EXPECT_EQ(SampleOrder(count, /*isShuffled=*/false, 1).get(5, count / 2), count / 2);
}

TEST(PrefetchedDataTest, BatchesAreTheSameWhateverWasExpected) {
  TemporaryFolder folder;
  DataOptions options;
  std::string source = writeImages(folder);
  OpenedData plain(source, getImageInputs({5, 2, 2}), options);
  options.isPrefetched = true;
  OpenedData ahead(source, getImageInputs({5, 2, 2}), options);
  ASSERT_TRUE(ahead.data) << ahead.message;
  int64_t expectations[] = {1, 2, 2, 9, 4, 0};
  for (int64_t position = 0; position < 6; ++position) {
    EXPECT_EQ(ahead.read<float>(position, 0), plain.read<float>(position, 0));
    EXPECT_EQ(ahead.read<int64_t>(position, 1), plain.read<int64_t>(position, 1));
    ahead.data->expect(expectations[position]);
  }
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

TEST(TokenDataTest, WindowsBeginAStrideApart) {
  TemporaryFolder folder;
  std::vector<int32_t> tokens(40);
  std::iota(tokens.begin(), tokens.end(), 1000);
  std::string path = folder / "text.safetensors";
  ASSERT_TRUE(writeSafetensors(path, {{"tokens", DType::I32, {40}, tokens.data()}}).isOk());
  std::vector<InputSpec> inputs = {makeInput("ids", DType::I64, {2, 8}),
                                   makeInput("next", DType::I64, {2, 8})};
  DataOptions options;
  options.isShuffled = false;
  OpenedData apart("tokens:" + path, inputs, options);
  ASSERT_TRUE(apart.data) << apart.message;
  EXPECT_EQ(apart.data->getBatchesPerEpoch(), 2);
  EXPECT_EQ(apart.read<int64_t>(1, 0)[0], 1016);
  EXPECT_EQ(apart.read<int64_t>(1, 1)[0], 1017);
  options.stride = 3;
  OpenedData overlapping("tokens:" + path, inputs, options);
  EXPECT_EQ(overlapping.data->getBatchesPerEpoch(),
            5); // windows at 0, 3, ..., 30; one is left over
  EXPECT_EQ(overlapping.read<int64_t>(4, 0)[8], 1027);
  float number = 1;
  ASSERT_TRUE(writeSafetensors(path, {{"tokens", DType::F32, {1}, &number}}).isOk());
  expectMessage(OpenedData("tokens:" + path, inputs, options).message,
                {"'tokens' is f32[1], a text is one list of integers"});
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
