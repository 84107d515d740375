//===- RankTest.cpp - bytes and seconds of many ranks ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Ranks/RankFile.h"
#include "memopt/Planning/Ranks/ShardUnits.h"

#include "gtest/gtest.h"

using namespace memopt::planning;

//===----------------------------------------------------------------------===//
// Bytes
//===----------------------------------------------------------------------===//

TEST(RankStateTest, ShardsAreMultiplesOfAUnit) {
  EXPECT_EQ(getShardElements(1000, 1, 16), 1000);
  EXPECT_EQ(getShardElements(1000, 2, 16), 512);
  EXPECT_EQ(getShardElements(1024, 2, 16), 512);
  EXPECT_EQ(getShardElements(1025, 2, 256), 768);
  EXPECT_EQ(getShardElements(16, 4096, 16), 16);
  EXPECT_EQ(getShardElements(17, 2, 16), 9);
  EXPECT_EQ(getShardElements(64, 1024, 16), 1);
  EXPECT_EQ(getShardElements(64, 1024, 256), 256);
}

/// A transformer of width h with adam in mixed precision: parameters and gradients in 2 bytes, 12
/// for a copy in f32, momentum and variance.
static std::vector<RankTensor> makeTransformer(int64_t width, int64_t layers, int64_t &elements) {
  std::vector<RankTensor> tensors;
  elements = 0;
  auto add = [&](int64_t size) {
    tensors.push_back({size, 2, 2, 12, 0, 16});
    elements += size;
  };
  add(50257 * width);
  add(2048 * width);
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t matrix : {3, 1, 4, 4})
      add(matrix * width * width);
    for (int64_t vector : {1, 1, 3, 1, 1, 1, 4, 1})
      add(vector * width);
  }
  return tensors;
}

TEST(RankStateTest, ZeROsFigureIsMet) {
  // 7.5 billion parameters on 64 ranks (Rajbhandari et al., 2020, figure 1).
  int64_t elements;
  std::vector<RankTensor> tensors = makeTransformer(4096, 36, elements);
  EXPECT_NEAR(double(elements), 7.5e9, 0.04e9);
  const double gigabytes[] = {120, 31.4, 16.6, 1.9};
  for (int stage = 0; stage <= 3; ++stage) {
    double bytes = double(getRankStateBytes(tensors, stage, 64)) * 7.5e9 / double(elements);
    EXPECT_NEAR(bytes / 1e9, gigabytes[stage], 0.05) << stage;
  }
}

TEST(RankStateTest, PaddingIsCountedAndSmall) {
  int64_t elements;
  std::vector<RankTensor> tensors = makeTransformer(4096, 36, elements);
  for (int64_t ranks : {1, 2, 8, 64, 1024}) {
    double parts = double(ranks);
    const double formula[] = {16, 4 + 12 / parts, 2 + 14 / parts, 16 / parts};
    for (int stage = 0; stage <= 3; ++stage) {
      auto bytes = double(getRankStateBytes(tensors, stage, ranks));
      EXPECT_GE(bytes, formula[stage] * double(elements) * (1 - 1e-12));
      EXPECT_LE(bytes, formula[stage] * double(elements) * 1.02);
    }
  }
  // Where shards would be larger than the tensor, it stays as it is.
  RankTensor small{3, 4, 0, 0, 0, 16};
  EXPECT_EQ(getRankStateBytes(small, 3, 64), 12);
  // What is not shared out stays.
  RankTensor counted{32, 4, 4, 8, 4, 16};
  EXPECT_EQ(getRankStateBytes(counted, 3, 2), 16 * 16 + 4);
}

static ShardTensor makeShardTensor(int64_t elements, std::optional<int64_t> group = 0) {
  return {elements, 4, 16, group};
}

TEST(ShardUnitTest, SmallTensorsAreCutTogether) {
  // 64 * 1024 elements are cut without padding, and are worth a message: they are by themselves.
  // The others leave up to 15 elements on each of 64 ranks.
  std::vector<ShardTensor> tensors{makeShardTensor(65536), makeShardTensor(10),
                                   makeShardTensor(700), makeShardTensor(20000)};
  auto units = formShardUnits(tensors, 64);
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units[0].members, (std::vector<size_t>{1, 2, 3}));
  // Each begins where a vector could.
  EXPECT_EQ(units[0].firsts, (std::vector<int64_t>{0, 16, 720}));
  EXPECT_EQ(units[0].elements, 720 + 20000);
  EXPECT_TRUE(formShardUnits(tensors, 1).empty());
}

TEST(ShardUnitTest, AUnitIsOfOneGroup) {
  std::vector<ShardTensor> tensors{makeShardTensor(8, 0), makeShardTensor(8, 1),
                                   makeShardTensor(8, 0), makeShardTensor(8, std::nullopt),
                                   makeShardTensor(8, 1), makeShardTensor(8, 2)};
  auto units = formShardUnits(tensors, 2);
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].members, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(units[1].members, (std::vector<size_t>{1, 4}));
}

/// A ResNet of 1,001 layers: 2,003 of its 3,005 tensors have fewer elements than there are ranks.
TEST(ShardUnitTest, PaddingStaysSmallWhereTensorsAre) {
  std::vector<RankTensor> tensors;
  for (int64_t width : {64, 128, 256})
    for (int block = 0; block < 111; ++block)
      for (int64_t elements : {width * width, width, width, 9 * width * width / 16, width / 4,
                               width / 4, width * width / 4, width / 4, width / 4})
        tensors.push_back({elements, 4, 4, 8, 0, 16, 0});
  double all = 0;
  for (const RankTensor &tensor : tensors)
    all += double(tensor.elements);
  for (int64_t ranks : {8, 64, 1024})
    for (int stage : {1, 2, 3}) {
      const double whole[] = {16, 8, 4, 0};
      double formula = whole[stage] + (16 - whole[stage]) / double(ranks);
      EXPECT_LE(double(getRankStateBytes(tensors, stage, ranks)), formula * all * 1.02);
    }
}

//===----------------------------------------------------------------------===//
// Seconds
//===----------------------------------------------------------------------===//

static RankOp compute(double seconds) { return {RankOpKind::Compute, seconds, 0}; }
static RankOp collective(RankOpKind kind, int64_t bytes, int64_t readyAfter, int64_t neededBy) {
  return {kind, 0, bytes, readyAfter, neededBy};
}

TEST(RankTimeTest, ACollectiveCrossesBothLevels) {
  RankNetwork network{{{4, {0.5, 100}}, {1, {2, 10}}}};
  auto seconds = [&](int64_t ranks, RankOpKind kind = RankOpKind::AllGather) {
    return getCollectiveSeconds(network, ranks, kind, 800);
  };
  EXPECT_DOUBLE_EQ(seconds(1), 0);
  EXPECT_DOUBLE_EQ(seconds(2), 0.5 + 400 / 100.0);
  EXPECT_DOUBLE_EQ(seconds(4), 0.5 + 600 / 100.0);
  // Two hosts of four: a rank's quarter of half the tensor comes from the other host.
  EXPECT_DOUBLE_EQ(seconds(8), 6.5 + 2 + 100 / 10.0);
  EXPECT_DOUBLE_EQ(seconds(16), 6.5 + 4 + 150 / 10.0);
  EXPECT_DOUBLE_EQ(seconds(8, RankOpKind::AllReduce), 2 * 18.5);
  EXPECT_DOUBLE_EQ(seconds(8, RankOpKind::ReduceScatter), 18.5);
}

TEST(RankTimeTest, EachLevelSendsWhatTheOnesInsideLeave) {
  RankNetwork network{{{4, {0.5, 100}}, {2, {2, 10}}, {1, {5, 1}}}};
  auto seconds = [&](int64_t ranks) {
    return getCollectiveSeconds(network, ranks, RankOpKind::AllGather, 800);
  };
  EXPECT_DOUBLE_EQ(seconds(8), 6.5 + 2 + 100 / 10.0);
  // Four racks of two hosts: an eighth of three quarters, in two rounds.
  EXPECT_DOUBLE_EQ(seconds(32), seconds(8) + 2 * 5 + 75 / 1.0);
}

TEST(RankTimeTest, GroupsAreWhole) {
  RankNetwork network{{{4, {}}, {2, {}}, {1, {}}}};
  for (int64_t whole : {1, 2, 3, 4, 8, 16, 24})
    EXPECT_EQ(network.findPartialGroup(whole), std::nullopt) << whole;
  EXPECT_EQ(network.findPartialGroup(6), 4);
  EXPECT_EQ(network.findPartialGroup(12), 8);
}

/// A second for 100 bytes on two ranks.
static const RankNetwork slow{{{2, {0, 50}}, {1, {0, 1}}}};

TEST(RankTimeTest, WhatIsInFlightIsWaitedForWhereItIsNeeded) {
  std::vector<RankOp> step = {compute(1), collective(RankOpKind::ReduceScatter, 100, 0, 3),
                              compute(1), compute(1)};
  EXPECT_DOUBLE_EQ(simulateRanks(step, slow, 2, asCompiled).total, 4);
  step[1].isInFlight = true;
  EXPECT_DOUBLE_EQ(simulateRanks(step, slow, 2, asCompiled).total, 3);
  // It begins where it stands, though its operand was there before.
  step = {compute(1), compute(1), collective(RankOpKind::AllGather, 100, 0, 3), compute(1)};
  step[2].isInFlight = true;
  EXPECT_DOUBLE_EQ(simulateRanks(step, slow, 2, asCompiled).total, 4);
}

TEST(RankTimeTest, GathersHideBehindTheLayersBeforeThem) {
  std::vector<RankOp> step;
  for (int64_t layer = 0; layer < 3; ++layer) {
    step.push_back(collective(RankOpKind::AllGather, 100, -1, 2 * layer + 1));
    step.push_back(compute(1));
  }
  RankStepTime blocking = simulateRanks(step, slow, 2, 0), ahead = simulateRanks(step, slow, 2, 1);
  EXPECT_DOUBLE_EQ(blocking.total, 6);
  EXPECT_DOUBLE_EQ(blocking.compute, 3);
  EXPECT_DOUBLE_EQ(blocking.network, 3);
  EXPECT_DOUBLE_EQ(blocking.getExposed(), 3);
  EXPECT_DOUBLE_EQ(ahead.total, 4); // the first has nothing to hide behind
}

TEST(RankTimeTest, NothingBeginsBeforeItsOperandIsThere) {
  std::vector<RankOp> step = {compute(1), collective(RankOpKind::AllGather, 100, 0, 2), compute(1)};
  EXPECT_DOUBLE_EQ(simulateRanks(step, slow, 2, 4).total, 3);
  step[1].readyAfter = -1;
  EXPECT_DOUBLE_EQ(simulateRanks(step, slow, 2, 4).total, 2);
}

TEST(RankTimeTest, SumsAreWaitedForWhereTheyAreNeeded) {
  std::vector<RankOp> step = {compute(1), collective(RankOpKind::ReduceScatter, 100, 0, 3),
                              compute(1), compute(1)};
  EXPECT_DOUBLE_EQ(simulateRanks(step, slow, 2, 0).total, 4);
  EXPECT_DOUBLE_EQ(simulateRanks(step, slow, 2, 1).total, 3);
  // And by the end of the step at the latest.
  step = {compute(1), collective(RankOpKind::ReduceScatter, 300, 0, 4), compute(1)};
  EXPECT_DOUBLE_EQ(simulateRanks(step, slow, 2, 1).total, 4);
}

TEST(RankTimeTest, OneLinkTakesCollectivesInTheirOrder) {
  std::vector<RankOp> step = {collective(RankOpKind::AllGather, 300, -1, 2),
                              collective(RankOpKind::AllGather, 100, -1, 3), compute(1),
                              compute(1)};
  EXPECT_DOUBLE_EQ(simulateRanks(step, slow, 2, 2).total, 3 + 1 + 1);
}

/// Two ranks as they were seen: computing at half its speed beside a collective, and that at a
/// quarter of its own.
static RankNetwork makeMeasured() {
  RankNetwork network = slow;
  MeasuredCollective collective{{{100, 1}, {200, 2}, {400, 6}}, 0.5, 0.25};
  network.measured = MeasuredRanks{2, collective, collective, collective};
  network.measured->allReduce.points = {{100, 3}, {200, 4}};
  return network;
}

TEST(RankTimeTest, WhatWasMeasuredStandsAboveTheFormula) {
  RankNetwork network = makeMeasured();
  auto seconds = [&](int64_t bytes, RankOpKind kind = RankOpKind::AllGather, int64_t ranks = 2) {
    return getCollectiveSeconds(network, ranks, kind, bytes);
  };
  EXPECT_DOUBLE_EQ(seconds(1), 1); // as long as the fewest bytes
  EXPECT_DOUBLE_EQ(seconds(150), 1.5);
  EXPECT_DOUBLE_EQ(seconds(300), 4);
  EXPECT_DOUBLE_EQ(seconds(500), 8);
  EXPECT_DOUBLE_EQ(seconds(300, RankOpKind::AllReduce), 5);
  // Of other ranks than were there nothing is known.
  EXPECT_DOUBLE_EQ(seconds(800, RankOpKind::AllGather, 4),
                   getCollectiveSeconds(slow, 4, RankOpKind::AllGather, 800));
}

TEST(RankTimeTest, ComputingAndSendingSlowEachOtherDown) {
  std::vector<RankOp> step = {compute(1), collective(RankOpKind::ReduceScatter, 100, 0, 4),
                              compute(1), compute(0.5), compute(1)};
  step[1].isInFlight = true;
  // 1.5 s of computing take 3 beside the collective, of which a quarter is still to be sent then.
  RankStepTime time = simulateRanks(step, makeMeasured(), 2, asCompiled);
  EXPECT_DOUBLE_EQ(time.total, 1 + 3 + 0.25 + 1);
  EXPECT_DOUBLE_EQ(time.compute, 3.5);
  // A collective that ends in an instruction leaves the rest of it its speed.
  step[2].seconds = 3;
  step[3].seconds = 0;
  EXPECT_DOUBLE_EQ(simulateRanks(step, makeMeasured(), 2, asCompiled).total, 1 + 4 + 1 + 1);
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static std::string makeManifest(llvm::StringRef elements = "100", llvm::StringRef needed = "3") {
  return (R"({"format": "memopt-package", "mode": "train", "ranks": 2,
    "predicted_peak_bytes": {"host": 5, "device": 4096},
    "variables": [
      {"name": "w", "role": "parameter", "dtype": "f32", "shape": [64], "whole_shape": [10, 10], "bytes": 256},
      {"name": "m", "role": "optimizer_state", "of": "w", "dtype": "f32", "shape": [64], "whole_shape": [10, 10], "bytes": 256},
      {"name": "t", "role": "optimizer_state", "of": "w", "dtype": "f32", "shape": [], "bytes": 4},
      {"name": "frozen", "role": "parameter", "dtype": "f32", "shape": [8], "bytes": 32}],
    "gradients": [{"name": "w", "shape": [64], "bytes": 256}],
    "instructions": [
      {"predicted_seconds": 1},
      {"collective": 0, "ready_after": 0, "needed_by": )" +
          needed + R"(, "outputs": [{"bytes": 400}]},
      {"predicted_seconds": 2},
      {"predicted_seconds": 4}],
    "regions": [{"begin": 1, "end": 3, "count": 2}],
    "collectives": [{"kind": "all_gather", "dtype": "f32", "elements": 64, "result_elements": )" +
          elements + "}]}")
      .str();
}

static std::string getError(llvm::StringRef manifest) {
  llvm::Expected<RankStep> step = parseRankStep(manifest, "file");
  return step ? "" : llvm::toString(step.takeError());
}

TEST(RankFileTest, LoopsAreWrittenOutAndStateIsThatOfTheWhole) {
  llvm::Expected<RankStep> step = parseRankStep(makeManifest(), "file");
  ASSERT_TRUE(static_cast<bool>(step)) << llvm::toString(step.takeError());
  ASSERT_EQ(step->ops.size(), 6u); // 0, then 1 and 2 twice, then 3
  EXPECT_EQ(step->ops[1].bytes, 400);
  EXPECT_EQ(step->ops[1].readyAfter, 0);
  EXPECT_EQ(step->ops[3].neededBy, 5);
  EXPECT_EQ(step->peaks.front(), (std::pair<std::string, int64_t>("device", 4096)));
  ASSERT_EQ(step->tensors.size(), 2u);
  // 4 bytes each of parameter, gradient and momentum, and one number.
  EXPECT_EQ(getRankStateBytes(step->tensors, 0, 1), 1200 + 4 + 32);
  EXPECT_EQ(getRankStateBytes(step->tensors, 3, 2), 3 * 64 * 4 + 4 + 32);
}

TEST(RankFileTest, TheDigestIsThatOfTheCollectives) {
  auto digest = [](const std::string &manifest) { return parseRankStep(manifest, "file")->digest; };
  EXPECT_EQ(digest(makeManifest()).size(), 16u);
  EXPECT_EQ(digest(makeManifest()), digest(makeManifest("100", "4")));
  EXPECT_NE(digest(makeManifest()), digest(makeManifest("99")));
}

TEST(RankFileTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(getError(R"({"format": "memopt-package", "mode": "eval"})"),
            "file: mode: expected the manifest of a package that trains");
  EXPECT_EQ(getError(makeManifest("-1")),
            "file: collectives[0].result_elements: expected an integer of at least 1");
  EXPECT_EQ(getError(R"({"format": "memopt-package", "mode": "train", "ranks": 4097})"),
            "file: ranks: expected at most 4096");
  std::string unknown = makeManifest();
  unknown.replace(unknown.find("all_gather"), 10, "all_to_one");
  EXPECT_EQ(getError(unknown), "file: collectives[0].kind: expected all_reduce, reduce_scatter, "
                               "all_gather, own_shard or all_to_all");
  std::string huge = makeManifest();
  huge.replace(huge.find("[10, 10]"), 8, "[9999999999, 9999999999]");
  EXPECT_EQ(getError(huge), "file: variables[0].whole_shape[1]: makes the tensor too large");
  llvm::Expected<RankNetwork> network = parseRankNetwork(
      R"({"format": "memopt-network", "version": 1, "ranks_per_host": 8,
          "inside": {"latency_seconds": 0, "bytes_per_second": 0},
          "between": {"latency_seconds": 0, "bytes_per_second": 1}})",
      "net");
  ASSERT_FALSE(static_cast<bool>(network));
  EXPECT_EQ(llvm::toString(network.takeError()),
            "net: inside.bytes_per_second: expected a number above 0");
}

TEST(RankFileTest, NetworksHaveAnyNumberOfLevels) {
  auto parse = [](const char *levels) {
    std::string text = R"({"format": "memopt-network", "version": 2, "levels": )";
    return parseRankNetwork(text + levels + "}", "net");
  };
  llvm::Expected<RankNetwork> network =
      parse(R"([{"name": "host", "members": 8, "latency_seconds": 1, "bytes_per_second": 3},
                {"members": 4, "latency_seconds": 2, "bytes_per_second": 2},
                {"latency_seconds": 3, "bytes_per_second": 1}])");
  ASSERT_TRUE(static_cast<bool>(network)) << llvm::toString(network.takeError());
  ASSERT_EQ(network->levels.size(), 3u);
  EXPECT_EQ(network->levels[1].members, 4);
  EXPECT_EQ(network->levels[2].link.latency, 3);
  auto errorOf = [&](const char *levels) { return llvm::toString(parse(levels).takeError()); };
  EXPECT_EQ(errorOf("[]"), "net: levels: expected at least one level");
  EXPECT_EQ(errorOf(R"([{"latency_seconds": 1e9, "bytes_per_second": 3}])"),
            "net: levels[0].latency_seconds: expected at most 3600");
  EXPECT_EQ(errorOf(R"([{"members": 8, "latency_seconds": 1, "bytes_per_second": 3}])"),
            "net: levels[0].members: the last level has none: it connects what there is");
  EXPECT_EQ(errorOf(R"([{"latency_seconds": 1, "bytes_per_second": 3},
                        {"latency_seconds": 1, "bytes_per_second": 3}])"),
            "net: levels[0].members: is missing");
}

/// A scattered sum has a link of its own, and a sum that all get one of each.
TEST(RankFileTest, SumsMayTakeLongerThanGathers) {
  auto parse = [](const char *sums) {
    std::string text = R"({"format": "memopt-network", "version": 2, "levels": [
        {"members": 2, "latency_seconds": 0, "bytes_per_second": 1000, "sums": )";
    return parseRankNetwork(text + sums + R"(}, {"latency_seconds": 1, "bytes_per_second": 100}]})",
                            "net");
  };
  llvm::Expected<RankNetwork> network = parse(R"({"latency_seconds": 3, "bytes_per_second": 500})");
  ASSERT_TRUE(static_cast<bool>(network)) << llvm::toString(network.takeError());
  auto take = [&](RankOpKind kind) { return getCollectiveSeconds(*network, 4, kind, 1000); };
  EXPECT_DOUBLE_EQ(take(RankOpKind::AllGather), 0.5 + 1 + 2.5);
  EXPECT_DOUBLE_EQ(take(RankOpKind::ReduceScatter), 3 + 1 + 1 + 2.5);
  EXPECT_DOUBLE_EQ(take(RankOpKind::AllReduce), 4 + 7.5);
  EXPECT_EQ(llvm::toString(parse(R"({"latency_seconds": 1, "bytes_per_second": 0})").takeError()),
            "net: levels[0].sums.bytes_per_second: expected a number above 0");
}

TEST(RankFileTest, WhatRanksTookIsRead) {
  auto parse = [](const std::string &seconds, const char *speed) {
    std::string one = R"({"bytes": [4096, 8192], "seconds": )" + seconds +
                      R"(, "computing_speed": 0.5, "sending_speed": )" + speed + "}";
    return parseRankNetwork(R"({"format": "memopt-network", "version": 2,
        "levels": [{"latency_seconds": 1, "bytes_per_second": 1}], "measured": {"ranks": 2,
        "all_reduce": )" + one + R"(, "reduce_scatter": )" +
                                one + R"(, "all_gather": )" + one + "}}",
                            "net");
  };
  llvm::Expected<RankNetwork> network = parse("[1, 2]", "1");
  ASSERT_TRUE(static_cast<bool>(network)) << llvm::toString(network.takeError());
  EXPECT_DOUBLE_EQ(getCollectiveSeconds(*network, 2, RankOpKind::AllGather, 6144), 1.5);
  EXPECT_EQ(network->measured->allReduce.computingSpeed, 0.5);
  EXPECT_EQ(llvm::toString(parse("[1]", "1").takeError()),
            "net: measured.all_reduce.seconds: expected as many numbers as there are of bytes");
  EXPECT_EQ(llvm::toString(parse("[2, 1]", "1").takeError()),
            "net: measured.all_reduce.seconds[1]: expected at least the number before it");
  EXPECT_EQ(llvm::toString(parse("[1, 2]", "2").takeError()),
            "net: measured.all_reduce.sending_speed: expected a number above 0, of at most 1");
}
