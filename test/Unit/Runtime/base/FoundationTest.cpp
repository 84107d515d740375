//===- FoundationTest.cpp - status, threads, elements, random numbers, schedules -===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/numbers/DType.h"
#include "memopt-runtime/numbers/Random.h"
#include "memopt-runtime/session/LearningRate.h"
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

using namespace memopt;

static StatusOr<int> halve(int number) {
  if (number % 2)
    return badInput(std::to_string(number) + " is odd");
  return number / 2;
}

static StatusOr<int> quarter(int number) {
  MEMOPT_ASSIGN_OR_RETURN(int half, halve(number));
  return halve(half);
}

TEST(ClockTest, WhoDoesNotRunDoesNotWait) {
  using std::chrono::milliseconds;
  Waiting suspended;
  std::this_thread::sleep_for(milliseconds(400)); // as long as a job is stopped, nobody looks
  double seconds = suspended.getSeconds();
  EXPECT_GT(seconds, 0.09);
  EXPECT_LT(seconds, 0.11);
  Waiting patient;
  for (int look = 0; look < 10; ++look) {
    std::this_thread::sleep_for(milliseconds(20));
    (void)patient.getSeconds();
  }
  EXPECT_GE(patient.getSeconds(), 0.2);
}

TEST(StatusTest, FailuresGatherContextOnTheWayUp) {
  EXPECT_EQ(*quarter(12), 3);
  StatusOr<int> failed = quarter(6);
  ASSERT_FALSE(failed.isOk());
  Status status = failed.takeStatus().withContext("a").withContext("b");
  EXPECT_EQ(status.getMessage(), "b: a: 3 is odd");
  EXPECT_EQ(status.getCode(), StatusCode::BadInput);
  EXPECT_TRUE(Status::ok().withContext("nothing").isOk());
}

TEST(DTypeTest, SizesThatOverflowAreRefused) {
  EXPECT_EQ(*getTensorBytes(DType::F32, {2, 3}), 24);
  EXPECT_EQ(*getTensorBytes(DType::I64, {}), 8);
  EXPECT_EQ(*getTensorBytes(DType::F32, {0, 5}), 0);
  EXPECT_FALSE(getTensorBytes(DType::F32, {int64_t(1) << 62, 2}).isOk());
  EXPECT_FALSE(getTensorBytes(DType::F32, {int64_t(1) << 62, 2, 0}).isOk());
  EXPECT_FALSE(getTensorBytes(DType::F32, {-1}).isOk());
}

TEST(DTypeTest, OnlyLosslessConversionsAreDone) {
  int64_t wide[] = {-1, 300};
  int32_t narrow[2];
  EXPECT_TRUE(convertElements(DType::I64, wide, DType::I32, narrow, 2).isOk());
  EXPECT_EQ(narrow[1], 300);
  uint8_t bytes[2];
  EXPECT_EQ(convertElements(DType::I64, wide + 1, DType::U8, bytes, 1).getMessage(),
            "element 0 is 300.000000, which u8 does not hold exactly");
  double third = 1.0 / 3, half = 0.5;
  float single;
  EXPECT_FALSE(convertElements(DType::F64, &third, DType::F32, &single, 1).isOk());
  EXPECT_TRUE(convertElements(DType::F64, &half, DType::F32, &single, 1).isOk());
  EXPECT_FALSE(convertElements(DType::I32, narrow, DType::F32, &single, 1).isOk());
  uint16_t halfBits[] = {0x3c00, 0xc000, 0x0001, 0x7c00}; // 1, -2, 2^-24, infinity
  float values[4];
  EXPECT_TRUE(convertElements(DType::F16, halfBits, DType::F32, values, 4).isOk());
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], -2);
  EXPECT_EQ(values[2], std::ldexp(1.0f, -24));
  EXPECT_TRUE(std::isinf(values[3]));
  EXPECT_EQ(findNonFinite(DType::F16, halfBits, 4), 3);
  EXPECT_EQ(findNonFinite(DType::F16, halfBits, 4, /*onlyNan=*/true), -1);
}

// The known answers that accompany the reference implementation (Random123, kat_vectors).
TEST(RandomTest, PhiloxGivesTheKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t(0), ~uint64_t(0), ~uint64_t(0)),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, NormalNumbersHaveMeanZeroAndVarianceOne) {
  double sum = 0, squares = 0;
  constexpr int pairs = 50000;
  for (int i = 0; i < pairs; ++i)
    for (double number : drawNormal(7, uint64_t(i), 0)) {
      sum += number;
      squares += number * number;
    }
  // Four standard errors: 4 / sqrt(1e5) and 4 sqrt(2 / 1e5).
  EXPECT_NEAR(sum / (2 * pairs), 0, 0.0127);
  EXPECT_NEAR(squares / (2 * pairs), 1, 0.0179);
}

TEST(LearningRateTest, SchedulesFollowTheirFormulas) {
  LearningRateSchedule schedule;
  schedule.rate = 0.1;
  schedule.warmupSteps = 4;
  schedule.totalSteps = 14;
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.025); // a quarter of the warm-up
  EXPECT_DOUBLE_EQ(schedule.at(4), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(1000), 0.1);
  schedule.kind = ScheduleKind::Linear;
  EXPECT_DOUBLE_EQ(schedule.at(5), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.05); // 5 of 10 steps done
  EXPECT_DOUBLE_EQ(schedule.at(100), 0);
  schedule.kind = ScheduleKind::Cosine;
  schedule.minRate = 0.02;
  EXPECT_NEAR(schedule.at(10), 0.06, 1e-12);
  EXPECT_NEAR(schedule.at(15), 0.02, 1e-12);
  schedule.kind = ScheduleKind::Step;
  schedule.stepSize = 3;
  schedule.gamma = 0.5;
  EXPECT_DOUBLE_EQ(schedule.at(7), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(8), 0.05);
  EXPECT_DOUBLE_EQ(schedule.at(11), 0.025);
  schedule.kind = ScheduleKind::MultiStep;
  schedule.milestones = {2, 7};
  EXPECT_DOUBLE_EQ(schedule.at(6), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(7), 0.05);
  EXPECT_DOUBLE_EQ(schedule.at(12), 0.025);
  schedule.kind = ScheduleKind::Exponential;
  EXPECT_DOUBLE_EQ(schedule.at(7), 0.025);
  schedule.kind = ScheduleKind::Polynomial;
  schedule.power = 2;
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.02 + 0.08 * 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.02);
}

// Numbers of torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 12, pct_start=0.25, div_factor=10,
// final_div_factor=100, cycle_momentum=False): its formula at the ends and the middle of its
// phases.
TEST(LearningRateTest, OneCycleRisesAndFalls) {
  LearningRateSchedule schedule;
  schedule.kind = ScheduleKind::OneCycle;
  schedule.rate = 0.1;
  schedule.totalSteps = 12;
  schedule.percentStart = 0.25;
  schedule.divFactor = 10;
  schedule.finalDivFactor = 100;
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.01);
  EXPECT_NEAR(schedule.at(2), 0.055, 1e-12);
  EXPECT_NEAR(schedule.at(3), 0.1, 1e-12);
  EXPECT_NEAR(schedule.at(12), 1e-4, 1e-12);
  EXPECT_NEAR(schedule.at(100), 1e-4, 1e-12);
  schedule.percentStart = 1; // no step is left to fall
  EXPECT_NEAR(schedule.at(12), 0.1, 1e-12);
  schedule.percentStart = 1e-3; // nor one to rise
  EXPECT_TRUE(std::isfinite(schedule.at(1)));
}

TEST(LearningRateTest, GroupsFollowTheScheduleFromTheirOwnRate) {
  LearningRateSchedule schedule;
  schedule.kind = ScheduleKind::Linear;
  schedule.rate = 0.1;
  schedule.minRate = 0.02;
  schedule.warmupSteps = 2;
  schedule.totalSteps = 12;
  EXPECT_DOUBLE_EQ(schedule.at(1, 0.5), 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(8, 0.5), 0.26);
}

TEST(LearningRateTest, SchedulesSurviveCheckpoints) {
  LearningRateSchedule schedule;
  schedule.kind = ScheduleKind::MultiStep;
  schedule.milestones = {3, 5};
  schedule.power = 2;
  schedule.divFactor = 7;
  nlohmann::json json = schedule.toJson();
  StatusOr<LearningRateSchedule> read = LearningRateSchedule::fromJson(JsonView(json));
  ASSERT_TRUE(read.isOk());
  EXPECT_EQ(read->toJson(), json);
  // Checkpoints from before there were these schedules.
  for (const char *key : {"power", "milestones", "pct_start", "div_factor", "final_div_factor"})
    json.erase(key);
  read = LearningRateSchedule::fromJson(JsonView(json));
  ASSERT_TRUE(read.isOk());
  EXPECT_EQ(read->divFactor, 25);
}
