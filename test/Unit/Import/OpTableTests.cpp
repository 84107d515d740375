//===- OpTableTests.cpp - every operator's row is well-formed -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpTable.h"

#include "gtest/gtest.h"

using namespace llvm;
using namespace memopt::pt2;

namespace {

TEST(OpTable, EveryRowParses) {
  size_t rows = 0;
  for (const auto &entry : OpTable::get()) {
    std::vector<Parameter> parameters = parseParameters(entry.second.parameters);
    EXPECT_FALSE(parameters.empty()) << entry.first().str();
    // PyTorch's operators, and those by which the export helper says what a graph cannot.
    EXPECT_TRUE(entry.first().starts_with("aten.") || entry.first().starts_with("memopt.") ||
                entry.first().starts_with("transformers."))
        << entry.first().str();
    StringMap<int> names;
    for (const Parameter &parameter : parameters)
      EXPECT_EQ(names[parameter.name]++, 0) << entry.first().str() << ": " << parameter.name;
    ++rows;
  }
  EXPECT_GT(rows, 150u);
}

TEST(OpTable, UnderstandsDefaults) {
  std::vector<Parameter> parameters = parseParameters(
      "Tensor self, int[] stride=1, float eps=1e-05, str mode='none', bool keep=False, "
      "int[] dims=[2 -1], Scalar? value=None");
  ASSERT_EQ(parameters.size(), 7u);
  EXPECT_FALSE(parameters[0].defaultValue);
  EXPECT_EQ(parameters[1].defaultValue->ints, std::vector<int64_t>{1});
  EXPECT_EQ(parameters[2].defaultValue->floats, std::vector<double>{1e-5});
  EXPECT_EQ(parameters[3].defaultValue->text, "none");
  EXPECT_EQ(parameters[4].defaultValue->ints, std::vector<int64_t>{0});
  EXPECT_EQ(parameters[5].defaultValue->ints, (std::vector<int64_t>{2, -1}));
  EXPECT_TRUE(parameters[6].optional);
}

TEST(OpTable, FindsInPlaceSpellings) {
  bool inPlace = false;
  EXPECT_TRUE(OpTable::get().lookup("aten.relu_.default", inPlace));
  EXPECT_TRUE(inPlace);
  EXPECT_TRUE(OpTable::get().lookup("aten.__and__.Tensor", inPlace));
  EXPECT_FALSE(inPlace);
  EXPECT_FALSE(OpTable::get().lookup("aten.frobnicate_.default", inPlace));
  EXPECT_FALSE(OpTable::get().lookup("", inPlace));
}

} // namespace
