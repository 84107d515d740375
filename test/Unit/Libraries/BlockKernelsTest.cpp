//===- BlockKernelsTest.cpp - the inner loops for every processor -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Calls run on the best instruction set of the machine at hand; here the lesser ones are tried too.

#include "memopt-runtime/kernels/own/BlockKernels.h"
#include "GroupKernels.h"
#include "LibraryCallTesting.h"
#include "RowKernels.h"
#include "memopt-runtime/numbers/Philox.h"
#include <cmath>
#include <limits>

using namespace memopt;
using namespace memopt::libraries;
using namespace memopt::librarytest;

static std::vector<InstructionSet> instructionSets() {
  std::vector<InstructionSet> sets;
  for (InstructionSet set :
       {InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512})
    if (set <= instructionSet())
      sets.push_back(set);
  return sets;
}

template <typename S, typename T> static void checkProduct(InstructionSet set, double tolerance) {
  const BlockKernels<S, T> &kernels = blockKernels<S, T>(set);
  SCOPED_TRACE(kernels.name);
  EXPECT_EQ(attentionStride % kernels.rowsPerPanel, 0);
  EXPECT_EQ(attentionTile % kernels.columnsPerPanel, 0);
  int64_t rows = 2 * kernels.rowsPerPanel - 1, columns = 2 * kernels.columnsPerPanel - 3,
          depth = 37;
  // a has rows contiguous along depth, two of them absent; b has depth steps of contiguous columns.
  std::vector<S> a = randomValues<S>(rows * depth, 1), b = randomValues<S>(depth * columns, 2);
  std::vector<T> aPanels(2 * kernels.rowsPerPanel * depth), c;
  std::vector<T> bPanels(2 * kernels.columnsPerPanel * depth);
  std::vector<const S *> lane, step;
  for (int64_t i = 0; i < rows; ++i)
    lane.push_back(i % 5 == 3 ? nullptr : a.data() + i * depth);
  for (int64_t d = 0; d < depth; ++d)
    step.push_back(d == 7 ? nullptr : b.data() + d * columns);
  // In two parts each, as convolutions pack.
  kernels.packLanes({aPanels.data(), kernels.rowsPerPanel, depth}, 0, lane.data(), rows, 11, 1);
  for (const S *&address : lane)
    address = address ? address + 11 : nullptr;
  kernels.packLanes({aPanels.data(), kernels.rowsPerPanel, depth}, 11, lane.data(), rows,
                    depth - 11, 1);
  kernels.packSteps({bPanels.data(), kernels.columnsPerPanel, depth}, 0, step.data(), depth, 3, 1);
  for (const S *&address : step)
    address = address ? address + 3 : nullptr;
  kernels.packSteps({bPanels.data(), kernels.columnsPerPanel, depth}, 3, step.data(), depth,
                    columns - 3, 1);
  int64_t stride = 2 * kernels.columnsPerPanel;
  c.assign(2 * kernels.rowsPerPanel * stride, T(1));
  kernels.multiply(2, 2, depth, aPanels.data(), kernels.rowsPerPanel * depth, 1,
                   kernels.rowsPerPanel, bPanels.data(), kernels.columnsPerPanel * depth,
                   kernels.columnsPerPanel, c.data(), stride, true, /*bias=*/nullptr);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 1;
      for (int64_t d = 0; d < depth && i % 5 != 3; ++d)
        sum += d == 7 ? 0 : double(a[i * depth + d]) * double(b[d * columns + j]);
      ASSERT_NEAR(c[i * stride + j], sum, tolerance) << i << ", " << j;
    }
}

/// Panels of both widths by steps, from the first lane of a panel on: each lane of each step is where
/// it belongs, and nothing behind the last panel is written.
template <typename S, typename T> static void checkSteps(InstructionSet set) {
  const BlockKernels<S, T> &kernels = blockKernels<S, T>(set);
  for (int64_t width : {kernels.rowsPerPanel, kernels.columnsPerPanel})
    for (int64_t lanes : {width, 2 * width, 2 * width + 1, 3 * width - 1})
      for (int64_t depth : {1, 2, 8, 9, 17}) {
        SCOPED_TRACE(std::string(kernels.name) + " " + std::to_string(width) + " " +
                     std::to_string(lanes) + " " + std::to_string(depth));
        std::vector<S> source = randomValues<S>(depth * lanes, 1);
        std::vector<const S *> step;
        for (int64_t d = 0; d < depth; ++d)
          step.push_back(d % 5 == 3 ? nullptr : source.data() + d * lanes);
        int64_t panels = (lanes + width - 1) / width, size = panels * width * depth;
        std::vector<T> packed(size + 16, T(9));
        kernels.packSteps({packed.data(), width, depth}, 0, step.data(), depth, lanes, 1);
        for (int64_t d = 0; d < depth; ++d)
          for (int64_t lane = 0; lane < lanes; ++lane) {
            T expected = step[d] ? static_cast<T>(step[d][lane]) : T(0);
            int64_t place = lane / width * width * depth + d * width + lane % width;
            ASSERT_EQ(packed[place], expected) << d << ", " << lane;
          }
        for (size_t i = size; i < packed.size(); ++i)
          ASSERT_EQ(packed[i], T(9)) << i;
      }
}

TEST(BlockKernels, PackSteps) {
  for (InstructionSet set : instructionSets()) {
    checkSteps<float, float>(set);
    checkSteps<double, double>(set);
    checkSteps<BFloat16, float>(set);
  }
}

TEST(BlockKernels, MultiplyWhatTheyPack) {
  for (InstructionSet set : instructionSets()) {
    checkProduct<float, float>(set, 1e-5);
    checkProduct<double, double>(set, 1e-13);
    checkProduct<float, double>(set, 1e-13);
    checkProduct<BFloat16, float>(set, 1e-5);
    checkProduct<BFloat16, double>(set, 1e-13);
    checkProduct<Float16, float>(set, 1e-5);
    checkProduct<Float16, double>(set, 1e-13);
  }
}

/// Packs rows of channels, sums windows of two of them and a gradient's products with them, and
/// puts the sums back.
template <typename S, typename T>
static void checkWindows(InstructionSet set, int64_t group, int64_t columnStep, double tolerance) {
  const GroupKernels<S, T> &kernels = groupKernels<S, T>(set);
  int64_t lanes = kernels.lanes, channels = lanes - (group == 1 && lanes > 2 ? 1 : 0);
  if (group > lanes)
    return;
  SCOPED_TRACE(std::string(kernels.name) + " " + std::to_string(group));
  constexpr int64_t rows = 2, taps = 3;
  for (int64_t columns : {1, 3, 4, 7, 13, 16}) {
    int64_t width = (columns - 1) * columnStep + taps, stride = channels + 2;
    std::vector<S> source = randomValues<S>(rows * width * stride, 1);
    std::vector<T> packed(rows * width * lanes, T(9)), result(columns * lanes);
    for (int64_t row = 0; row < rows; ++row)
      kernels.pack(packed.data() + row * width * lanes, 0, source.data() + row * width * stride,
                   width, stride, channels);
    std::vector<T> weights = randomValues<T>(group * rows * taps * lanes, 2);
    std::vector<T> start = randomValues<T>(lanes, 3),
                   gradient = randomValues<T>(columns * lanes, 4);
    std::vector<T> sums(weights.size(), T(1));
    const T *values[rows] = {packed.data(), packed.data() + width * lanes};
    const T *filters[rows] = {weights.data(), weights.data() + taps * lanes};
    T *targets[rows] = {sums.data(), sums.data() + taps * lanes};
    Window<T> window{values, rows, taps, columns, group, lanes, columnStep * lanes};
    int64_t memberStep = rows * taps * lanes;
    kernels.convolve({window, filters, lanes, memberStep, start.data(), result.data(), lanes});
    kernels.correlate({window, targets, memberStep, gradient.data(), lanes});
    std::vector<S> stored(columns * stride);
    std::vector<Wide<S>> wide(columns * stride);
    kernels.unpack(stored.data(), result.data(), columns, stride, channels);
    kernels.unpackWide(wide.data(), result.data(), columns, stride, channels);

    std::vector<double> expectedSums(sums.size(), 1);
    for (int64_t column = 0; column < columns; ++column)
      for (int64_t lane = 0; lane < channels; ++lane) {
        double sum = start[lane];
        for (int64_t at = 0; at < group * rows * taps; ++at) {
          int64_t member = at / (rows * taps), row = at / taps % rows;
          int64_t from = row * width + column * columnStep + at % taps;
          double value = source[from * stride + lane - lane % group + member];
          sum += value * double(weights[at * lanes + lane]);
          expectedSums[at * lanes + lane] += value * double(gradient[column * lanes + lane]);
        }
        ASSERT_NEAR(result[column * lanes + lane], sum, tolerance) << column << ", " << lane;
        ASSERT_EQ(double(stored[column * stride + lane]),
                  double(static_cast<S>(result[column * lanes + lane])));
        ASSERT_EQ(double(wide[column * stride + lane]), double(result[column * lanes + lane]));
      }
    for (size_t i = 0; i < sums.size(); ++i)
      if (static_cast<int64_t>(i) % lanes < channels)
        ASSERT_NEAR(sums[i], expectedSums[i], tolerance) << i;
  }
}

TEST(GroupKernels, SumWindowsOfWhatTheyPack) {
  for (InstructionSet set : instructionSets())
    for (int64_t group : {1, 2, 4, 8})
      for (int64_t columnStep : {1, 2, 3}) {
        checkWindows<float, float>(set, group, columnStep, 1e-4);
        checkWindows<double, double>(set, group, columnStep, 1e-12);
        checkWindows<BFloat16, float>(set, group, columnStep, 1e-4);
        checkWindows<Float16, float>(set, group, columnStep, 1e-4);
      }
}

/// The nearest of all numbers of the type, the even one of two, is what rounding must find.
template <typename Half> static void checkRounding(float value) {
  Half rounded(value);
  auto distance = [&](uint16_t bits) {
    Half other;
    other.bits = bits;
    return std::abs(double(other) - double(value));
  };
  double found = distance(rounded.bits), above = distance(rounded.bits + 1),
         below = rounded.bits & 0x7fff ? distance(rounded.bits - 1) : found + 1;
  ASSERT_TRUE(found <= above && found <= below) << value;
  ASSERT_TRUE(rounded.bits % 2 == 0 || (found < above && found < below)) << value;
}

template <typename Half> static void checkHalves() {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Half half;
    half.bits = static_cast<uint16_t>(bits);
    float value = half;
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(float(Half(value)))) << bits;
    else
      ASSERT_EQ(Half(value).bits, bits);
    if (!std::isfinite(value) || std::abs(value) > 6e4f)
      continue;
    // Between this number and the next: a third, the middle, and beside the middle.
    half.bits = static_cast<uint16_t>(bits + 1);
    float next = half, middle = value + (next - value) / 2;
    for (float between : {value + (next - value) / 3, middle, std::nextafter(middle, value),
                          std::nextafter(middle, next)})
      checkRounding<Half>(between);
  }
}

TEST(ElementTypes, RoundToNearestEven) {
  checkHalves<BFloat16>();
  checkHalves<Float16>();
  EXPECT_EQ(Float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(Float16(0x1p-25f).bits, 0);
  EXPECT_EQ(Float16(0x1.8p-25f).bits, 1);
  EXPECT_EQ(BFloat16(3.4e38f).bits, 0x7f80);
}

/// A tile of scores multiplies as it stands and transposed.
template <typename T> static void checkTile(InstructionSet set) {
  const BlockKernels<T, T> &kernels = blockKernels<T, T>(set);
  SCOPED_TRACE(kernels.name);
  constexpr int64_t n = attentionStride;
  int64_t width = kernels.columnsPerPanel;
  std::vector<T> tile = randomValues<T>(n * n, 1), right = randomValues<T>(n * width, 2);
  std::vector<T> plain(n * width), transposed(n * width);
  int64_t panels = n / kernels.rowsPerPanel;
  kernels.multiply(panels, 1, n, tile.data(), kernels.rowsPerPanel * n, n, 1, right.data(), 0,
                   width, plain.data(), width, false, /*bias=*/nullptr);
  kernels.multiply(panels, 1, n, tile.data(), kernels.rowsPerPanel, 1, n, right.data(), 0, width,
                   transposed.data(), width, false, /*bias=*/nullptr);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) {
      double sum = 0, other = 0;
      for (int64_t d = 0; d < n; ++d) {
        sum += double(tile[i * n + d]) * double(right[d * width + j]);
        other += double(tile[d * n + i]) * double(right[d * width + j]);
      }
      ASSERT_NEAR(plain[i * width + j], sum, 1e-4);
      ASSERT_NEAR(transposed[i * width + j], other, 1e-4);
    }
}

/// Rows that lie along the depth, at depths around lines of memory; to the sum of each column its
/// bias is added.
template <typename T> static void checkRowsInPlace(InstructionSet set, bool accumulates) {
  const BlockKernels<T, T> &kernels = blockKernels<T, T>(set);
  for (int64_t depth : {1, 15, 16, 17, 48, 61}) {
    SCOPED_TRACE(std::string(kernels.name) + " " + std::to_string(depth));
    int64_t rows = 2 * kernels.rowsPerPanel, width = kernels.columnsPerPanel, columns = 2 * width;
    int64_t aStride = depth + 3, cStride = columns + 5;
    std::vector<T> a = randomValues<T>(rows * aStride, 1), b = randomValues<T>(columns * depth, 2);
    std::vector<T> bias = randomValues<T>(columns, 3), c(rows * cStride, T(2));
    kernels.multiply(2, 2, depth, a.data(), kernels.rowsPerPanel * aStride, aStride, 1, b.data(),
                     width * depth, width, c.data(), cStride, accumulates, bias.data());
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cStride; ++j) {
        double sum = accumulates || j >= columns ? 2 : 0;
        for (int64_t d = 0; j < columns && d < depth; ++d)
          sum +=
              double(a[i * aStride + d]) * double(b[(j / width * depth + d) * width + j % width]);
        ASSERT_NEAR(c[i * cStride + j], j < columns ? sum + bias[j] : sum, 1e-4) << i << ", " << j;
      }
  }
}

TEST(BlockKernels, MultiplyRowsInPlaceAndAddABias) {
  for (InstructionSet set : instructionSets())
    for (bool accumulates : {false, true}) {
      checkRowsInPlace<float>(set, accumulates);
      checkRowsInPlace<double>(set, accumulates);
    }
}

TEST(BlockKernels, MultiplyTilesEitherWayUp) {
  for (InstructionSet set : instructionSets()) {
    checkTile<float>(set);
    checkTile<double>(set);
  }
}

template <typename T> static void checkDropout(const RowKernels<T> &kernels, int64_t element) {
  std::vector<T> gradient(96, T(3)), probability(96, T(2)), dropped(96, T(2));
  uint64_t threshold = dropoutThreshold(0.4);
  RandomRow random{element, 3, 4, int64_t(77) << 31};
  kernels.dropoutGradient(gradient.data(), probability.data(), 90, T(1), random, threshold, T(10));
  kernels.dropout(dropped.data(), 90, random, threshold, T(10));
  for (int i = 0; i < 90; ++i) {
    bool kept = philoxWord(element + i, 3, 4, random.seed) >= threshold;
    EXPECT_EQ(dropped[i], T(kept ? 20 : 0));
    EXPECT_EQ(probability[i], T(kept ? 20 : 0));
    EXPECT_EQ(gradient[i], T(kept ? 58 : -2));
  }
}

template <typename T> static void checkRows(InstructionSet set, double tolerance) {
  const RowKernels<T> &kernels = rowKernels<T>(set);
  constexpr T infinity = std::numeric_limits<T>::infinity();
  std::vector<T> row;
  for (int i = 0; i < 96; ++i)
    row.push_back(static_cast<T>(-0.9 * i + 1.7));
  row[5] = -infinity;
  EXPECT_EQ(kernels.maximum(row.data(), 96), row[0]);
  std::vector<T> powers = row;
  double sum = 0;
  T found = kernels.exponentiate(powers.data(), 96, T(0.5));
  for (int i = 0; i < 96; ++i) {
    double expected = std::exp(double(row[i] - T(0.5)));
    ASSERT_NEAR(powers[i], expected, tolerance * expected + 1e-38) << row[i];
    sum += expected;
  }
  EXPECT_EQ(powers[5], T(0));
  EXPECT_NEAR(found, sum, 2 * tolerance * sum);

  // Counters on both sides of 2^32, rows that begin inside of one, and the last ones of a short
  // row.
  for (int64_t first : {-20, -19, -18, -17})
    checkDropout(kernels, (int64_t(1) << 34) + first);

  row[17] = std::numeric_limits<T>::quiet_NaN();
  EXPECT_TRUE(std::isnan(kernels.maximum(row.data(), 96)));
  EXPECT_TRUE(std::isnan(kernels.exponentiate(row.data(), 96, T(0))));
  EXPECT_TRUE(std::isnan(row[17]));
}

TEST(BlockKernels, RowsAgreeWithTheMathLibrary) {
  for (InstructionSet set : instructionSets()) {
    checkRows<float>(set, 1.2e-7);
    checkRows<double>(set, 4.5e-16);
  }
}
