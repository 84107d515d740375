//===- KernelIndexTest.cpp - integer arithmetic on loop variables -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Graph/KernelIndex.h"

#include <gtest/gtest.h>
#include <random>

using namespace mlir::memopt;
using llvm::SmallVector;

namespace {

std::string toString(const IndexTable &table, const IndexExpr &expr) {
  std::string text;
  llvm::raw_string_ostream os(text);
  table.print(expr, os);
  return text;
}

/// The value of `expr` when variable i is values[i].
int64_t evaluate(const IndexTable &table, const IndexExpr &expr,
                 const std::vector<int64_t> &values) {
  int64_t sum = expr.constant;
  for (auto [id, coefficient] : expr.terms) {
    const IndexAtom &atom = table.getAtom(id);
    int64_t value;
    if (atom.kind == IndexAtom::Variable) {
      value = values[id];
    } else {
      int64_t dividend = evaluate(table, atom.dividend, values);
      value = dividend / atom.divisor - (dividend % atom.divisor < 0);
    }
    sum += coefficient * value;
  }
  return sum;
}

TEST(KernelIndex, ReshapeAndBackVanishes) {
  IndexTable table;
  IndexExpr flat = table.get(table.addVariable(3 * 5 * 7 * 11));
  SmallVector<IndexExpr> parts = table.delinearize(flat, {3, 5, 7, 11});
  EXPECT_EQ(IndexTable::linearize(parts, {3, 5, 7, 11}), flat);
  // Through another shape of the same elements, too.
  SmallVector<IndexExpr> others =
      table.delinearize(IndexTable::linearize(parts, {3, 5, 7, 11}), {15, 77});
  EXPECT_EQ(IndexTable::linearize(others, {15, 77}), flat);
}

TEST(KernelIndex, SplitOfMergedLoopsGivesLoops) {
  IndexTable table;
  IndexExpr i = table.get(table.addVariable(6)), j = table.get(table.addVariable(10));
  IndexExpr merged = IndexTable::linearize({i, j}, {6, 10});
  EXPECT_EQ(table.floorDiv(merged, 10), i);
  EXPECT_EQ(table.mod(merged, 10), j);
  // A finer cut leaves only the part of j in quotients: (10 i + j) / 5 = 2 i + j / 5.
  EXPECT_EQ(toString(table, table.floorDiv(merged, 5)), "2*i0 + ((i1) / 5)");
}

TEST(KernelIndex, RangesSeeThroughRemainders) {
  IndexTable table;
  IndexExpr i = table.get(table.addVariable(1000));
  IndexRange range = table.getRange(table.mod(table.floorDiv(i, 7), 13));
  EXPECT_EQ(range.low, 0);
  EXPECT_EQ(range.high, 12);
}

TEST(KernelIndex, StrideOfQuotientIsNoConstant) {
  IndexTable table;
  AtomId i = table.addVariable(100), j = table.addVariable(4);
  IndexExpr expr =
      IndexTable::add(IndexTable::scale(table.get(j), 3), table.floorDiv(table.get(i), 8));
  EXPECT_EQ(table.getStride(expr, j), 3);
  EXPECT_EQ(table.getStride(expr, i), std::nullopt);
  EXPECT_EQ(table.getStride(table.get(j), i), 0);
}

TEST(KernelIndex, VariableOfOneIterationIsZero) {
  IndexTable table;
  EXPECT_EQ(table.get(table.addVariable(1)), IndexExpr(0));
}

/// Random expressions keep their value, and stay inside their range.
TEST(KernelIndex, RandomExpressionsKeepTheirValue) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    IndexTable table;
    std::vector<int64_t> sizes, values;
    for (int i = 0; i < 3; ++i) {
      sizes.push_back(2 + random() % 40);
      table.addVariable(sizes.back());
      values.push_back(random() % sizes.back());
    }
    std::vector<std::pair<IndexExpr, int64_t>> known;
    for (unsigned i = 0; i < 3; ++i)
      known.push_back({table.get(i), values[i]});
    for (int step = 0; step < 12; ++step) {
      auto [a, x] = known[random() % known.size()];
      auto [b, y] = known[random() % known.size()];
      int64_t factor = 1 + random() % 12;
      switch (random() % 4) {
      case 0:
        known.push_back({IndexTable::add(a, b), x + y});
        break;
      case 1:
        known.push_back({IndexTable::scale(a, factor), x * factor});
        break;
      case 2:
        known.push_back({table.floorDiv(a, factor), x / factor - (x % factor < 0)});
        break;
      case 3:
        known.push_back({table.mod(a, factor), (x % factor + factor) % factor});
        break;
      }
      auto &[expr, value] = known.back();
      EXPECT_EQ(evaluate(table, expr, values), value) << toString(table, expr);
      IndexRange range = table.getRange(expr);
      EXPECT_LE(range.low, value) << toString(table, expr);
      EXPECT_GE(range.high, value) << toString(table, expr);
    }
  }
}

/// What is said of lanes holds for every block of them that begins where it may.
TEST(KernelIndex, OffsetsOfLanes) {
  std::mt19937 random(5);
  unsigned known = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    IndexTable table;
    AtomId row = table.addVariable(6), flat = table.addVariable(960);
    IndexExpr expr = table.get(flat);
    for (int depth = random() % 3; depth >= 0; --depth) {
      int64_t factor = 1 << (random() % 7);
      factor = random() % 4 ? factor : factor * 3;
      IndexExpr other = IndexTable::scale(table.get(row), random() % 2 ? 16 : 3);
      other = IndexTable::add(random() % 2 ? other : IndexExpr(), table.get(flat));
      expr = IndexTable::add(
          expr, random() % 2 ? table.floorDiv(other, factor) : table.mod(other, factor),
          int64_t(random() % 7) - 3);
    }
    int64_t count = 1 << (random() % 6), step = random() % 2 ? count : 1 << (random() % 6);
    auto offsets = table.getOffsets(expr, {flat, count, step});
    if (!offsets)
      continue;
    ++known;
    for (int64_t first = 0; first + count <= 960; first += step)
      for (int64_t lane = 0; lane < count; ++lane) {
        std::vector<int64_t> at{first / step % 6, first};
        int64_t begin = evaluate(table, expr, at);
        at[1] += lane;
        ASSERT_EQ(evaluate(table, expr, at) - begin, (*offsets)[lane]) << toString(table, expr);
      }
  }
  EXPECT_GT(known, 500u);
}
} // namespace
