//===- ConvolutionTest.cpp - convolution calls against plain loops ----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LibraryCallTesting.h"
#include "memopt-runtime/kernels/own/BlockKernels.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <array>
#include <cmath>
#include <cstdlib>
#include <random>
#include <sys/mman.h>

using namespace memopt;
using namespace memopt::libraries;
using namespace memopt::librarytest;
using nlohmann::json;

namespace {

using Extents = std::vector<int64_t>;

struct Case {
  const char *name;
  int64_t images, inputs, outputs, groups;
  Extents input, taps, strides, lower, upper, dilations;

  Extents output() const {
    Extents extents;
    for (size_t i = 0; i < input.size(); ++i)
      extents.push_back(
          (input[i] + lower[i] + upper[i] - dilations[i] * (taps[i] - 1) - 1) / strides[i] + 1);
    return extents;
  }
};

const Case cases[] = {
    {"1x1", 2, 32, 48, 1, {7, 9}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {"1x1 strided", 2, 32, 48, 1, {8, 9}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
    {"3x3", 2, 16, 32, 1, {10, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"3x3 strided", 3, 32, 16, 1, {11, 10}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {"3x3 dilated", 1, 16, 16, 1, {12, 12}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}},
    {"3x3 dilated and strided", 2, 5, 7, 1, {12, 13}, {3, 3}, {2, 3}, {2, 1}, {2, 1}, {2, 2}},
    {"stem", 2, 3, 64, 1, {24, 24}, {7, 7}, {2, 2}, {3, 3}, {3, 3}, {1, 1}},
    {"one channel", 2, 1, 8, 1, {16, 16}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"odd channels", 2, 5, 7, 1, {9, 8}, {3, 2}, {1, 1}, {1, 0}, {1, 0}, {1, 1}},
    {"asymmetric padding", 2, 8, 8, 1, {9, 8}, {4, 3}, {1, 1}, {1, 2}, {2, 0}, {1, 1}},
    {"stem with little padding", 1, 3, 8, 1, {11, 12}, {5, 4}, {2, 1}, {1, 0}, {0, 2}, {1, 1}},
    {"patches", 2, 3, 24, 1, {16, 16}, {4, 4}, {4, 4}, {0, 0}, {0, 0}, {1, 1}},
    {"stride beyond taps", 1, 4, 8, 1, {13, 13}, {2, 2}, {5, 4}, {0, 0}, {0, 0}, {1, 1}},
    {"part of the input unread", 1, 4, 4, 1, {8, 8}, {3, 3}, {4, 4}, {0, 0}, {0, 0}, {1, 1}},
    {"groups", 2, 24, 36, 3, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"32 groups", 1, 128, 128, 32, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise", 2, 24, 24, 24, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise strided", 2, 16, 16, 16, {9, 9}, {5, 5}, {2, 2}, {2, 2}, {2, 2}, {1, 1}},
    {"depthwise, two filters", 1, 6, 12, 6, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise, one filter of two channels",
     1,
     12,
     6,
     6,
     {9, 9},
     {3, 3},
     {1, 2},
     {1, 1},
     {1, 1},
     {1, 1}},
    {"depthwise 5x5", 2, 40, 40, 40, {7, 6}, {5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}},
    {"depthwise, dilated and strided",
     1,
     20,
     20,
     20,
     {14, 13},
     {3, 2},
     {3, 2},
     {2, 1},
     {2, 0},
     {2, 3}},
    {"depthwise, stride beyond taps",
     1,
     18,
     18,
     18,
     {11, 12},
     {2, 2},
     {3, 3},
     {0, 0},
     {0, 0},
     {1, 1}},
    {"1x1 strided, few channels", 1, 12, 16, 1, {16, 16}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
    {"1x1 strided, 3 channels", 3, 3, 32, 1, {32, 9}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
    {"taps in padding alone", 2, 5, 16, 1, {16, 2}, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise, wide", 1, 70, 70, 70, {3, 450}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise, one column", 2, 17, 17, 17, {9, 1}, {3, 1}, {1, 1}, {1, 0}, {1, 0}, {1, 1}},
    {"depthwise, all padding", 1, 16, 16, 16, {2, 2}, {1, 1}, {4, 4}, {3, 3}, {3, 3}, {1, 1}},
    {"groups of 2", 2, 28, 28, 14, {6, 7}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"groups of 4", 1, 36, 36, 9, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"groups of 8", 1, 48, 48, 6, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"groups of 3 and 2", 2, 12, 8, 4, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"1d", 2, 12, 20, 1, {31}, {5}, {2}, {2}, {2}, {1}},
    {"1d depthwise", 2, 10, 10, 10, {21}, {4}, {1}, {3}, {0}, {1}},
    {"3d", 1, 8, 12, 1, {5, 6, 7}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {"whole image", 4, 16, 40, 1, {6, 6}, {6, 6}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {"many pixels, few weights", 4, 4, 6, 1, {40, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"1x1 of many pixels", 3, 33, 50, 1, {9, 11}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
};

/// Large enough that 3 x 3 taps are taken in tiles.
const Case tiledCases[] = {
    {"tiles", 2, 19, 37, 1, {98, 97}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"tiles, more padding than taps",
     2,
     33,
     18,
     1,
     {90, 117},
     {3, 3},
     {1, 1},
     {3, 0},
     {0, 4},
     {1, 1}},
    {"tiles of many channels", 6, 300, 390, 1, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
};

const char *const directions[] = {"convolution_forward", "convolution_backward_data",
                                  "convolution_backward_weights"};

Extents shape(int64_t first, int64_t second, const Extents &rest) {
  Extents extents = {first, second};
  extents.insert(extents.end(), rest.begin(), rest.end());
  return extents;
}

int64_t volume(const Extents &extents) {
  int64_t product = 1;
  for (int64_t extent : extents)
    product *= extent;
  return product;
}

json describe(const Case &c, int direction, const char *type, const char *layout, bool reference,
              bool bias) {
  return {{"kind", directions[direction]},
          {"dtype", type},
          {"layout", layout},
          {"input", shape(c.images, c.inputs, c.input)},
          {"output", shape(c.images, c.outputs, c.output())},
          {"weight", shape(c.outputs, c.inputs / c.groups, c.taps)},
          {"strides", c.strides},
          {"padding_lower", c.lower},
          {"padding_upper", c.upper},
          {"dilations", c.dilations},
          {"groups", c.groups},
          {"bias", bias},
          {"reference", reference}};
}

/// Place of (image, channel, pixel) in an activation.
int64_t place(bool last, int64_t channels, int64_t pixels, int64_t image, int64_t channel,
              int64_t pixel) {
  return last ? (image * pixels + pixel) * channels + channel
              : (image * channels + channel) * pixels + pixel;
}

template <typename T> struct Data {
  std::vector<T> x, w, y;
  std::vector<Wide<T>> bias;
  explicit Data(const Case &c)
      : x(randomValues<T>(c.images * c.inputs * volume(c.input), 1)),
        w(randomValues<T>(c.outputs * (c.inputs / c.groups) * volume(c.taps), 2)),
        y(randomValues<T>(c.images * c.outputs * volume(c.output()), 4)),
        bias(randomValues<Wide<T>>(c.outputs, 3)) {}

  std::vector<Buffer> buffers(int direction, bool withBias) const {
    if (direction == 1)
      return {Buffer::of(y), Buffer::of(w), Buffer::of(x)};
    if (direction == 2)
      return {Buffer::of(x), Buffer::of(y), Buffer::of(w)};
    std::vector<Buffer> list = {Buffer::of(x), Buffer::of(w)};
    if (withBias)
      list.push_back(Buffer::of(bias));
    list.push_back(Buffer::of(y));
    return list;
  }
};

/// One loop nest for the three directions: every product x * w * y goes where it belongs.
template <typename T>
void convolve(const Case &c, const Data<T> &data, int direction, bool last, bool bias,
              std::vector<double> &result, std::vector<double> &scale) {
  const std::vector<T> &like = direction == 0 ? data.y : direction == 1 ? data.x : data.w;
  result.assign(like.size(), 0);
  scale.assign(like.size(), 1);
  Extents output = c.output();
  int64_t pixels = volume(output), inputPixels = volume(c.input), taps = volume(c.taps);
  int64_t groupInputs = c.inputs / c.groups, groupOutputs = c.outputs / c.groups;
  for (int64_t pixel = 0; pixel < pixels; ++pixel)
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t from = 0, step = 1, p = pixel, t = tap;
      bool inside = true;
      for (size_t i = output.size(); i-- > 0;) {
        int64_t at = p % output[i] * c.strides[i] - c.lower[i] + t % c.taps[i] * c.dilations[i];
        inside &= at >= 0 && at < c.input[i];
        from += at * step;
        step *= c.input[i], p /= output[i], t /= c.taps[i];
      }
      if (!inside)
        continue;
      for (int64_t n = 0; n < c.images; ++n)
        for (int64_t k = 0; k < c.outputs; ++k)
          for (int64_t ci = 0; ci < groupInputs; ++ci) {
            int64_t channel = k / groupOutputs * groupInputs + ci;
            int64_t x = place(last, c.inputs, inputPixels, n, channel, from);
            int64_t w = (k * groupInputs + ci) * taps + tap;
            int64_t y = place(last, c.outputs, pixels, n, k, pixel);
            double term = direction == 0   ? double(data.x[x]) * data.w[w]
                          : direction == 1 ? double(data.y[y]) * data.w[w]
                                           : double(data.x[x]) * data.y[y];
            int64_t target = direction == 0 ? y : direction == 1 ? x : w;
            result[target] += term;
            scale[target] += std::abs(term);
          }
    }
  if (bias)
    for (int64_t n = 0; n < c.images; ++n)
      for (int64_t k = 0; k < c.outputs; ++k)
        for (int64_t pixel = 0; pixel < pixels; ++pixel)
          result[place(last, c.outputs, pixels, n, k, pixel)] += data.bias[k];
}

/// The result has elements of type R.
template <typename T, typename R = T>
void check(const Case &c, int direction, const char *type, bool reference, double tolerance) {
  for (bool last : {true, false})
    for (bool bias : {false, true}) {
      if (bias && direction != 0)
        continue;
      SCOPED_TRACE(std::string(c.name) + " " + directions[direction] + " " + type +
                   (last ? " nhwc" : " nchw") + (reference ? " reference" : ""));
      Data<T> data(c);
      std::vector<Buffer> buffers = data.buffers(direction, bias);
      json descriptor = describe(c, direction, type, last ? "nhwc" : "nchw", reference, bias);
      if (!std::is_same_v<T, R>) {
        descriptor["result_dtype"] = "f32";
        buffers.back() = Buffer(4 * static_cast<int64_t>(buffers.back().values<T>().size()));
      }
      std::string implementation = runCall(descriptor, buffers);
      SCOPED_TRACE(implementation);
      EXPECT_EQ(implementation.find("ref"), std::string::npos);
      EXPECT_EQ(implementation.find("gemm:"), std::string::npos);
      std::vector<double> expected, scale;
      convolve(c, data, direction, last, bias, expected, scale);
      std::vector<R> found = buffers.back().template values<R>();
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_LE(std::abs(found[i] - expected[i]),
                  withRounding<R>(tolerance * scale[i], expected[i]))
            << "element " << i;
    }
}

} // namespace

TEST(Convolution, AgreesWithPlainLoops) {
  for (const Case &c : cases)
    for (int direction = 0; direction < 3; ++direction) {
      check<float>(c, direction, "f32", false, 1e-6);
      check<float>(c, direction, "f32", true, 6e-8);
      check<double>(c, direction, "f64", false, 4e-15);
    }
  for (const Case &c : tiledCases)
    for (int direction = 0; direction < 3; ++direction)
      check<float>(c, direction, "f32", false, 1e-6);
}

/// Vectors are longer than pixels here.
TEST(Convolution, FewChannels) {
  for (int64_t inputs : {1, 2, 4, 7})
    for (int64_t outputs : {1, 9})
      for (int64_t taps : {1, 3})
        for (int64_t stride : {1, 2})
          for (const Extents &image : {Extents{12, 8}, Extents{14, 14}, Extents{7, 5}}) {
            Case c = {"few channels",   2,  inputs, outputs, 1, image, {taps, taps},
                      {stride, stride}, {}, {},     {}};
            c.lower = c.upper = {taps / 2, taps / 2};
            c.dilations = {1, 1};
            SCOPED_TRACE(testing::Message() << inputs << " to " << outputs << " channels, " << taps
                                            << " taps, stride " << stride << ", " << image[0]);
            for (int direction = 0; direction < 3; ++direction)
              check<float>(c, direction, "f32", false, 1e-6);
          }
}

/// Sums of 16-bit numbers are as exact as those of others; what is stored is rounded once.
TEST(Convolution, RoundsHalvesOnce) {
  for (const Case &c : cases)
    for (int direction = 0; direction < 3; ++direction) {
      check<BFloat16>(c, direction, "bf16", false, 1e-6);
      check<BFloat16, float>(c, direction, "bf16", false, 1e-6);
      check<Float16>(c, direction, "f16", false, 1e-6);
      check<Float16, float>(c, direction, "f16", false, 1e-6);
    }
}

static void checkThreads(const Case &c) {
  for (int direction = 0; direction < 3; ++direction)
    for (const char *layout : {"nhwc", "nchw"}) {
      std::vector<std::vector<char>> results;
      for (int threads : {1, 2, 5}) {
        std::vector<Buffer> buffers = Data<float>(c).buffers(direction, false);
        runCall(describe(c, direction, "f32", layout, false, false), buffers, 4, threads);
        results.push_back(buffers.back().values<char>());
      }
      EXPECT_TRUE(results[0] == results[1] && results[0] == results[2])
          << c.name << " " << directions[direction] << " " << layout;
    }
}

TEST(Convolution, SameBitsOnAnyNumberOfThreads) {
  for (const Case &c : cases)
    checkThreads(c);
  for (const Case &c : tiledCases)
    checkThreads(c);
}

/// Tiles need scratch for their points. With less of it they take longer and give the same bits.
TEST(Convolution, TilesWithinAnyWorkspaceGiveTheSameBits) {
  for (const Case &c : tiledCases)
    for (int direction = 0; direction < 3; ++direction) {
      json descriptor = describe(c, direction, "f32", "nhwc", false, direction == 0);
      auto fastest = LibraryCall::create(descriptor, 3);
      ASSERT_TRUE(fastest.isOk()) << fastest.getMessage();
      SCOPED_TRACE(std::string(c.name) + " " + directions[direction]);
      std::vector<Buffer> expected = Data<float>(c).buffers(direction, direction == 0);
      runCall(**fastest, expected);
      EXPECT_EQ((*fastest)->getSlowdown(), 1);
      int64_t bytes = (*fastest)->workspaceBytes();
      int found = 0;
      for (double slowdown = 1; bytes > 0; ++found) {
        descriptor["workspace_limit"] = bytes - 1;
        auto lean = LibraryCall::create(descriptor, 3);
        if (!lean.isOk()) {
          EXPECT_NE(lean.getMessage().find("no way that gives the same bits"), std::string::npos);
          break;
        }
        ASSERT_LT((*lean)->workspaceBytes(), bytes);
        EXPECT_GE((*lean)->getSlowdown(), slowdown);
        bytes = (*lean)->workspaceBytes();
        slowdown = (*lean)->getSlowdown();
        std::vector<Buffer> buffers = Data<float>(c).buffers(direction, direction == 0);
        runCall(**lean, buffers);
        EXPECT_EQ(buffers.back().values<char>(), expected.back().values<char>()) << bytes;
      }
      EXPECT_GT(found, 2);
      EXPECT_LT(bytes, (*fastest)->workspaceBytes() / 2);
    }
}

static bool isInTiles(const Case &c, int direction, const char *type, const char *layout) {
  auto call = LibraryCall::create(describe(c, direction, type, layout, false, false), 2);
  return call.isOk() && (*call)->implementation().find("/winograd") != std::string::npos;
}

TEST(Convolution, TilesAreForLargeDenseFiltersOf3x3Taps) {
  for (int direction = 0; direction < 3; ++direction) {
    for (const Case &c : cases)
      EXPECT_FALSE(isInTiles(c, direction, "f32", "nhwc")) << c.name;
    for (const Case &c : tiledCases) {
      EXPECT_TRUE(isInTiles(c, direction, "f32", "nhwc")) << c.name;
      EXPECT_FALSE(isInTiles(c, direction, "f32", "nchw")) << c.name;
      EXPECT_FALSE(isInTiles(c, direction, "f64", "nhwc")) << c.name;
      EXPECT_FALSE(isInTiles(c, direction, "bf16", "nhwc")) << c.name;
    }
    for (Extents Case::*changed : {&Case::strides, &Case::dilations}) {
      Case other = tiledCases[0];
      other.*changed = {1, 2};
      EXPECT_FALSE(isInTiles(other, direction, "f32", "nhwc"));
    }
  }
}

/// Where oneDNN has no code for narrow groups, copies of its activations would be what a plan is as
/// high as.
TEST(Convolution, NarrowGroupsNeedLittleWorkspace) {
  const Case large = {"", 16, 240, 240, 240, {14, 14}, {5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}};
  for (int direction = 0; direction < 3; ++direction)
    for (const char *layout : {"nhwc", "nchw"}) {
      auto call = LibraryCall::create(describe(large, direction, "f32", layout, false, false), 2);
      ASSERT_TRUE(call.isOk()) << call.getMessage();
      EXPECT_LE((*call)->workspaceBytes(), 256 << 10) << directions[direction] << " " << layout;
    }
  for (const char *type : {"f32", "f64", "bf16"}) {
    auto call = LibraryCall::create(describe(large, 2, type, "nhwc", false, false), 2);
    ASSERT_TRUE(call.isOk()) << call.getMessage();
    EXPECT_NE((*call)->implementation().find("+groups"), std::string::npos);
  }
}

/// oneDNN's gradients of filters for AVX2 take twice the time of its other directions.
TEST(Convolution, GradientsOfFiltersRunOnOurKernelsWithAvx2) {
  if (instructionSet() != InstructionSet::Avx2)
    GTEST_SKIP() << "for processors with AVX2 and no more";
  const Case dense = {"", 2, 16, 32, 1, {10, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  auto call = LibraryCall::create(describe(dense, 2, "f32", "nhwc", false, false), 2);
  ASSERT_TRUE(call.isOk()) << call.getMessage();
  EXPECT_EQ((*call)->implementation(), "memopt:avx2");
}

TEST(Convolution, OneTapIsAProductWithAvx2) {
  if (instructionSet() != InstructionSet::Avx2)
    GTEST_SKIP() << "for processors with AVX2 and no more";
  Case tap = {"", 2, 16, 32, 1, {10, 8}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}};
  auto implementation = [&](int direction) {
    auto call = LibraryCall::create(describe(tap, direction, "f32", "nhwc", false, false), 2);
    return call.isOk() ? (*call)->implementation() : call.getMessage();
  };
  for (int direction : {0, 1, 2})
    EXPECT_EQ(implementation(direction), "memopt:avx2");
  tap.images = 1; // so few rows that oneDNN's weights are packed for it once
  EXPECT_NE(implementation(0), "memopt:avx2");
  tap.images = 2;
  tap.strides = {2, 2};
  EXPECT_NE(implementation(0), "memopt:avx2");
}

/// Says on stderr what runs a convolution under a limit of instructions, and ends the process.
static void sayImplementation(const char *limit) {
  ::setenv("MEMOPT_MAX_ISA", limit, 1);
  const Case dense = {"", 2, 16, 32, 1, {10, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  auto call = LibraryCall::create(describe(dense, 0, "f32", "nhwc", false, false), 2);
  std::fputs(call.isOk() ? (*call)->implementation().c_str() : call.getMessage().c_str(), stderr);
  std::exit(0);
}

TEST(InstructionLimitDeathTest, HoldsOneDnnToAvx2) {
  // The process that the test begins runs this body again, and reads the variable once: not here.
  if (!__builtin_cpu_supports("avx2"))
    GTEST_SKIP() << "for processors with AVX2";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(sayImplementation("avx2"), ::testing::ExitedWithCode(0), "avx2$");
}

TEST(InstructionLimitDeathTest, RefusesOthers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(sayImplementation("avx3"), ::testing::ExitedWithCode(0),
              "MEMOPT_MAX_ISA: the only limit is 'avx2'");
}

TEST(Convolution, RefusesBadDescriptors) {
  json good = describe(cases[2], 0, "f32", "nhwc", false, false);
  EXPECT_EQ(refusal(good), "");
  auto with = [&](const char *key, const json &value) {
    json changed = good;
    changed[key] = value;
    std::string message = refusal(changed), prefix = "library call 'convolution_forward': ";
    EXPECT_EQ(message.substr(0, prefix.size()), prefix);
    return message.substr(std::min(message.size(), prefix.size()));
  };
  EXPECT_EQ(with("output", {2, 32, 10, 9}), "spatial dimension 1 of 'output' must be 8, found 9");
  EXPECT_EQ(with("output", {1, 32, 10, 8}), "'input' has a batch of 2, 'output' of 1");
  EXPECT_EQ(with("groups", 3), "'groups' must divide the channels of 'input' and 'output'");
  EXPECT_EQ(with("groups", 2), "'weight' must begin with 32, 8, found 32, 16");
  EXPECT_EQ(with("strides", {0, 1}),
            "'strides' must be a list of 2 integers from 1 to 2^48, found [0,1]");
  EXPECT_EQ(with("layout", "chwn"), "'layout' must be one of 'nhwc', 'nchw', found \"chwn\"");
  EXPECT_EQ(with("input", {2, 16}), "'input' must have 1 to 3 spatial dimensions behind batch and "
                                    "channels, found 2 dimensions in all");
  EXPECT_EQ(with("bias", 1), "'bias' must be true or false, found 1");
  EXPECT_EQ(with("post", "gelu"), "'post' must be one of '', 'relu', found \"gelu\"");
  json backward = describe(cases[2], 1, "f32", "nhwc", false, true);
  EXPECT_EQ(refusal(backward),
            "library call 'convolution_backward_data': 'bias' belongs to convolution_forward only");
  backward["bias"] = false;
  backward["accumulate"] = true;
  EXPECT_EQ(refusal(backward), "library call 'convolution_backward_data': 'accumulate' belongs to "
                               "convolution_backward_weights only");
  backward["accumulate"] = false;
  backward["post"] = "relu";
  EXPECT_EQ(refusal(backward),
            "library call 'convolution_backward_data': 'post' belongs to convolution_forward only");
}

/// Gradients are added to what another buffer holds, or the result's own, with the bits of adding
/// them afterwards.
template <typename T, typename R = T> void checkAccumulation(const Case &c, const char *type) {
  for (bool last : {true, false})
    for (bool reference : {false, true}) {
      SCOPED_TRACE(std::string(c.name) + " " + type + (last ? " nhwc" : " nchw") +
                   (reference ? " reference" : ""));
      Data<T> data(c);
      json descriptor = describe(c, 2, type, last ? "nhwc" : "nchw", reference, false);
      if (!std::is_same_v<T, R>)
        descriptor["result_dtype"] = "f32";
      std::vector<R> addend = randomValues<R>(static_cast<int64_t>(data.w.size()), 5);
      std::vector<Buffer> plain = {Buffer::of(data.x), Buffer::of(data.y), Buffer::of(addend)};
      SCOPED_TRACE(runCall(descriptor, plain));
      descriptor["accumulate"] = true;
      std::vector<Buffer> apart = {Buffer::of(data.x), Buffer::of(data.y), Buffer::of(addend),
                                   Buffer::of(data.w)};
      if (!std::is_same_v<T, R>)
        apart.back() = Buffer(static_cast<int64_t>(addend.size() * sizeof(R)));
      runCall(descriptor, apart);
      std::vector<R> expected = plain.back().template values<R>(), found;
      for (size_t i = 0; i < expected.size(); ++i)
        expected[i] = R(Wide<R>(expected[i]) + Wide<R>(addend[i]));
      found = apart.back().template values<R>();
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_EQ(double(found[i]), double(expected[i])) << "element " << i;
      std::vector<Buffer> inPlace = {Buffer::of(data.x), Buffer::of(data.y), Buffer::of(addend)};
      runInPlace(descriptor, inPlace);
      ASSERT_EQ(inPlace.back().template values<char>(), apart.back().template values<char>());
    }
}

TEST(Convolution, AddsGradientsOfWeights) {
  for (const Case &c : cases) {
    checkAccumulation<float>(c, "f32");
    checkAccumulation<double>(c, "f64");
    checkAccumulation<BFloat16, float>(c, "bf16");
  }
  for (const Case &c : tiledCases)
    checkAccumulation<float>(c, "f32");
}

/// Weights that one call packs and another one reads give the bits of a call that packs for itself.
template <typename T>
void checkPacking(const Case &c, int direction, const char *type, int &packed) {
  for (bool last : {true, false}) {
    SCOPED_TRACE(std::string(c.name) + " " + directions[direction] + " " + type +
                 (last ? " nhwc" : " nchw"));
    json descriptor = describe(c, direction, type, last ? "nhwc" : "nchw", false, direction == 0);
    auto call = LibraryCall::create(descriptor, 2);
    ASSERT_TRUE(call.isOk()) << call.getMessage();
    int64_t bytes = (*call)->packedWeightBytes();
    if (bytes == 0)
      continue;
    ++packed;
    Data<T> data(c);
    std::vector<Buffer> plain = data.buffers(direction, direction == 0), ready = plain;
    runCall(**call, plain);
    descriptor["packed"] = bytes;
    json packing = descriptor;
    packing["for"] = packing["kind"];
    packing["kind"] = "pack_weights";
    std::vector<Buffer> weights = {Buffer::of(data.w), Buffer(bytes)};
    runCall(packing, weights);
    ready[1] = std::move(weights[1]);
    EXPECT_EQ(runCall(descriptor, ready), (*call)->implementation());
    EXPECT_EQ(plain.back().template values<char>(), ready.back().template values<char>());
    auto reader = LibraryCall::create(descriptor, 2);
    ASSERT_TRUE(reader.isOk());
    EXPECT_EQ((*reader)->packedWeightBytes(), 0);
    EXPECT_LE((*reader)->workspaceBytes(), (*call)->workspaceBytes());
    // A limit of the workspace has no part in how weights lie.
    descriptor["workspace_limit"] = (*reader)->workspaceBytes() - 1;
    if (LibraryCall::create(descriptor, 2).isOk()) {
      std::vector<Buffer> lean = ready;
      runCall(descriptor, lean);
      EXPECT_EQ(plain.back().template values<char>(), lean.back().template values<char>());
    }
    descriptor.erase("workspace_limit");
    descriptor["packed"] = bytes + 4;
    EXPECT_EQ(refusal(descriptor),
              "library call: 'packed' must be the bytes of the weights as the library reads them "
              "here, " +
                  std::to_string(bytes) + ", found " + std::to_string(bytes + 4));
  }
}

TEST(Convolution, ReadsPackedWeights) {
  int packed = 0;
  for (const Case &c : cases)
    for (int direction : {0, 1}) {
      checkPacking<float>(c, direction, "f32", packed);
      checkPacking<BFloat16>(c, direction, "bf16", packed);
    }
  for (const Case &c : tiledCases)
    for (int direction : {0, 1})
      checkPacking<float>(c, direction, "f32", packed);
  EXPECT_GT(packed, 0);
  json weights = describe(cases[2], 2, "f32", "nhwc", false, false);
  weights["packed"] = 64;
  EXPECT_EQ(refusal(weights), "library call 'convolution_backward_weights': 'packed' belongs to "
                              "calls that read weights only");
  weights["kind"] = "pack_weights";
  EXPECT_NE(refusal(weights).find("'for'"), std::string::npos) << refusal(weights);
  json reference = describe(cases[2], 0, "f32", "nhwc", true, false);
  reference["packed"] = 64;
  EXPECT_EQ(refusal(reference), "library call: 'packed' must be the bytes of the weights as the "
                                "library reads them here, 0, found 64");
}

/// A copy of `bytes` between pages that nobody may touch, the one behind it at its end or the one
/// in front of it at its beginning. The process that runs the call ends with it.
static char *fence(const std::vector<char> &bytes, bool atEnd) {
  constexpr size_t page = 4096, line = 64;
  size_t room = (bytes.size() + page - 1) / page * page;
  char *begin = static_cast<char *>(::mmap(nullptr, room + 2 * page, PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) +
                page;
  ::mprotect(begin, room, PROT_READ | PROT_WRITE);
  if (atEnd)
    begin += room - (bytes.size() + line - 1) / line * line;
  std::copy(bytes.begin(), bytes.end(), begin);
  return begin;
}

template <typename T>
static void runFenced(const Case &c, int direction, const char *type, bool atEnd) {
  json descriptor = describe(c, direction, type, "nhwc", /*reference=*/false, /*bias=*/false);
  auto run = [&] {
    auto call = LibraryCall::create(descriptor, 1);
    auto pool = ThreadPool::create(1, (*call)->getTeam());
    std::vector<void *> addresses;
    for (Buffer &buffer : Data<T>(c).buffers(direction, false))
      addresses.push_back(fence(buffer.values<char>(), atEnd));
    addresses.push_back(fence(std::vector<char>((*call)->workspaceBytes()), atEnd));
    std::exit((*call)->run(addresses.data(), **pool).isOk() ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "")
      << c.name << " " << directions[direction] << " " << type << (atEnd ? ", end" : ", beginning");
}

static Case drawCase(std::mt19937 &random) {
  auto draw = [&](auto... values) {
    int64_t all[] = {values...};
    return all[random() % std::size(all)];
  };
  int64_t groups = draw(1, 1, 1, 2, 4), taps = draw(1, 1, 2, 3, 5), stride = draw(1, 2, 2, 3),
          padding = draw(0, 0, 1), dilation = taps > 1 ? draw(1, 1, 1, 2) : 1,
          span = dilation * (taps - 1) + 1;
  auto drawExtent = [&] {
    return std::max<int64_t>(1, span - 2 * padding) + draw(0, 1, 6, 13, 20);
  };
  Case c = {"drawn",
            draw(1, 1, 2, 3),
            groups * draw(1, 3, 4, 7, 8, 12, 15, 16, 17, 24, 32),
            groups * draw(1, 4, 7, 8, 16, 17, 24),
            groups,
            {},
            {taps, taps},
            {stride, stride},
            {padding, padding},
            {padding, padding},
            {dilation, dilation}};
  c.input = {drawExtent(), drawExtent()};
  return c;
}

/// runCall sees what writes beside a buffer, and what reads what it has not written. Of oneDNN's
/// code some does for few channels on several threads, or for taps that meet nothing.
TEST(Convolution, DrawnOnesStayInTheirBuffers) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    Case c = drawCase(random);
    for (int direction = 0; direction < 3; ++direction) {
      json descriptor = describe(c, direction, i % 4 == 3 ? "bf16" : "f32", "nhwc", false, false);
      SCOPED_TRACE(descriptor.dump());
      std::vector<Buffer> buffers = i % 4 == 3 ? Data<BFloat16>(c).buffers(direction, false)
                                               : Data<float>(c).buffers(direction, false);
      runCall(descriptor, buffers, /*createdFor=*/4, /*running=*/2);
    }
  }
}

TEST(Convolution, ReadsNothingBehindItsBuffers) {
  for (const Case &c : cases)
    for (int direction = 0; direction < 3; ++direction) {
      runFenced<float>(c, direction, "f32", /*atEnd=*/true);
      runFenced<BFloat16>(c, direction, "bf16", /*atEnd=*/true);
    }
  for (const Case &c : tiledCases)
    for (int direction = 0; direction < 3; ++direction)
      for (bool atEnd : {true, false})
        runFenced<float>(c, direction, "f32", atEnd);
}

/// oneDNN's code for dilated gradients of weights in bf16 is not taken, for it reads rows in front
/// of its scratchpad and behind it: found where the scratchpad was at an arena's end.
TEST(Convolution, ReadsNoRowsBesideItsScratchpad) {
  const Case dilated[] = {
      {"by 2", 4, 16, 8, 2, {24, 40}, {5, 5}, {1, 1}, {4, 4}, {4, 4}, {2, 2}},
      {"by 3", 8, 80, 4, 2, {21, 34}, {3, 2}, {1, 1}, {2, 1}, {2, 1}, {3, 3}},
      {"in front", 1, 48, 2, 2, {40, 43}, {3, 3}, {1, 1}, {3, 1}, {3, 1}, {3, 3}}};
  for (const Case &c : dilated)
    for (bool atEnd : {true, false})
      runFenced<BFloat16>(c, 2, "bf16", atEnd);
}

static void checkRelu(const Case &c) {
  for (bool last : {true, false}) {
    SCOPED_TRACE(std::string(c.name) + (last ? " nhwc" : " nchw"));
    Data<float> data(c);
    data.bias[0] = std::numeric_limits<float>::quiet_NaN();
    json descriptor =
        describe(c, 0, "f32", last ? "nhwc" : "nchw", /*reference=*/true, /*bias=*/true);
    std::vector<Buffer> plain = data.buffers(0, true), rectified = data.buffers(0, true);
    runCall(descriptor, plain);
    descriptor["post"] = "relu";
    descriptor["reference"] = false; // which has none of oneDNN's code for it either
    runCall(descriptor, rectified);
    std::vector<float> before = plain.back().values<float>();
    std::vector<float> after = rectified.back().values<float>();
    for (size_t i = 0; i < after.size(); ++i)
      if (std::isnan(before[i]))
        ASSERT_TRUE(std::isnan(after[i])) << "element " << i;
      else
        ASSERT_NEAR(after[i], std::max(before[i], 0.0f), 1e-3f) << "element " << i;
  }
}

TEST(Convolution, ReluKeepsNaN) {
  for (const Case &c : cases)
    checkRelu(c);
  for (const Case &c : tiledCases)
    checkRelu(c);
}
