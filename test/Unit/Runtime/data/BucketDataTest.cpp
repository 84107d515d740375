//===- BucketDataTest.cpp - texts of several lengths ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "memopt-runtime/data/Data.h"
#include <cstring>
#include <map>
#include <set>

using namespace memopt;
using namespace memopt::testing;

using Inputs = std::vector<InputSpec>;
using Rows = std::vector<std::vector<int64_t>>;

static InputSpec makeInput(const std::string &name, Shape shape, bool isIgnored = false) {
  InputSpec input;
  input.name = name;
  input.dtype = DType::I64;
  input.shape = std::move(shape);
  input.space = 0;
  input.offset = 0;
  input.bytes = *getTensorBytes(input.dtype, input.shape);
  input.batchDim = 0;
  if (isIgnored)
    input.validRange = ValidRange{0, 255, -100, ""};
  return input;
}

/// A language model for batches of two texts.
static Inputs makeProgram(int64_t tokens, int64_t rows = 2) {
  return {makeInput("tokens", {rows, tokens}), makeInput("targets", {rows, tokens}, true)};
}

namespace {
class BucketDataTest : public ::testing::Test {
protected:
  std::string write(const std::string &name, const std::string &text) {
    std::string path = folder / name;
    writeFile(path, text);
    return path;
  }
  /// Integers, by name.
  std::string
  writeTexts(const std::map<std::string, std::pair<Shape, std::vector<int64_t>>> &tensors) {
    std::vector<TensorToWrite> written;
    for (const auto &[name, tensor] : tensors)
      written.push_back({name, DType::I64, tensor.first, tensor.second.data()});
    std::string path = folder / "texts.safetensors";
    EXPECT_TRUE(writeSafetensors(path, written).isOk());
    return "texts:" + path;
  }
  std::string open(const std::string &source, const BucketOptions &options) {
    auto opened = DataSource::openBuckets({source}, programs, options, notices);
    data = opened.isOk() ? *std::move(opened) : nullptr;
    return opened.getMessage();
  }
  /// An input of the batch at a position, by rows.
  Rows read(int64_t position, size_t input) {
    auto program = data->findProgram(position);
    EXPECT_TRUE(program.isOk());
    data->chooseProgram(*program);
    const Inputs &inputs = programs[*program];
    std::vector<std::vector<int64_t>> values;
    std::vector<char *> targets;
    for (const InputSpec &spec : inputs)
      values.emplace_back(size_t(spec.bytes) / 8, 77);
    for (auto &value : values)
      targets.push_back(reinterpret_cast<char *>(value.data()));
    Status status = data->fill(position, targets);
    EXPECT_TRUE(status.isOk()) << status.getMessage();
    int64_t rows = inputs[input].shape[0];
    Rows found;
    for (auto at = values[input].begin(); at != values[input].end();
         at += int64_t(values[input].size()) / rows)
      found.emplace_back(at, at + int64_t(values[input].size()) / rows);
    return found;
  }

  TemporaryFolder folder;
  std::vector<Inputs> programs{makeProgram(4), makeProgram(2)};
  std::vector<std::string> notices;
  std::unique_ptr<DataSource> data;
};
} // namespace

TEST_F(BucketDataTest, LinesGoIntoTheSmallestBucketAndAreCut) {
  ASSERT_EQ(open("lines:" + write("train.txt", "ab\n\nabcdefg\nx"), {{2, 4}, false}), "");
  // "ab" and "x" have two places at most; "abcdefg" is cut after four; the empty line has none.
  ASSERT_EQ(data->getBatchesPerEpoch(), 2);
  EXPECT_EQ(*data->findProgram(0), 1u);
  EXPECT_EQ(read(0, 0), (Rows{{'a', 'b'}, {'x', 0}}));
  EXPECT_EQ(read(0, 1), (Rows{{'b', '\n'}, {'\n', -100}}));
  EXPECT_EQ(read(1, 0), (Rows{{'a', 'b', 'c', 'd'}, {'e', 'f', 'g', 0}}));
  EXPECT_EQ(read(1, 1), (Rows{{'b', 'c', 'd', 'e'}, {'f', 'g', '\n', -100}}));
  EXPECT_EQ(read(2, 0), read(0, 0));
  ASSERT_EQ(notices.size(), 1u);
  expectMessage(notices[0], {"1 texts are longer than 4"});
}

TEST_F(BucketDataTest, BatchesOfAStepAreOfOneBucketAndRowsOfPaddingDoNotCount) {
  ASSERT_EQ(open("lines:" + write("train.txt", "a\nb\nc\nabc\n"), {{2, 4}, false, 0, 2}), "");
  ASSERT_EQ(data->getBatchesPerEpoch(), 4);
  std::vector<int64_t> counts;
  for (int64_t position = 0; position < 4; ++position) {
    EXPECT_EQ(*data->findProgram(position), position < 2 ? 1u : 0u);
    counts.push_back(data->getSampleCount(position));
  }
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 1, 1, 0}));
  EXPECT_EQ(read(3, 0), (Rows{{0, 0, 0, 0}, {0, 0, 0, 0}}));
  EXPECT_EQ(read(3, 1), (Rows(2, std::vector<int64_t>(4, -100))));
}

TEST_F(BucketDataTest, AnEpochHasEveryTextOnceInAnOrderOfTheSeed) {
  std::string text;
  for (char letter = 'a'; letter < 'l'; ++letter)
    text += letter + std::string(letter % 2 ? "\n" : "bc\n");
  std::string source = "lines:" + write("train.txt", text);
  auto list = [&](int64_t seed, int64_t epoch) {
    EXPECT_EQ(open(source, {{2, 4}, true, seed}), "");
    std::vector<int64_t> firsts;
    for (int64_t batch = 0; batch < data->getBatchesPerEpoch(); ++batch)
      for (const auto &row : read(epoch * data->getBatchesPerEpoch() + batch, 0))
        if (row[0])
          firsts.push_back(row[0]);
    return firsts;
  };
  std::vector<int64_t> first = list(3, 0);
  EXPECT_EQ(first.size(), 11u);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 11u);
  EXPECT_EQ(list(3, 0), first);
  EXPECT_NE(list(3, 1), first);
  EXPECT_NE(list(4, 0), first);
}

TEST_F(BucketDataTest, TextsBringLabelsAndMasksAreMade) {
  for (Inputs &inputs : programs) {
    inputs.insert(inputs.begin() + 1, makeInput("attention_mask", inputs[0].shape));
    inputs[2] = makeInput("label", {2}, true);
  }
  ASSERT_EQ(open(writeTexts({{"lengths", {{3}, {1, 3, 2}}},
                             {"tokens", {{6}, {1, 2, 3, 4, 5, 6}}},
                             {"label", {{3}, {7, 8, 9}}}}),
                 {{2, 4}, false}),
            "");
  EXPECT_EQ(read(0, 0), (Rows{{1, 0}, {5, 6}}));
  EXPECT_EQ(read(0, 1), (Rows{{1, 0}, {1, 1}}));
  EXPECT_EQ(read(0, 2), (Rows{{7}, {9}}));
  EXPECT_EQ(read(1, 0), (Rows{{2, 3, 4, 0}, {0, 0, 0, 0}}));
  EXPECT_EQ(read(1, 1), (Rows{{1, 1, 1, 0}, {0, 0, 0, 0}}));
  EXPECT_EQ(read(1, 2), (Rows{{8}, {-100}}));
}

TEST_F(BucketDataTest, WhatDoesNotFitIsNamed) {
  std::string lines = "lines:" + write("train.txt", "abc\n");
  expectMessage(open("lines:" + write("empty.txt", "\n\n"), {{2, 4}}), {"no text of two tokens"});
  expectMessage(open(lines, {{2, 8}}), {"no program has batches of 8 tokens"});
  auto label = std::pair<Shape, std::vector<int64_t>>{{1}, {1}};
  expectMessage(open(writeTexts({{"tokens", label}}), {{2}}), {"texts need 'lengths'"});
  expectMessage(open(writeTexts({{"lengths", {{2}, {1, -1}}}, {"tokens", label}}), {{2}}), {"-1"});
  expectMessage(open(writeTexts({{"lengths", {{1}, {2}}}, {"tokens", label}}), {{2}}),
                {"'tokens'", "expected", "'lengths'"});
  programs.push_back(makeProgram(4));
  expectMessage(open(lines, {{2, 4}}), {"two programs take batches of 4 tokens"});
  // What an input is given follows from the first bucket: the others need the same inputs.
  programs = {makeProgram(4), makeProgram(2)};
  programs[0].push_back(makeInput("more", {2, 4}, true));
  expectMessage(open(lines, {{2, 4}}), {"2 and 4 tokens", "other inputs"});
  programs = {makeProgram(4), makeProgram(2)};
  for (Inputs &inputs : programs)
    inputs[1].shape.push_back(inputs[0].shape[1]);
  expectMessage(open(lines, {{2, 4}}), {"other inputs"});
  // Lengths alone would say of any number of tokens that it is there.
  programs = {{makeInput("mask", {2, 2}), makeInput("label", {2}, true)}};
  expectMessage(open(writeTexts({{"lengths", {{1}, {int64_t(1) << 60}}}, {"label", label}}), {{2}}),
                {"no tensor of tokens"});
  programs = {{makeInput("tokens", {2, 2})}};
  expectMessage(open(lines, {{2}}), {"ignores"});
}
