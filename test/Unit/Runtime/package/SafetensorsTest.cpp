//===- SafetensorsTest.cpp - tensors in files that may be hostile ---------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/package/Safetensors.h"
#include "TestSupport.h"
#include "memopt-runtime/numbers/Random.h"
#include <cstring>

using namespace memopt;
using namespace memopt::testing;

TEST(SafetensorsTest, WhatWasWrittenIsRead) {
  TemporaryFolder folder;
  float floats[] = {1, 2, 3, 4, 5, 6};
  int64_t integers[] = {-7};
  unsigned char flags[] = {1, 0, 1};
  std::string path = folder / "a.safetensors";
  ASSERT_TRUE(writeSafetensors(path, {{"flags", DType::I1, {3}, flags},
                                      {"floats \"quoted\"", DType::F32, {2, 3}, floats},
                                      {"integer", DType::I64, {}, integers},
                                      {"empty", DType::F32, {0, 4}, nullptr}})
                  .isOk());
  auto file = SafetensorsFile::map(path);
  ASSERT_TRUE(file.isOk()) << file.getMessage();
  EXPECT_EQ(file->entries().size(), 4u);
  const SafetensorsEntry *entry = file->find("floats \"quoted\"");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->shape, (Shape{2, 3}));
  EXPECT_EQ(std::memcmp(file->getData(*entry), floats, sizeof floats), 0);
  EXPECT_EQ(file->find("flags")->dtype, DType::I1);
  EXPECT_EQ(file->find("empty")->bytes, 0);
  EXPECT_EQ(file->find("missing"), nullptr);
}

namespace {
struct BadHeader {
  const char *claim, *header;
  int dataBytes;
  const char *message;
};
} // namespace

static const BadHeader badHeaders[] = {
    {"not an object", "[1]     ", 0, "does not begin with '{'"},
    {"not JSON", "{\"a\":     ", 0, "not valid JSON"},
    {"not UTF-8", "{\"\xff\xfe\": 1}", 0, "not valid JSON"},
    {"entry of wrong kind", "{\"a\": 1}", 0, "'a' must be an object"},
    {"no dtype", R"({"a": {"shape": [1], "data_offsets": [0, 4]}})", 4, "'a' lacks 'dtype'"},
    {"unknown dtype", R"({"a": {"dtype": "F7", "shape": [1], "data_offsets": [0, 4]}})", 4,
     "unknown dtype 'F7'"},
    {"negative dimension", R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4,
     "negative"},
    {"list of lists", R"({"a": {"dtype": "F32", "shape": [[]], "data_offsets": [0, 4]}})", 4,
     "'a.shape' must be an integer, found an array"},
    {"shape of another kind", R"({"a": {"dtype": "F32", "shape": {}, "data_offsets": [0, 4]}})", 4,
     "'a.shape' must be an array, found an object"},
    {"dtype of another kind", R"({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}})",
     4, "'a.dtype' must be a string, found an array"},
    {"key twice", R"({"a": {"dtype": "F32", "shape": [1], "shape": [1], "data_offsets": [0, 4]}})",
     4, "key 'shape' is given twice"},
    {"fractional dimension", R"({"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}})",
     4, "must be an integer"},
    {"huge shape",
     R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 4]}})", 4,
     "does not fit 64 bits"},
    {"dimension beyond int64",
     R"({"a": {"dtype": "F32", "shape": [18446744073709551615], "data_offsets": [0, 4]}})", 4,
     "below 2^63"},
    {"offsets beyond the file", R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
     4, "within 4 bytes of data"},
    {"offsets reversed", R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})", 4,
     "two offsets in order"},
    {"shorter than its shape", R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})",
     4, "has 4 bytes, but f32[2] takes 8"},
    {"overlap",
     R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
         "b": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}})",
     6, "'b' begins at byte 2, inside the one before it"},
    {"hole",
     R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
         "b": {"dtype": "F32", "shape": [1], "data_offsets": [6, 10]}})",
     10, "bytes 4 to 6 belong to no tensor"},
    {"data left over", R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 9,
     "end at byte 4 of the data, which has 9"},
    {"name twice",
     R"({"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
         "a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})",
     0, "given twice"},
    {"nesting", R"({"a": {"dtype": "F32", "shape": [[[[[1]]]]], "data_offsets": [0, 4]}})", 4,
     "nest deeper than 4"},
};

TEST(SafetensorsTest, EachLieInAHeaderHasItsMessage) {
  TemporaryFolder folder;
  for (const BadHeader &bad : badHeaders) {
    std::string path = folder / "bad.safetensors";
    writeRawSafetensors(path, bad.header, std::string(size_t(bad.dataBytes), 'x'));
    auto file = SafetensorsFile::open(path);
    ASSERT_FALSE(file.isOk()) << bad.claim;
    EXPECT_EQ(file.getCode(), StatusCode::BadInput);
    expectMessage(file.getMessage(), {"bad.safetensors", bad.message});
  }
}

TEST(SafetensorsTest, HeaderLengthsAreNotTrusted) {
  TemporaryFolder folder;
  std::string path = folder / "bad.safetensors";
  auto messageFor = [&](const std::string &content) {
    writeFile(path, content);
    return SafetensorsFile::open(path).getMessage();
  };
  expectMessage(messageFor("abc"), {"3 bytes"});
  expectMessage(messageFor(""), {"0 bytes"});
  expectMessage(messageFor(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}"),
                {"claims 9223372036854775807 bytes, 2 are left"});
  expectMessage(messageFor(std::string(8, '\0')), {"does not begin with '{'"});
  expectMessage(SafetensorsFile::open(folder / "absent").getMessage(), {"No such file"});
  expectMessage(SafetensorsFile::open(folder.path).getMessage(), {"not a regular file"});
}

// Whatever happens to a byte or to the end of a file, reading ends in a value or a failure, and
// what is handed out lies inside the file.
TEST(SafetensorsTest, DamagedFilesNeverCrash) {
  TemporaryFolder folder;
  std::string good = readFile(writeBatches(folder, 3)), path = folder / "damaged.safetensors";
  auto readAll = [&] {
    auto file = SafetensorsFile::map(path);
    unsigned sum = 0;
    if (file.isOk())
      for (const auto &[name, entry] : file->entries())
        for (int64_t i = 0; i < entry.bytes; ++i)
          sum += file->getData(entry)[i];
    return sum;
  };
  for (uint64_t round = 0; round < 1500; ++round) {
    std::string damaged = good;
    for (uint64_t change = 0; change <= round % 3; ++change)
      damaged[drawBelow(std::min<size_t>(damaged.size(), 600), 1, round, change)] =
          char(drawBelow(256, 2, round, change));
    if (round % 5 == 0)
      damaged.resize(drawBelow(damaged.size(), 3, round, 0));
    writeFile(path, damaged);
    readAll();
  }
}

TEST(SafetensorsTest, NamesThatCannotBeReadBackAreNotWritten) {
  TemporaryFolder folder;
  float value = 1;
  auto messageFor = [&](const std::string &first, const std::string &second) {
    return writeSafetensors(folder / "a.safetensors",
                            {{first, DType::F32, {}, &value}, {second, DType::F32, {}, &value}})
        .getMessage();
  };
  expectMessage(messageFor("a", "a"), {"a.safetensors", "two tensors named 'a'"});
  expectMessage(messageFor("a", "__metadata__"), {"which the format keeps for itself"});
  expectMessage(messageFor("a\xff", "a\xfe"), {"not valid UTF-8"});
  EXPECT_EQ(messageFor("a", "b"), "");
}

TEST(SafetensorsTest, RangesWrittenInAnyOrderMakeTheSameFile) {
  TemporaryFolder folder;
  std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  std::vector<char> bytes = {7, 8, 9};
  std::vector<TensorToWrite> tensors = {{"bytes", DType::I8, {3}, bytes.data()},
                                        {"floats", DType::F32, {2, 3}, floats.data()}};
  ASSERT_TRUE(writeSafetensors(folder / "whole", tensors).isOk());
  auto layout = SafetensorsLayout::plan(tensors);
  ASSERT_TRUE(layout.isOk());
  EXPECT_EQ(layout->order, (std::vector<size_t>{1, 0})); // wide elements first
  auto writer = SafetensorsWriter::create(folder / "ranges", *layout);
  ASSERT_TRUE(writer.isOk());
  EXPECT_EQ(int64_t(readFile(folder / "ranges").size()), layout->bytes); // room is taken
  ASSERT_TRUE(writer->write(0, 1, bytes.data() + 1, 2).isOk());
  ASSERT_TRUE(writer->write(1, 12, floats.data() + 3, 12).isOk());
  ASSERT_TRUE(writer->write(1, 0, floats.data(), 12).isOk());
  ASSERT_TRUE(writer->write(0, 0, bytes.data(), 1).isOk());
  ASSERT_TRUE(writer->finish().isOk());
  EXPECT_EQ(readFile(folder / "ranges"), readFile(folder / "whole"));
  EXPECT_EQ(SafetensorsWriter::create(folder / "ranges", *layout).getCode(),
            StatusCode::Environment); // never over a file that is there
}
