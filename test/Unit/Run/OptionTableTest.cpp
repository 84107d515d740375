//===- OptionTableTest.cpp - how tools read their options ----------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "options/OptionTable.h"
#include <gtest/gtest.h>

using namespace memopt::options;

using Kind = OptionReader::Kind;

static OptionTable makeTable() {
  return OptionTable("tool", "tool INPUT [options]", "Does something.",
                     {{"--steps", "N", "how many", "Length", {"--max-steps"}, "10"},
                      {"--explain", "[words]", "say more", "Output"},
                      {"--quiet", "", "say less", "Output"},
                      {"--data", "FILE", "what to read", "Length", {}, "", true},
                      {"-o", "FILE", "where to", "Output"},
                      {"--help", "", "this text", "Output", {"-h"}}},
                     "The end.", {{"--verbosity", "--quiet"}});
}

static std::vector<OptionReader::Item> readAll(const OptionTable &table,
                                               std::vector<std::string> words) {
  std::vector<OptionReader::Item> items;
  for (OptionReader reader(table, std::move(words)); !reader.isAtEnd();)
    items.push_back(reader.next());
  return items;
}

TEST(OptionTableTest, ValuesStandBehindOrAfterAnOption) {
  OptionTable table = makeTable();
  auto items = readAll(table, {"in", "--steps=3", "-o", "out", "--explain", "-quiet", "-h", "-"});
  ASSERT_EQ(items.size(), 7u);
  EXPECT_EQ(items[0].kind, Kind::Place);
  EXPECT_EQ(items[1].value, "3");
  EXPECT_EQ(items[2].option->name, "-o");
  EXPECT_EQ(items[2].value, "out");
  EXPECT_EQ(items[3].value, ""); // it may be left out, and the next word is none
  EXPECT_EQ(items[4].option->name, "--quiet");
  EXPECT_EQ(items[5].option->name, "--help");
  EXPECT_EQ(items[6].kind, Kind::Place); // "-" is a file
  EXPECT_EQ(readAll(table, {"--max_steps", "-1"})[0].value, "-1");
}

TEST(OptionTableTest, NamesAreFoundHoweverTheyAreWritten) {
  EXPECT_EQ(normalize("-batch_size=a_b=-c"), "--batch-size=a_b=-c");
  EXPECT_EQ(normalize("--steps"), "--steps");
}

TEST(OptionTableTest, WhatIsWrongIsSaid) {
  OptionTable table = makeTable();
  EXPECT_EQ(readAll(table, {"--quiet=1"})[0].message, "--quiet takes no value");
  EXPECT_EQ(readAll(table, {"--steps"})[0].message, "--steps needs a value: --steps=N");
  EXPECT_EQ(readAll(table, {"--steps", "--quiet"})[0].message, "--steps needs a value: --steps=N");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(readAll(table, {"--steps=1", "--max-steps", "2", "--steps=2"})[1].value, "2");
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("--steps is given twice, as '--steps=1' and as '--max-steps 2'; the last one "
                      "is taken\n"),
            std::string::npos)
      << said;
  for (const OptionReader::Item &item :
       readAll(table, {"--data=a", "--data=b", "--quiet", "--quiet"}))
    EXPECT_EQ(item.kind, Kind::Given);
  EXPECT_EQ(readAll(table, {"--step"})[0].kind, Kind::Unknown);
}

TEST(OptionTableTest, ASlipIsRecognized) {
  OptionTable table = makeTable();
  EXPECT_EQ(table.suggest("--stpes"), ", did you mean '--steps'?");
  EXPECT_EQ(table.suggest("--max_stesp"), ", did you mean '--max-steps', which is '--steps'?");
  EXPECT_EQ(table.suggest("--verbosity"), ", write '--quiet'");
  EXPECT_EQ(table.suggest("--z"), "");
  EXPECT_EQ(describeUnknown(table, "--stpes=3"),
            "option '--stpes' is unknown, did you mean '--steps'?; see tool --help");
}

TEST(OptionTableTest, HelpStandsByPurposeAndFitsTheTerminal) {
  std::string help = makeTable().getHelp(60);
  EXPECT_LT(help.find("Length:"), help.find("--data=FILE"));
  EXPECT_LT(help.find("--data=FILE"), help.find("Output:"));
  EXPECT_NE(help.find("  --steps=N                 how many (default 10) (also\n" +
                      std::string(28, ' ') + "--max-steps)\n"),
            std::string::npos)
      << help;
  EXPECT_NE(help.find("  --explain[=words]         say more\n"), std::string::npos);
  EXPECT_NE(help.find("  -o FILE                   where to\n"), std::string::npos);
  for (size_t begin = 0, end; (end = help.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 60u);
}

TEST(OptionTableTest, SizesHaveBinaryUnits) {
  auto parse = [](const std::string &text) {
    int64_t bytes = -1;
    std::string wrong = parseBytes(text, bytes);
    EXPECT_EQ(wrong, "");
    return bytes;
  };
  EXPECT_EQ(parse("4096"), 4096);
  EXPECT_EQ(parse("9007199254740993"), 9007199254740993); // more than a double holds
  EXPECT_EQ(parse("1.5MiB"), 3 << 19);
  EXPECT_EQ(parse("16 GiB"), int64_t(16) << 30);
  EXPECT_EQ(parse("2TiB"), int64_t(2) << 40);
  int64_t bytes = 0;
  for (const char *text : {"8G", "8GB", "8g", "8gib"})
    EXPECT_NE(parseBytes(text, bytes).find("write 8GiB, of which one is 2^30 bytes"),
              std::string::npos);
  for (const char *text : {"", "x", "-1", "1.2.3", "9e30", "1PiB", "99999999999TiB", "."})
    EXPECT_NE(parseBytes(text, bytes), "") << text;
}
