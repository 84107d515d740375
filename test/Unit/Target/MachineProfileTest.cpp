//===- MachineProfileTest.cpp - profiles in files and attributes ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Target/Cpu/MachineProfile.h"

#include "mlir/IR/MLIRContext.h"
#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::memopt;

/// A profile in which no rate is the shipped one, and no two are equal.
static MachineProfile makeProfile() {
  MachineProfile profile;
  profile.machine = "a machine";
  profile.threads = 7;
  double factor = 1.5;
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    profile.*rate.field *= factor += 0.37;
  return profile;
}

static void expectEqual(const MachineProfile &a, const MachineProfile &b) {
  EXPECT_EQ(a.machine, b.machine);
  EXPECT_EQ(a.threads, b.threads);
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    EXPECT_EQ(a.*rate.field, b.*rate.field) << rate.key.str();
}

static std::string errorOf(llvm::json::Object object) {
  auto profile = MachineProfile::fromJson(llvm::json::Value(std::move(object)));
  return profile ? "" : llvm::toString(profile.takeError());
}

TEST(MachineProfile, TextGivesTheSameRatesBack) {
  MachineProfile profile = makeProfile();
  std::string text = llvm::formatv("{0:2}", llvm::json::Value(profile.toJson()));
  auto value = llvm::json::parse(text);
  ASSERT_TRUE(static_cast<bool>(value));
  auto again = MachineProfile::fromJson(*value);
  ASSERT_TRUE(static_cast<bool>(again)) << llvm::toString(again.takeError());
  expectEqual(profile, *again);
}

TEST(MachineProfile, AttributesGiveTheSameRatesBack) {
  MLIRContext context;
  expectEqual(MachineProfile::of(nullptr, MachineProfile()), MachineProfile());
  expectEqual(MachineProfile::of(makeProfile().toAttribute(&context), MachineProfile()),
              makeProfile());
}

TEST(MachineProfile, VectorsAndNameOfTheProcessorChooseTheShippedOne) {
  MLIRContext context;
  MachineProfile wide = MachineProfile::getShipped("znver4");
  for (const char *other : {"skylake-avx512", "x86-64-v4", "no-such-one"})
    expectEqual(MachineProfile::getShipped(other), wide);
  MachineProfile tiles = MachineProfile::getShipped("sapphirerapids");
  EXPECT_NE(tiles.machine, wide.machine);
  expectEqual(MachineProfile::getShipped("graniterapids"), tiles);
  EXPECT_NE(MachineProfile::getShipped("znver5").machine, wide.machine);
  MachineProfile zen = MachineProfile::getShipped("znver3");
  MachineProfile narrow = MachineProfile::getShipped("x86-64-v3");
  EXPECT_NE(zen.machine, wide.machine);
  EXPECT_NE(narrow.machine, wide.machine);
  EXPECT_NE(narrow.machine, zen.machine);
  expectEqual(MachineProfile::getShipped("znver2"), zen);
  MachineProfile intel = MachineProfile::getShipped("haswell");
  EXPECT_NE(intel.machine, narrow.machine);
  EXPECT_NE(intel.machine, tiles.machine);
  expectEqual(MachineProfile::getShipped("alderlake"), intel);
  expectEqual(MachineProfile::of(nullptr, narrow), narrow);
  expectEqual(MachineProfile::of(makeProfile().toAttribute(&context), narrow), makeProfile());
}

TEST(MachineProfile, ErrorsNameKeyExpectedAndFound) {
  auto valid = [] { return makeProfile().toJson(); };
  EXPECT_EQ(errorOf(valid()), "");
  llvm::json::Object object = valid();
  object["format"] = "memopt-package";
  EXPECT_EQ(errorOf(std::move(object)),
            "format: expected \"memopt-machine-profile\", found \"memopt-package\"");
  object = valid();
  object["version"] = 2;
  EXPECT_EQ(errorOf(std::move(object)), "version: expected 1, found 2");
  object = valid();
  object["target"] = "cuda";
  EXPECT_EQ(errorOf(std::move(object)), "target: expected \"cpu\", found \"cuda\"");
  object = valid();
  object["threads"] = 0;
  EXPECT_EQ(errorOf(std::move(object)), "threads: expected a count of at least 1, found 0");
  object = valid();
  object.getObject("rates")->erase("cache_bytes");
  EXPECT_EQ(errorOf(std::move(object)),
            "rates.cache_bytes: expected a positive number, found nothing");
  object = valid();
  (*object.getObject("rates"))["cache_bytes"] = -1;
  EXPECT_EQ(errorOf(std::move(object)), "rates.cache_bytes: expected a positive number, found -1");
  object = valid();
  (*object.getObject("rates"))["wings"] = 2;
  EXPECT_EQ(errorOf(std::move(object)), "rates.wings: expected nothing, found 2");
  EXPECT_EQ(llvm::toString(MachineProfile::fromJson(llvm::json::Value(3)).takeError()),
            "machine profile: expected an object, found 3");
}

TEST(MachineProfile, NarrowProductsHaveSpeedsOfTheirOwn) {
  MachineProfile profile;
  profile.narrowMatmulSpeed = 2;
  profile.convertedMatmulSpeed = 0.5;
  profile.narrowConvolutionSpeed = 4;
  profile.convertedConvolutionSpeed = 0.25;
  auto getSeconds = [&](WorkClass workClass, Multiplication multiplication) {
    Work work;
    work.workClass = workClass;
    work.multiplication = multiplication;
    work.operations = 1e12;
    Work nothing = work;
    nothing.operations = 0;
    return profile.getSeconds(work) - profile.getSeconds(nothing);
  };
  auto expectSpeeds = [&](WorkClass workClass, double narrow, double converted) {
    double full = getSeconds(workClass, Multiplication::Full);
    EXPECT_NEAR(full / getSeconds(workClass, Multiplication::Narrow), narrow, 1e-9);
    EXPECT_NEAR(full / getSeconds(workClass, Multiplication::Converted), converted, 1e-9);
  };
  expectSpeeds(WorkClass::Matmul, 2, 0.5);
  for (WorkClass workClass :
       {WorkClass::Convolution, WorkClass::ConvolutionWeight, WorkClass::PointwiseConvolution,
        WorkClass::PointwiseConvolutionWeight, WorkClass::TiledConvolution,
        WorkClass::TiledConvolutionWeight, WorkClass::GroupConvolution})
    expectSpeeds(workClass, 4, 0.25);
  // Attention widens on the way to its own tiles, whatever the processor has.
  expectSpeeds(WorkClass::AttentionForward, 1, 1);
  expectSpeeds(WorkClass::AttentionBackward, 1, 1);
}

/// A convolution of few positions uses each weight rarely, and so takes longer for its operations.
TEST(MachineProfile, ConvolutionsPackTheirWeights) {
  MachineProfile profile;
  profile.convolutionRate = profile.convolutionWeightRate = 1e11;
  profile.weightRate = 1e9;
  profile.weightGradientRate = 5e8;
  profile.convolutionSeconds = 0;
  auto getRate = [&](WorkClass workClass, double positions) {
    Work work;
    work.workClass = workClass;
    work.weights = 1e6;
    work.operations = 2 * positions * work.weights;
    return work.operations / profile.getSeconds(work);
  };
  // 50 positions take as long as the packing, or half as long as that of the gradient.
  EXPECT_NEAR(getRate(WorkClass::Convolution, 50), 5e10, 1);
  EXPECT_NEAR(getRate(WorkClass::ConvolutionWeight, 50), 1e11 / 3, 1);
  EXPECT_NEAR(getRate(WorkClass::Convolution, 5e6), 1e11, 2e6);
  // Where channels come in groups weights are few.
  EXPECT_NEAR(getRate(WorkClass::GroupConvolution, 50), profile.groupConvolutionRate, 1);
  profile = MachineProfile::getDevice();
  profile.convolutionSeconds = 0;
  EXPECT_NEAR(getRate(WorkClass::Convolution, 50), profile.convolutionRate, 1e7);
}

TEST(MachineProfile, FilesOfBeforeConvolutionsHadRatesByTheirTapsAreRead) {
  MachineProfile defaults;
  llvm::json::Object object = defaults.toJson(), &rates = *object.getObject("rates");
  for (const char *kind : {"pointwise", "tiled"})
    for (const char *of : {"", "_weight"})
      EXPECT_TRUE(rates.erase(kind + std::string("_convolution") + of + "_operations_per_second"));
  rates["convolution_operations_per_second"] = 3 * defaults.convolutionRate;
  rates["convolution_weight_operations_per_second"] = 5 * defaults.convolutionWeightRate;
  auto profile = MachineProfile::fromJson(llvm::json::Value(std::move(object)));
  ASSERT_TRUE(static_cast<bool>(profile)) << llvm::toString(profile.takeError());
  EXPECT_DOUBLE_EQ(profile->pointwiseConvolutionRate, profile->convolutionRate);
  EXPECT_DOUBLE_EQ(profile->pointwiseConvolutionWeightRate, profile->convolutionWeightRate);
  EXPECT_DOUBLE_EQ(profile->tiledConvolutionRate, 3 * defaults.tiledConvolutionRate);
  EXPECT_DOUBLE_EQ(profile->tiledConvolutionWeightRate, 5 * defaults.tiledConvolutionWeightRate);
}

TEST(MachineProfile, FilesOfBeforeNarrowSpeedsAreRead) {
  llvm::json::Object object = makeProfile().toJson();
  object.getObject("rates")->erase("converted_matmul_speed");
  object.getObject("rates")->erase("convolution_weights_per_second");
  auto profile = MachineProfile::fromJson(llvm::json::Value(std::move(object)));
  ASSERT_TRUE(static_cast<bool>(profile)) << llvm::toString(profile.takeError());
  EXPECT_EQ(profile->convertedMatmulSpeed, MachineProfile().convertedMatmulSpeed);
  EXPECT_EQ(profile->narrowMatmulSpeed, makeProfile().narrowMatmulSpeed);
}
