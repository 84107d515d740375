//===- ConstantTensorTests.cpp - index arithmetic while importing -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Archive/ConstantTensor.h"

#include "gtest/gtest.h"

using namespace llvm;
using namespace memopt::pt2;
using Shape = ConstantTensor::Shape;

namespace {

Shape extents(const Constant &tensor) { return Shape(tensor->getExtents()); }

TEST(ConstantTensor, StoresEqualElementsOnce) {
  Constant same = ConstantTensor::generate(DType::I64, {3, 4}, [](ArrayRef<int64_t>) { return 7; });
  EXPECT_EQ(extents(same), (Shape{1, 1}));
  EXPECT_EQ(same->getSplat(), 7);
  Constant rows =
      ConstantTensor::generate(DType::I64, {3, 4}, [](ArrayRef<int64_t> i) { return i[0]; });
  EXPECT_EQ(extents(rows), (Shape{3, 1}));
  EXPECT_EQ(rows->at({2, 3}), 2);
}

TEST(ConstantTensor, WrapsLikeItsType) {
  EXPECT_EQ(wrapTo(DType::U8, -1), 255);
  EXPECT_EQ(wrapTo(DType::I8, 200), -56);
  EXPECT_EQ(wrapTo(DType::Bool, 200), 1);
  EXPECT_EQ(wrapTo(DType::I32, int64_t(1) << 32), 0);
}

TEST(ConstantTensor, ReshapesThroughDimensionsOfSizeOne) {
  Constant row = ConstantTensor::expand(
      ConstantTensor::reshape(ConstantTensor::iota(DType::I64, 0, 1, 4), {1, 4}), {3, 4});
  EXPECT_EQ(extents(row), (Shape{1, 4}));
  Constant moved = ConstantTensor::reshape(row, {3, 1, 4, 1});
  EXPECT_EQ(extents(moved), (Shape{1, 1, 4, 1}));
  EXPECT_EQ(moved->at({2, 0, 3, 0}), 3);
  Constant flat = ConstantTensor::reshape(row, {12}); // must repeat what was stored once
  EXPECT_EQ(flat->at({5}), 1);
}

TEST(ConstantTensor, SlicesPermutesAndJoins) {
  Constant grid = ConstantTensor::generate(DType::I64, {2, 3},
                                           [](ArrayRef<int64_t> i) { return 3 * i[0] + i[1]; });
  Constant turned = ConstantTensor::permute(grid, {1, 0});
  EXPECT_EQ(turned->at({2, 1}), 5);
  Constant odd = ConstantTensor::slice(grid, 1, 0, 2, 2);
  EXPECT_EQ(odd->at({1, 1}), 5);
  Constant joined = ConstantTensor::concat({grid, odd}, 1);
  EXPECT_EQ(Shape(joined->getSizes()), (Shape{2, 5}));
  EXPECT_EQ(joined->at({1, 3}), 3);
  EXPECT_EQ(joined->at({1, 4}), 5);
}

TEST(ConstantTensor, SumsAlongOneDimension) {
  Constant ones = ConstantTensor::splat(DType::Bool, {2, 4}, 1);
  Constant sums = ConstantTensor::cumsum(ones, 1, DType::I64);
  EXPECT_EQ(extents(sums), (Shape{1, 4}));
  EXPECT_EQ(sums->at({1, 3}), 4);
}

TEST(ConstantTensor, KeepsEmptyTensorsEmpty) {
  Constant none = ConstantTensor::splat(DType::I64, {0, 3}, 1);
  EXPECT_EQ(none->getNumStored(), 0);
  EXPECT_EQ(none->getSplat(), std::nullopt);
}

} // namespace
